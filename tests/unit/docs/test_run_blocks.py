"""A document with blocks that are marked to be run is run, and what is not run says why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_documents import DOCUMENTS, HOWTOS, OVER_THE_DEMO
from tests.support.documents import steps_of
from tests.unit.docs.test_links import PAGES, ROOT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_with_commands_to_be_run_is_run(page: Path) -> None:
    is_run = page in [*DOCUMENTS, *OVER_THE_DEMO, *HOWTOS]
    assert is_run or not list(steps_of(page))


FENCE = "```"
REASON = re.compile(r"<!-- not run: \w.* -->")


def openings(page: Path) -> Iterator[tuple[str, str]]:
    """The language of each block, and the line before it."""
    is_open, before = False, ""
    for line in page.read_text("utf-8").splitlines():
        if line.startswith(FENCE):
            is_open = not is_open
            if is_open:
                yield line.removeprefix(FENCE), before
        before = line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_are_not_run_have_the_reason_beside_them(page: Path) -> None:
    for language, before in openings(page):
        assert language, f"a block without a language, after {before!r}"
        assert language != "sh" or REASON.fullmatch(before), before
