"""The leader and tasks whose history is mapped in lanes of its own.

lane 0@b1   0 ──────────────▶ 100 (fence)        lane 0   100 ──▶ live
lane 1@b1   20 ─────────────▶ 60                 lane 1   60  ──▶ live
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mars.core.definitions import Backfill, FileHistory, HistoryFile, LaneSpan, TaskDefinition
from mars.core.types import Lane, StoreEpoch, Topic, backfill_lane, file_lane, live_lane
from mars.protocol.leader.machine import LeaderMachine
from mars.protocol.leader.tasks import begin_version
from mars.protocol.leader.view import (
    AddLanes,
    BeginVersion,
    InitialiseTask,
    KnownProgress,
    SetActive,
    View,
)
from mars.protocol.ports import Begun, Head, StoreIdentity
from tests.unit.machines.test_leading import (
    TASK,
    assignment,
    claims,
    head,
    progress,
    task,
    version,
    view,
)

P0, P1 = live_lane(0), live_lane(1)
H0, H1 = backfill_lane(0, "b1"), backfill_lane(1, "b1")
FILES = file_lane("b2")
STARTS = {P0: 100, P1: 60, H0: 0, H1: 20}
ENDS = {H0: 100, H1: 60}
HISTORY = Backfill("b1", {H0: LaneSpan(0, 100), H1: LaneSpan(20, 60)}, chunks=4, created_ms=0)


def with_history(number: int = 1, *backfills: Backfill) -> TaskDefinition:
    """A task of one begun version, and the next one waiting if `number` is 2."""
    kept = backfills or (HISTORY,)
    firsts = {lane: span.first for one in kept for lane, span in one.lanes.items()}
    begun = version(starts={P0: 100, P1: 60, **firsts}, options={"delay": "1s"})
    versions = [begun, version(2)][:number]
    return replace(task(*versions), backfills=kept)


def look(definition: TaskDefinition, found: Head | None, **changes: object) -> View:
    tasks = {TASK: definition}
    return view(tasks=tasks, copied=tasks, heads={TASK: found}, **changes)


def decide(definition: TaskDefinition, found: Head | None, **changes: object) -> list[object]:
    return list(LeaderMachine().decide(look(definition, found, **changes)))


def begin_second(
    offsets: Mapping[Lane, int], marks_ms: Mapping[Lane, int], *backfills: Backfill
) -> TaskDefinition:
    """The definition in which the second version has begun at these offsets."""
    definition = with_history(2, *backfills)
    (decision,) = decide(definition, head(offsets=offsets, ends=definition.ends))
    assert isinstance(decision, BeginVersion)
    return begin_version(
        definition, Begun(offsets, marks_ms), decision.behind_ms, decision.newest_ms
    )


# -------------------------------------------------------------------------------------- begins


def test_a_new_task_begins_with_all_lanes_and_the_ends_of_its_history() -> None:
    (initialise,) = decide(with_history(), None)

    assert isinstance(initialise, InitialiseTask)
    assert initialise.start.offsets == STARTS
    assert initialise.start.ends == ENDS


def test_a_task_without_history_has_no_ends() -> None:
    (initialise,) = decide(task(), None)

    assert isinstance(initialise, InitialiseTask)
    assert initialise.start.ends == {}


def test_a_task_made_again_has_nothing_of_the_history_of_the_deleted_one() -> None:
    known = KnownProgress().with_records([progress(0, STARTS, STARTS)])
    again = replace(task(version(2, {P0: 120, P1: 80})), first_version=2)

    (initialise,) = decide(again, None, progress=known)

    assert isinstance(initialise, InitialiseTask)
    assert initialise.start.offsets == {P0: 120, P1: 80}
    assert initialise.start.ends == {}


def test_new_partitions_begin_at_their_first_offset_while_history_is_read() -> None:
    found = head(offsets=STARTS, ends=ENDS)

    (decision,) = decide(with_history(), found, partitions={Topic("flows"): 4})

    assert decision == AddLanes(TASK, StoreEpoch(1), {live_lane(2): 0, live_lane(3): 0})


# ------------------------------------------------------------------------------------ recovery


def recovered(*merged_and_needed: tuple[dict[Lane, int], dict[Lane, int]]) -> InitialiseTask:
    """What a task begins with after a loss, given M and L of its buckets."""
    records = [progress(at, *pair) for at, pair in enumerate(merged_and_needed)]
    known = KnownProgress().with_records([*records, *claims(2, 2)])
    leading = LeaderMachine()
    lost = look(with_history(), None, identity=StoreIdentity("run-2", None, None))
    leading.decide(lost)
    claimed = replace(lost, assignment=assignment(store_epoch=2, epoch=2), progress=known)
    initialise = leading.decide(claimed)[0]
    assert isinstance(initialise, InitialiseTask)
    return initialise


def test_recovery_goes_on_within_the_history_at_the_lowest_needed_offsets() -> None:
    merged = {P0: 100, P1: 60, H0: 50, H1: 40}
    later = {P0: 130, P1: 60, H0: 75, H1: 50}
    start = recovered((merged, {**merged, H0: 25}), (later, later)).start

    assert start.offsets == {P0: 100, P1: 60, H0: 25, H1: 40}
    assert start.cuts == {P0: (130,), P1: (), H0: (50, 75), H1: (50,)}
    assert start.ends == ENDS


def test_history_that_nobody_needs_any_more_is_finished_after_a_recovery() -> None:
    done = {P0: 130, P1: 90, H0: 100, H1: 60}
    start = recovered((done, done), (done, done)).start

    assert start.offsets == done
    assert {lane: start.offsets[lane] for lane in ENDS} == start.ends


# ------------------------------------------------------------------------------------ versions


def test_a_version_may_begin_in_the_middle_of_the_history() -> None:
    offsets = {P0: 120, P1: 60, H0: 50, H1: 40}
    marks = {P0: 900_000, P1: 910_000, H0: 100_000, H1: 130_000}

    old, new = begin_second(offsets, marks).versions

    assert new.starts == offsets
    assert new.complete_from_ms == 910_001
    assert old.complete_until_ms == 99_000


def test_history_that_is_finished_does_not_make_an_old_versions_windows_incomplete() -> None:
    offsets = {P0: 120, P1: 80, H0: 100, H1: 60}

    old, _new = begin_second(offsets, {P0: 900_000, P1: 910_000, H0: 100_000}).versions

    assert old.complete_until_ms == 899_000


def test_history_without_a_mark_leaves_an_old_version_no_complete_window() -> None:
    offsets = {P0: 120, P1: 80, H0: 100, H1: 40}

    old, _new = begin_second(offsets, {P0: 900_000, P1: 910_000, H0: 100_000}).versions

    assert old.complete_until_ms is not None
    assert old.complete_until_ms < -(2**60)


@pytest.mark.parametrize(("until_ms", "complete_from_ms"), [(800_000, 800_000), (None, 700_000)])
def test_a_version_lacks_rows_of_files_that_the_one_before_it_took(
    until_ms: int | None, complete_from_ms: int
) -> None:
    files = FileHistory("parquet", (HistoryFile("a.parquet", 0, 50),), until_ms=until_ms)
    spans = {FILES: LaneSpan(0, 50)}
    backfill = Backfill("b2", spans, chunks=2, created_ms=700_000, files=files)
    begun = {P0: 120, P1: 80, FILES: 25}
    untouched = {**begun, FILES: 0}

    _old, new = begin_second(begun, {P0: 90_000, FILES: 3_000}, backfill).versions
    assert new.complete_from_ms == complete_from_ms

    _old, new = begin_second(untouched, {P0: 90_000}, backfill).versions
    assert new.complete_from_ms == 90_001


def test_a_version_lacks_what_neither_files_nor_topic_gave_to_the_one_before_it() -> None:
    definition = with_history(2)
    old, undecided = definition.versions
    between = replace(definition, versions=(replace(old, unread_ms=(5, 9)), undecided))

    assert begin_version(between, Begun({P0: 120}, {}), 0, None).current.unread_ms == (5, 9)


def test_a_version_waits_until_the_history_is_read_again_up_to_where_it_was() -> None:
    merged = {P0: 100, P1: 60, H0: 50, H1: 40}
    known = KnownProgress().with_records([progress(0, merged, {**merged, H0: 0})])
    behind = head(active=False, offsets={**merged, H0: 25}, ends=ENDS)
    there = replace(behind, offsets=merged)

    assert decide(with_history(2), behind, progress=known) == [
        SetActive(TASK, StoreEpoch(1), active=True)
    ]
    assert isinstance(decide(with_history(2), there, progress=known)[0], BeginVersion)
