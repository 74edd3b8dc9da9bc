"""All pictures in docs/images, made anew from real runs: `make pictures`.

    *.png         the dashboard (tests/support/screenshots.py); labels.json has the words on each
    killed.svg    a reducer that is killed (tests/support/killed_drawing.py), drawn from killed.json

`--draw` draws killed.svg again from the run that was recorded, and dates it in its captions.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from tests.support import killed, screenshots
from tests.support.browser import missing_browser
from tests.support.killed_drawing import drawing

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
FRESH = ROOT / ".pictures"
"""Where each run of the browser tests leaves its pictures; it is not committed."""

LABELS, RUN, DRAWN = IMAGES / "labels.json", IMAGES / "killed.json", IMAGES / "killed.svg"

CAPTIONED = (ROOT / "README.md", ROOT / "docs" / "concepts" / "exactly-once.md")
CAPTION = re.compile(r"\d{4}-\d\d-\d\d,(\s)commit [0-9a-f]+")
"""The day and the commit of the run, in the text of each page that shows killed.svg."""

ROWS_S = 120.0
"""How long rows come before pictures for the pages are taken: charts show five minutes."""

BYTES_MAX = 150_000


def made() -> set[str]:
    """Names of all pictures in docs/images that something makes."""
    return {f"{name}.png" for name in screenshots.SCENES} | {DRAWN.name}


def main() -> int:
    """Exit 0 when all are made, 1 where there is no browser."""
    if sys.argv[1:] != ["--draw"]:
        reason = missing_browser()
        if reason is not None:
            sys.stderr.write(f"{reason}\n")
            return 1
        _take()
        _record()
    story = killed.read(RUN)
    DRAWN.write_text(drawing(story), "utf-8")
    for page in CAPTIONED:
        dated = rf"{story.date},\1commit {story.commit}"
        page.write_text(CAPTION.sub(dated, page.read_text("utf-8")), "utf-8")
    return 0


def _take() -> None:
    labels = screenshots.taken(FRESH, ROWS_S)
    for name in labels:
        shutil.copy(FRESH / f"{name}.png", IMAGES)
    LABELS.write_text(f"{json.dumps(labels, indent=2)}\n", "utf-8")


def _record() -> None:
    story = killed.recorded()
    assert killed.exact(story), story
    RUN.write_text(killed.written(story), "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
