"""Why a window has not come while a task's history is mapped.

lane 0@b1   [0, 1,000)  at 450, mark 20,000      lane 0   1,000 ──▶ mark 65,000
lane 1@b1   [0, 40)     finished                 lane 1   40 ──▶ mark 64,000
"""

from __future__ import annotations

from dataclasses import replace

from mars.core.definitions import Backfill, FileHistory, HistoryFile, LaneSpan, TaskState
from mars.core.types import Lane, MemberId, backfill_lane, file_lane, live_lane
from mars.inspect.evidence import Evidence, HoldReason
from mars.inspect.explaining import Holder, explain
from mars.inspect.history import history_of, state_for_people
from tests.unit.test_explaining import (
    DEFINITION,
    HEAD,
    evidence_with,
    holder,
    nothing_open,
    only_window,
    words,
)

BULK = MemberId("bulk-1")
H0, H1, FILES = backfill_lane(0, "b1"), backfill_lane(1, "b1"), file_lane("b2")
TOPIC = Backfill("b1", {H0: LaneSpan(0, 1_000), H1: LaneSpan(0, 40)}, chunks=4, created_ms=0)
FROM_FILES = Backfill(
    "b2",
    {FILES: LaneSpan(0, 80)},
    chunks=2,
    created_ms=0,
    files=FileHistory("parquet", (HistoryFile("a.parquet", 0, 80),)),
)
OFFSETS = {live_lane(0): 1_000, live_lane(1): 40, H0: 450, H1: 40}
MARKS_MS = {live_lane(0): 65_000, live_lane(1): 64_000, H0: 20_000, H1: 9_000}


def backfilled(
    *backfills: Backfill,
    offsets: dict[Lane, int] = OFFSETS,
    marks_ms: dict[Lane, int] = MARKS_MS,
    bulk: MemberId | None = BULK,
) -> Evidence:
    definition = replace(DEFINITION, backfills=backfills or (TOPIC,))
    head = replace(HEAD, offsets=offsets, marks_ms=marks_ms, ends=definition.ends)
    return evidence_with(definition=definition, head=head, bulk=bulk, ends={0: 1_000, 1: 40})


# ------------------------------------------------------------------------------------ how far


def test_history_is_as_far_as_the_offsets_of_its_lanes_say() -> None:
    evidence = backfilled()
    history = evidence.history
    assert history is not None
    assert (history.done, history.total, history.percent) == (490, 1_040, 47.1)
    assert [one.percent for one in history.lanes] == [45.0, 100.0]
    assert not history.finished


def test_percentage_does_not_reach_a_hundred_before_the_end() -> None:
    history = backfilled(offsets={**OFFSETS, H0: 999}).history
    assert history is not None
    assert (history.percent, history.finished) == (99.9, False)
    done = backfilled(offsets={**OFFSETS, H0: 1_000}).history
    assert done is not None
    assert (done.percent, done.finished) == (100.0, True)


def test_task_without_backfills_has_no_history() -> None:
    assert history_of(DEFINITION, HEAD) is None


def test_history_without_a_row_is_finished() -> None:
    empty = Backfill("b2", {FILES: LaneSpan(0, 0)}, chunks=1, created_ms=0)
    history = history_of(replace(DEFINITION, backfills=(empty,)), None)
    assert history is not None
    assert (history.percent, history.finished) == (100.0, True)


def test_running_task_is_backfilling_until_its_history_is_finished() -> None:
    going_on, done = backfilled(), backfilled(offsets={**OFFSETS, H0: 1_000})
    assert state_for_people(going_on.definition, going_on.history) == "backfilling"
    assert state_for_people(done.definition, done.history) == "running"
    paused = replace(going_on.definition, state=TaskState.PAUSED)
    assert state_for_people(paused, going_on.history) == "paused"
    assert state_for_people(DEFINITION, None) == "running"


# ----------------------------------------------------------------------------- who holds it


