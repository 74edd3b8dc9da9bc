"""The pages stay short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.words import counted, pages, words


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
