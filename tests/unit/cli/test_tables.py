"""Windows as tables name them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mars.cli.tables import begin_together, clock, listing, table, window_name

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("end_ms", "together", "name"),
    [
        (60_000, False, "1970-01-01 00:00:00"),
        (60_000, True, "1970-01-01 00:00:00 to 00:01:00"),
        (DAY_MS, True, "1970-01-01 00:00:00 to 1970-01-02 00:00:00"),
        (2**60, True, f"1970-01-01 00:00:00 to {2**60}"),
    ],
)
def test_a_window_is_named_by_its_end_too_where_several_begin_together(
    end_ms: int, together: bool, name: str
) -> None:
    assert window_name(0, end_ms, together=together) == name


def test_windows_begin_together_where_a_start_comes_twice() -> None:
    assert begin_together([0, 10, 10])
    assert not begin_together([0, 10, 20])


def test_a_list_without_anything_says_so() -> None:
    assert listing("keys", ["key", "role"], []) == "There are no keys."
    assert not isinstance(listing("keys", ["key"], [["a"]]), str)


MOMENT = clock(0)


def _lines(width: int) -> list[str]:
    titles = ["window_start", "window_end", "sip", "bytes", "text"]
    cells = [MOMENT, MOMENT, "10.0.0.1", "123456789012", "abcdefghijklmnop"]
    shown = io.StringIO()
    Console(file=shown, width=width).print(table(titles, [cells]))
    return shown.getvalue().splitlines()


def test_times_stay_in_one_line_while_other_columns_can_be_folded() -> None:
    assert any(f"{MOMENT}   {MOMENT}" in line for line in _lines(80))


def test_nothing_is_cut_off_where_times_have_to_be_folded_too() -> None:
    shown = "".join("".join(_lines(40)).split())
    assert all(letter in shown for letter in "abcdefghijklmnop")


def test_a_time_among_texts_keeps_no_text_from_being_folded() -> None:
    reason = "failed: " + "a long reason " * 8 + "and what to do"
    shown = io.StringIO()
    made = table(("", ""), [("state", reason), ("watermark", MOMENT), ("lag", "-")])
    Console(file=shown, width=60).print(made)
    told = shown.getvalue()
    assert "state" in told
    assert "watermark" in told
    assert " ".join(told.replace("state", "").split()).count("a long reason") == 8
    assert "and what to do" in " ".join(told.split())
