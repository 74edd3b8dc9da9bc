"""Windows of so many rows, as queries write them, and what does not go with them."""

from __future__ import annotations

import pytest

from mars.core.errors import Rejected, SqlError
from mars.core.plan import OF_COUNTED, OFFSET_FIELD
from mars.core.windows import Counting, CountingByKey
from tests.unit.sql.compiling import compiled

COUNT = "SELECT sip, count(*) FROM S GROUP BY sip "


@pytest.mark.parametrize(
    ("tail", "shape"),
    [
        ("WINDOWING 1000 ROWS", Counting(1000, 1000)),
        ("windowing 1000 rows slide 100 rows", Counting(1000, 100)),
        ("WINDOWING 1 ROW", Counting(1, 1)),
        ("WINDOWING 10000000 ROWS SLIDE 1000 ROWS", Counting(10_000_000, 1000)),
    ],
)
def test_rows_are_counted(tail: str, shape: Counting) -> None:
    plan = compiled(COUNT + tail)
    assert plan.window == shape
    assert plan.counts_rows
    assert plan.fields[-1] == OFFSET_FIELD
    assert [column.name for column in plan.window_columns][2:] == list(OF_COUNTED)


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("WINDOWING 10 ROWS PER KEY", "windows PER KEY need EXPIRE"),
        ("WINDOWING 10 ROWS PER PARTITION", "PER is followed by KEY"),
        ("WINDOWING 10 ROWS PER KEY EXPIRE", "EXPIRE takes a number and ms, s, min, h or d"),
        ("WINDOWING 10 ROWS PER KEY EXPIRE 1 month", "depends on a calendar"),
        ("WINDOWING 10 ROWS PER KEY EXPIRE 10 ms", "a time to EXPIRE lasts from"),
        ("WINDOWING 10 ROWS PER KEY EXPIRE 1 d SLIDE 5 ROWS", "write it once"),
        ("WINDOWING 10 ROWS PER KEY EXPIRE 1 d LIMIT 5", "WINDOWING comes last"),
        ("WINDOWING 101 ROWS SLIDE 1 ROW PER KEY EXPIRE 1 d", "at most 100 are possible"),
        ("WINDOWING 10 ROWS EVERY 5 ROWS", "do not cumulate"),
        ("WINDOWING 10 ROWS OFFSET 5 ROWS", "begin with the first row"),
        ("WINDOWING 10 ROWS TIMEZONE 'UTC'", "go by no clock"),
        ("WINDOWING 10 ROWS SLIDE 5 ROWS SLIDE 5 ROWS", "write it once"),
        ("WINDOWING 10 ROWS LIMIT 5", "WINDOWING comes last"),
        ("WINDOWING 10 ROWS SLIDE 20 ROWS", "longer than the window"),
        ("WINDOWING 10 ROWS SLIDE 5 s", "takes a number of rows"),
        ("WINDOWING 10 ROWS SLIDE", "takes a number of rows"),
        ("WINDOWING 1.5 ROWS", "takes a number of rows"),
        ("WINDOWING 0 ROWS", "from 1 to 10000000 rows"),
        ("WINDOWING 10000001 ROWS", "from 1 to 10000000 rows"),
        ("WINDOWING 20001 ROWS SLIDE 2 ROWS", "falls into 20001 slices"),
        ("WINDOWING 10 s SLIDE 5 ROWS", "a number and one of ms, s, min, h, d"),
    ],
)
def test_what_is_not_there_is_refused_with_its_place(tail: str, said: str) -> None:
    with pytest.raises(SqlError, match=said) as refused:
        compiled(COUNT + tail)
    assert refused.value.line == 1


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("delay", "5s", "wait for no time"),
        ("idle_after", "5s", "wait for no other partition"),
        ("late", "drop", "no row comes too late"),
        ("watermark", "partition", "by no watermark"),
    ],
)
def test_options_of_times_say_nothing_here(option: str, value: str, said: str) -> None:
    with pytest.raises(Rejected, match=f"option {option}: .*{said}"):
        compiled(COUNT + "WINDOWING 10 ROWS", **{option: value})


@pytest.mark.parametrize(
    ("tail", "shape"),
    [
        ("WINDOWING 1000 ROWS PER KEY EXPIRE 1 d", CountingByKey(1000, 1000, 86_400_000)),
        ("windowing 10 rows slide 2 rows per key expire 5 s", CountingByKey(10, 2, 5_000)),
        ("WINDOWING 100 ROWS SLIDE 1 ROW PER KEY EXPIRE 1 h", CountingByKey(100, 1, 3_600_000)),
    ],
)
def test_rows_of_each_key_are_counted(tail: str, shape: CountingByKey) -> None:
    plan = compiled(COUNT + tail)
    assert plan.window == shape
    assert plan.counts_rows
    assert plan.counts_by_key
    assert plan.fields[-1] == OFFSET_FIELD
    assert [column.name for column in plan.window_columns][2:] == list(OF_COUNTED)


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("SELECT count(*) FROM S ", {}, "the query groups by none"),
        (COUNT, {"max_keys": 5}, "option max_keys counts the groups of a window"),
        (COUNT + "ORDER BY sip ", {}, "ORDER BY and LIMIT choose among the groups"),
        (COUNT, {"delay": "5s"}, "option delay"),
    ],
)
def test_windows_of_one_key_have_no_groups_to_choose_among(
    query: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(Rejected, match=said):
        compiled(query + "WINDOWING 10 ROWS PER KEY EXPIRE 1 d", **options)


def test_groups_are_not_folded_and_others_are_limited() -> None:
    with pytest.raises(Rejected, match="over_max_keys: fold"):
        compiled(COUNT + "WINDOWING 10 ROWS", max_keys=5, over_max_keys="fold")
    assert compiled(COUNT + "WINDOWING 10 ROWS", max_keys=5).single_bucket


@pytest.mark.parametrize("name", OF_COUNTED)
def test_what_a_row_says_of_its_window_is_no_name_of_an_item(name: str) -> None:
    with pytest.raises(SqlError, match="the window's own"):
        compiled(f"SELECT sip AS {name}, count(*) FROM S GROUP BY sip WINDOWING 10 ROWS")
