"""Each picture that a page shows is made by something here, and is small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support import killed
from tests.support.killed_drawing import drawing
from tests.support.pictures import BYTES_MAX, CAPTIONED, DRAWN, IMAGES, LABELS, RUN, made
from tests.support.screenshots import SCENES
from tests.unit.docs.test_links import PAGES, ROOT

SHOWN = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
REPORTS = ROOT / "docs" / "reports"
"""Plots of runs that are over: they stay as they were."""


def shown() -> Iterator[tuple[Path, Path]]:
    """Each page with each picture on it."""
    for page in PAGES:
        for picture in SHOWN.findall(page.read_text("utf-8")):
            yield page, (page.parent / picture).resolve()


def test_pages_show_only_pictures_that_a_browser_test_or_a_recorded_run_makes() -> None:
    others = [
        (str(page.relative_to(ROOT)), picture.name)
        for page, picture in shown()
        if picture.parent != REPORTS and (picture.parent != IMAGES or picture.name not in made())
    ]
    assert others == []


def test_every_picture_is_on_a_page() -> None:
    assert {picture.name for _page, picture in shown()} >= made()
    assert {path.name for path in IMAGES.iterdir()} == made() | {LABELS.name, RUN.name}


@pytest.mark.parametrize("name", sorted(made()))
def test_picture_is_small(name: str) -> None:
    assert (IMAGES / name).stat().st_size <= BYTES_MAX


def test_words_of_each_picture_of_the_dashboard_are_kept() -> None:
    kept = json.loads(LABELS.read_text("utf-8"))
    assert list(kept) == list(SCENES)
    assert all("Tasks" in words for words in kept.values())


# ------------------------------------------------------------------------- a reducer is killed


def test_picture_of_a_killed_reducer_is_drawn_from_the_recorded_run() -> None:
    command = "python -m tests.support.pictures --draw"
    assert DRAWN.read_text("utf-8") == drawing(killed.read(RUN)), f"run: {command}"


def test_picture_of_a_killed_reducer_is_well_formed_and_says_what_was_counted() -> None:
    story = killed.read(RUN)
    texts = [each.text or "" for each in ET.parse(DRAWN).getroot().iter() if each.text]
    for moment in story.moments[:-1]:
        waiting = moment.sent - moment.counted
        sums = f"{moment.sent:,} sent = {moment.counted:,} in results + {waiting:,} on the way"
        assert sums in texts
    assert f"{story.counted:,} of {story.sent:,} rows are counted, each once." in texts


def test_recorded_run_is_exact_and_its_figures_add_up() -> None:
    story = killed.read(RUN)
    assert killed.exact(story)
    assert story.moments[-1].sent == story.moments[-1].counted == story.sent
    assert sum(story.taken_by.values()) == story.buckets_of_victim > 0
    assert [each.counted for each in story.windows] == [each.sent for each in story.windows]
    window = story.open_window
    assert story.moments[1].at_s == window.others_s < window.held_s == story.moments[2].at_s
    assert 0 < window.held < window.results
    assert story.moments[0].at_s < 0 < story.moments[1].at_s


def test_captions_name_the_day_and_the_commit_of_the_run() -> None:
    story = killed.read(RUN)
    pages = {page for page, picture in shown() if picture == DRAWN}
    assert pages == set(CAPTIONED)
    for page in pages:
        text = " ".join(page.read_text("utf-8").split())
        assert f"{story.date}, commit {story.commit}" in text
