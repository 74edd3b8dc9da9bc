"""How many words people have to read: those of the pages that were written by hand.

    python -m tests.words       each page, the longest last, and the sum

A word is what stands between two blanks and has a letter or a digit. Tables and names of commands
in a sentence count; blocks of code, comments, and what links lead to do not. Pages that are made
from code, decisions, reports and the changelog are no part of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

MADE_FROM_CODE = {DOCS / "reference" / f"{name}.md" for name in ("python", "rest", "sql")}
APART = {DOCS / "decisions", DOCS / "reports"}

NOT_READ = re.compile(
    r"^```.*?^```$|<!--.*?-->|^\[[^\]]+\]: \S+$|(?<=\])(?:\([^)\s]*\)|\[[^\]]*\])", re.M | re.S
)
WORD = re.compile(r"\S*\w\S*")


def pages() -> list[Path]:
    """All that were written by hand."""
    first = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
    others = (page for page in DOCS.rglob("*.md") if not APART & set(page.parents))
    return [*first, *sorted(set(others) - MADE_FROM_CODE)]


def words(page: str) -> int:
    """How many somebody reads who reads the whole page."""
    return len(WORD.findall(NOT_READ.sub("", page)))


def counted() -> dict[str, int]:
    """The words of each page."""
    return {str(page.relative_to(ROOT)): words(page.read_text("utf-8")) for page in pages()}


def main() -> None:
    """Print them."""
    found = counted()
    for name, count in sorted(found.items(), key=lambda each: each[1]):
        sys.stdout.write(f"{count:7,}  {name}\n")
    sys.stdout.write(f"{sum(found.values()):7,}  in {len(found)} pages\n")


if __name__ == "__main__":
    main()
