"""The pages stay short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.words import counted, pages, words

WORDS_MAX = 20_000
"""In all pages together. Put it down when they lose words; up only for something new to say."""

PAGE_WORDS_MAX = 800
LONGER = {"docs/internals/protocol.md": 1_900, "docs/reference/limits.md": 1_600}
"""The book of the protocol, and a page of tables in which people search."""


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("# Late rows\nA row is late if it comes later.\n", 10),
        ("```bash\nmars why NAME\n```\nAsk `mars why`.\n", 3),
        ("| a | b |\n| --- | ---: |\n| one row | 1.5 |\n", 5),
        (
            "<!-- not run: it is slow -->\nSee [the words](b.md#c), [x][y] - more.\n[y]: https://z\n",
            5,
        ),
    ],
)
def test_words_are_those_that_somebody_reads(page: str, count: int) -> None:
    assert words(page) == count


def test_only_pages_that_people_write_are_counted() -> None:
    names = {str(page.relative_to(Path(__file__).parents[3])) for page in pages()}
    assert {"README.md", "docs/index.md", "docs/reference/limits.md"} <= names
    assert not {"docs/reference/sql.md", "docs/decisions/index.md", "CHANGELOG.md"} & names
    assert not [name for name in names if name.startswith("docs/reports/")]
    assert set(counted()) == names


def test_pages_together_have_no_more_words_than_people_read() -> None:
    assert sum(counted().values()) <= WORDS_MAX, "see: python -m tests.words"


def test_no_page_is_too_long() -> None:
    most = {name: LONGER.get(name, PAGE_WORDS_MAX) for name in counted()}
    assert {name: count for name, count in counted().items() if count > most[name]} == {}


def test_readme_is_read_in_three_minutes() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    assert len(readme.split()) <= 600
