"""One number of the release: in the package, the changelog and the pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = ("docs/start/install.md", "docs/operate/kubernetes.md", "docs/concepts/comparison.md")


def _release() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def test_the_changelog_begins_with_the_release_or_what_follows_it() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [heading for heading in headings if heading != "Unreleased"]
    assert released[0] == _release()
    assert headings.index(released[0]) == len(headings) - len(released), "Unreleased comes first"


def test_pages_name_this_release() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text()
        named = set(re.findall(r"(?:mars_statistics-|mars:|\| age \| )(\d+\.\d+\.\d+)", text))
        assert named == {_release()}, page
