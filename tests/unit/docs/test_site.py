"""The site of the pages: it can be made, all of it is reached, and it needs no network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import need
from tests.support.site import (
    broken,
    build,
    copied,
    loaded_from_elsewhere,
    missing_site_tools,
    unread,
)
from tests.unit.docs.test_links import LINK, ROOT

DOCS = ROOT / "docs"
IN_NAVIGATION = re.compile(r"^ +- .+: (\S+\.md)$", re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(missing_site_tools())
    folder = copied(tmp_path_factory.mktemp("site"))
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_site_has_every_page_and_no_link_or_picture_that_leads_nowhere(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()
    assert list(broken(site)) == []


def test_lists_tables_and_code_of_all_pages_are_what_they_are_meant_to_be(site: Path) -> None:
    assert list(unread(site)) == []


def test_site_loads_nothing_from_a_network(site: Path) -> None:
    assert list(loaded_from_elsewhere(site)) == []


def test_pages_that_show_a_file_hold_its_text(site: Path) -> None:
    assert "transaction_timeout_ms" in (site / "reference" / "settings.html").read_text("utf-8")


@pytest.mark.parametrize("wrong", ["[x](nowhere.md)", "[x](index.md#nowhere)"])
def test_what_leads_nowhere_ends_the_build(tmp_path: Path, wrong: str) -> None:
    need(missing_site_tools())
    folder = copied(tmp_path)
    (folder / "docs" / "index.md").write_text(f"# Mars\n{wrong}\n", "utf-8")
    assert build(folder).returncode != 0


def test_pictures_that_are_missing_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<img src="b.png"><a href="#c">', "utf-8")
    assert list(broken(tmp_path)) == ["a.html: #c", "a.html: b.png"]


def test_navigation_leads_to_each_page_once() -> None:
    named = IN_NAVIGATION.findall((ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/0")}
    assert sorted(named) == sorted(pages - decisions)


def test_page_of_decisions_leads_to_each_once() -> None:
    listed = LINK.findall((DOCS / "decisions" / "index.md").read_text("utf-8"))
    assert listed == sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))
