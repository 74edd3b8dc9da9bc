"""Whether wrong results are noticed."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest

from bench.load import Load, LoadPlan, WindowFacts
from bench.rows import by_window, decode_results, key_hash
from bench.throughput import problems
from mars.core.plan import Format

MINUTE = 60_000
ROWS = [("10.0.0.1", "dns", 0, 3), ("10.0.0.2", "web", 0, 2), ("10.0.0.1", "dns", MINUTE, 4)]
"""sip, type, window start, count."""


def hash_of(sip: str, type_: str) -> int:
    return int(pl.select(key_hash(pl.lit(sip), pl.lit(type_))).item())


def load(last_ms: int = 2 * MINUTE + 1_000) -> Load:
    windows = []
    for start in (0, MINUTE, 2 * MINUTE):
        inside = [row for row in ROWS if row[2] == start]
        rows = sum(count for *_, count in inside)
        checksum = sum(hash_of(sip, type_) * count for sip, type_, _, count in inside)
        windows.append(WindowFacts(start, rows, checksum % 2**64))
    plan = LoadPlan("t", Format.JSON, 10, 5, 3)
    return Load(plan, 9, 9, last_ms, tuple(windows[:2]))


def values(rows: list[tuple[str, str, int, int]]) -> list[bytes]:
    return [
        msgspec.json.encode(
            {
                "window_start": start,
                "window_end": start + MINUTE,
                "sip": sip,
                "type": type_,
                "timestamp": start,
                "count": count,
            }
        )
        for sip, type_, start, count in rows
    ]


def found(rows: list[tuple[str, str, int, int]], delay_s: float = 1.0) -> list[str]:
    return problems(load(), by_window(decode_results(values(rows))), delay_s)


def test_right_results_have_no_problem() -> None:
    assert found(ROWS) == []


def test_a_missing_closed_window_is_noticed() -> None:
    assert found(ROWS[:2]) == [f"window {MINUTE} is missing"]


def test_a_window_for_which_a_contestant_waits_longer_may_be_missing() -> None:
    assert found(ROWS[:2], delay_s=60.0) == []
    assert found(ROWS[1:2], delay_s=60.0) == ["window 0 counts 2 rows of 5"]


def test_a_window_that_need_not_be_closed_may_be_there_in_part_but_not_more_than_once() -> None:
    early = load(last_ms=MINUTE + 1_000)

    def found_early(*last: tuple[str, str, int, int]) -> list[str]:
        return problems(early, by_window(decode_results(values([*ROWS[:2], *last]))))

    assert found_early() == []
    assert found_early(("10.0.0.1", "dns", MINUTE, 3)) == []
    assert found_early(("10.0.0.1", "dns", MINUTE, 5)) == [f"window {MINUTE} counts 5 rows of 4"]
    assert found_early(ROWS[2], ROWS[2]) == [f"window {MINUTE} has 1 rows for groups that have one"]


def test_a_missing_row_is_noticed() -> None:
    assert found(ROWS[1:]) == ["window 0 counts 2 rows of 5"]


def test_a_doubled_row_is_noticed() -> None:
    assert found([*ROWS, ROWS[0]]) == ["window 0 has 1 rows for groups that have one"]


def test_counts_that_belong_to_another_group_are_noticed() -> None:
    swapped = [("10.0.0.1", "dns", 0, 2), ("10.0.0.2", "web", 0, 3), ROWS[2]]
    assert found(swapped) == ["window 0 counts the right number of the wrong groups"]


def test_a_window_that_was_never_produced_is_noticed() -> None:
    extra = [*ROWS, ("10.0.0.9", "x", 7 * MINUTE, 1)]
    assert found(extra) == [f"window {7 * MINUTE} has no rows"]


def test_closed_windows_are_those_that_the_slowest_partition_has_passed() -> None:
    assert [w.start_ms for w in load(last_ms=MINUTE + 999).closed_windows(1_000)] == []
    assert [w.start_ms for w in load(last_ms=MINUTE + 1_000).closed_windows(1_000)] == [0]


def test_checksums_wrap_instead_of_failing() -> None:
    big = [("a", "b", 0, 2**40), ("c", "d", 0, 2**40)]
    result = by_window(decode_results(values(big)))[0]
    expected = (hash_of("a", "b") + hash_of("c", "d")) * 2**40 % 2**64
    assert result.checksum == expected


def test_a_value_that_is_no_result_row_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_results([b'{"window_start": "soon"}'])
