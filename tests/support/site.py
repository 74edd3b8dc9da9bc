"""The site of the pages, made anew from a copy of them; and what is wrong with what was made."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]

BUILD_S = 120.0

ELSEWHERE = re.compile(r"[a-z]+:|//")


def missing_site_tools() -> str | None:
    """What keeps the site from being made."""
    if find_spec("zensical") is None:
        return "zensical is not installed; run make install."
    return None


def copied(folder: Path) -> Path:
    """The pages and what they need, in a folder of their own."""
    for name in ("docs", "configs"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "mkdocs.yml", folder)
    return folder


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Make the site there, as `make docs` does."""
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )


@dataclass(slots=True)
class Page:
    """What a page of the site has: places that one can link to, links, and what it loads."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        if "id" in given:
            self.page.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        elif tag in {"link", "script", "img"}:
            self.page.loads += [given[name] for name in ("href", "src") if name in given]


@cache
def page_of(path: Path) -> Page:
    """A page of the site, read."""
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    return reader.page


def pages_of(site: Path) -> list[Path]:
    """All pages but that of what is not there: its links begin at the root of a server."""
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def broken(site: Path) -> Iterator[str]:
    """What leads nowhere: pages, places in them, pictures, scripts."""
    for path in pages_of(site):
        page = page_of(path)
        for link in [*page.links, *page.loads]:
            if not ELSEWHERE.match(link) and not _leads(path, link):
                yield f"{path.relative_to(site)}: {link}"


def _leads(path: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = path if not name else (path.parent / name).resolve()
    if not target.is_file():
        return False
    return not anchor or target.suffix != ".html" or anchor in page_of(target).ids


PARAGRAPH = re.compile(r"<p>(.*?)</p>", re.DOTALL)
UNREAD = re.compile(r"^ *(?:[-*] |\d+\. |\|.*\|$|```)", re.MULTILINE)


def unread(site: Path) -> Iterator[str]:
    """Lists, tables and blocks of code that became text: they want an empty line before them."""
    for path in pages_of(site):
        for paragraph in PARAGRAPH.findall(path.read_text("utf-8")):
            if found := UNREAD.search(paragraph):
                yield f"{path.relative_to(site)}: {paragraph[found.start() :][:60]}"


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """What a page would have from a network."""
    for path in pages_of(site):
        for source in page_of(path).loads:
            if ELSEWHERE.match(source) and not source.startswith("data:"):
                yield f"{path.relative_to(site)}: {source}"
