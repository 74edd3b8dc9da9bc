"""What a document shows is found in what a command prints, and what differs is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documents import Look, is_shown, steps_of

PRINTED = """ page      clicks   users
 ─────────────────────────
 "/home"   1,493    88
607 rows read: 600 counted, 7 bad.
"""


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (("600 rows read: 1 counted, 7 bad.",), True),  # a number stands for any
        (("... rows read: ... 7 bad.",), True),
        (('"/home" ...', "... rows read"), True),
        (("... rows read", '"/home" ...'), False),  # out of order
        (("600 rows read: 1 counted, 7 late.",), False),
        (("page clicks users",), True),  # blanks stand for any blanks
        (("page clicks users", "───", '"/home" ...'), True),  # a line is as long as its table
        (("───", "page clicks users"), False),
    ],
)
def test_lines_are_compared_but_for_numbers_blanks_and_dots(
    lines: tuple[str, ...], shown: bool
) -> None:
    assert is_shown(Look("mars", lines), PRINTED) is shown


def test_blocks_come_in_their_order_and_other_languages_are_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```text\nmars down\n```\n```bash\nmars up\n```\n"
        "```console\n$ mars why a\nbecause\n...\n$ mars why b\n```\n"
    )
    assert list(steps_of(page)) == [
        "mars up\n",
        Look("mars why a", ("because",)),
        Look("mars why b", ()),
    ]
