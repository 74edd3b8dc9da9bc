"""Streams of results as frames: every revision, and what holds of them."""

from __future__ import annotations

import polars as pl

from mars.adapters.kafka.read.groups import ConsumedRow
from mars.engine.frames import frame_of_stream, holding


def row(
    sip: str, count: int, revision: int = 0, *, deleted: bool = False, version: int = 1
) -> ConsumedRow:
    value = {"window_start": 60_000, "window_end": 120_000, "sip": sip, "count": count}
    return ConsumedRow(
        topic="t",
        partition=0,
        offset=0,
        key=[60_000, sip],
        row=value,
        version=version,
        revision=revision,
        complete=True,
        deleted=deleted,
    )


def held(frame: pl.DataFrame) -> list[tuple[str, int]]:
    return [(one["sip"], one["count"]) for one in holding(frame).to_dicts()]


ROWS = [
    row("a", 1),
    row("b", 1),
    row("c", 1),
    row("b", 2, 1),
    row("c", 2, 1),
    row("c", 0, 2, deleted=True),
]


def test_frame_says_of_each_row_which_revision_it_is_and_whether_it_deletes() -> None:
    frame = frame_of_stream(ROWS)
    assert frame.columns[:4] == ["window_start", "window_end", "sip", "count"]
    last = frame.to_dicts()[-1]
    assert (last["sip"], last["mars_revision"], last["mars_deleted"]) == ("c", 2, True)
    assert (last["mars_key"], last["mars_version"], last["mars_complete"]) == (
        '[60000,"c"]',
        1,
        True,
    )
    assert frame.schema["window_start"] == pl.Datetime("ms", "UTC")


def test_what_holds_is_the_newest_revision_of_each_group_that_is_not_deleted() -> None:
    assert held(frame_of_stream(ROWS)) == [("a", 1), ("b", 2)]


def test_frames_that_were_read_one_after_the_other_are_put_together() -> None:
    for cut in range(len(ROWS) + 1):
        before, after = frame_of_stream(ROWS[:cut]), frame_of_stream(ROWS[cut:])
        together = pl.concat([before, after], how="diagonal_relaxed")
        assert held(together) == [("a", 1), ("b", 2)]


def test_row_that_was_read_twice_counts_once_and_versions_count_apart() -> None:
    assert held(frame_of_stream([*ROWS, ROWS[3]])) == [("a", 1), ("b", 2)]
    assert held(frame_of_stream([row("a", 1), row("a", 3, version=2)])) == [("a", 1), ("a", 3)]


def test_frame_of_no_rows_is_empty() -> None:
    frame = frame_of_stream([])
    assert frame.is_empty()
    assert holding(frame).is_empty()