def test_unfinished_history_holds_the_window_by_its_own_mark() -> None:
    evidence = backfilled()
    assert only_window(evidence).watermark_ms == 19_000
    assert holder(evidence) == Holder(
        HoldReason.BEHIND,
        lane=H0,
        partition=0,
        member=BULK,
        watermark_ms=19_000,
        lag=550,
        percent=45.0,
    )


def test_only_what_is_left_of_the_history_is_shown_beside_the_partitions() -> None:
    (window,) = explain(backfilled()).windows
    assert [lane.lane for lane in window.partitions] == [live_lane(0), live_lane(1), H0]


def test_finished_history_does_not_hold() -> None:
    evidence = backfilled(offsets={**OFFSETS, H0: 1_000})
    assert only_window(evidence).watermark_ms == 63_000
    assert holder(evidence).bucket is not None


def test_history_that_nobody_maps_has_no_owner() -> None:
    assert holder(backfilled(bulk=None)).reason is HoldReason.NO_OWNER


def test_history_without_a_mark_holds_before_everything_else() -> None:
    marks_ms = {lane: mark for lane, mark in MARKS_MS.items() if lane in {H0, H1}}
    held = holder(backfilled(FROM_FILES, offsets={live_lane(0): 1, FILES: 8}, marks_ms=marks_ms))
    assert (held.lane, held.partition, held.watermark_ms) == (FILES, None, None)


# -------------------------------------------------------------------------------- in words


def test_summary_names_the_backfill_that_the_window_waits_for() -> None:
    assert words(backfilled()) == (
        "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits for the backfill of "
        "partition 0, which is at 45 % (bulk-1 works on it)."
    )


def test_summary_says_that_no_bulk_process_runs() -> None:
    assert words(backfilled(bulk=None)).endswith(
        "waits for the backfill of partition 0, which is at 45 % (no bulk process runs; start one)."
    )


def test_summary_names_files() -> None:
    evidence = backfilled(FROM_FILES, offsets={**OFFSETS, FILES: 10}, marks_ms=MARKS_MS)
    assert "the backfill of files, which is at 12.5 %" in words(evidence)


def test_summary_of_a_backfill_without_an_open_window_says_how_far_it_is() -> None:
    evidence = nothing_open(
        **{name: getattr(backfilled(), name) for name in ("definition", "head")}
    )
    assert words(replace(evidence, bulk=BULK)) == (
        "No window is open yet: the backfill is at 47.1 % (bulk-1 works on it)."
    )


# --------------------------------------------------------------------------- far behind


def far_behind(next_offset: int, bulk: MemberId | None = BULK) -> Evidence:
    """Partition 0 is caught up by a bulk process to offset 800; partition 1 is read to its end."""
    definition = replace(DEFINITION, catch_up={live_lane(0): 800})
    offsets = {live_lane(0): next_offset, live_lane(1): 40}
    marks_ms = {live_lane(0): 20_000, live_lane(1): 64_000}
    head = replace(HEAD, offsets=offsets, marks_ms=marks_ms)
    return evidence_with(definition=definition, head=head, bulk=bulk, ends={0: 1_000, 1: 40})


def test_lane_that_is_caught_up_is_held_by_the_bulk_process() -> None:
    held = holder(far_behind(300))
    assert (held.partition, held.reason, held.member) == (0, HoldReason.BEHIND, BULK)
    assert (held.lag, held.to_catch_up) == (700, 500)
    assert words(far_behind(300)).endswith(
        "waits: partition 0 is far behind and is caught up by Spark, 500 messages to go "
        "(bulk-1 works on it)."
    )


def test_summary_says_that_nobody_catches_up() -> None:
    evidence = far_behind(300, bulk=None)
    assert holder(evidence).reason is HoldReason.NO_OWNER
    assert words(evidence).endswith("500 messages to go (no bulk process runs; start one).")


def test_lane_that_has_been_caught_up_is_a_mappers_again() -> None:
    held = holder(far_behind(800))
    assert held.to_catch_up == 0
    assert held.member != BULK
