"""The pictures on the pages: each can be made of the dashboard as it is, and shows its words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import missing_java, missing_kafka, missing_valkey, need
from tests.support.browser import missing_browser
from tests.support.pictures import FRESH, IMAGES, LABELS
from tests.support.screenshots import SCENES, taken

pytestmark = pytest.mark.browser

ROWS_S = 25.0
"""Two windows of the slowest task that has results on a picture."""


@pytest.fixture(scope="module")
def labels() -> dict[str, list[str]]:
    """Pictures of a Mars with some rows, in a folder that is not committed; the words on each."""
    reason = missing_browser()
    if reason is not None:
        pytest.skip(reason)
    need(missing_java() or missing_kafka() or missing_valkey())
    return taken(FRESH, ROWS_S)


def size_of(picture: Path) -> bytes:
    """Width and height as a PNG has them."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG"), picture
    return head[16:24]


@pytest.mark.parametrize("name", SCENES)
def test_picture_on_the_pages_shows_the_dashboard_as_it_is(
    labels: dict[str, list[str]], name: str
) -> None:
    assert size_of(FRESH / f"{name}.png") == size_of(IMAGES / f"{name}.png")
    shown = json.loads(LABELS.read_text("utf-8"))[name]
    assert labels[name] == shown, "the picture lags behind the dashboard: run make pictures"
