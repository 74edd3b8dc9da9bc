"""Closed windows that late rows revise, until D has passed them.

D ──── windows that are kept ──── C ──── open windows ────▶        lateness 20 s: D = C - 20 s
drop          revise                     count
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mars.core.plan import Call, Column, Function, LatePolicy, Literal, Plan, ValueType
from mars.core.types import Entry, Lane, Topic
from mars.core.windows import WindowShape
from mars.protocol.ports import Head, Ledger, Progress, ResultBatch
from mars.protocol.reducer.commit_plan import GATHERING_MS
from mars.protocol.reducer.preparation import Prepared
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.windows import turns
from tests.unit.machines.reducing_rows import (
    NAME,
    OWNER,
    P0,
    P1,
    SAVE_MS,
    SLIDING,
    TUMBLING,
    PlanOptions,
    RowSpec,
    balanced,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_slice,
    make_task,
    make_version,
)
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

LATENESS_MS = 20_000
REVISE: PlanOptions = {"late": LatePolicy.REVISE, "lateness_ms": LATENESS_MS}

Row = tuple[int, str, int, int]
"""Window start in seconds, key, count, revision."""


def begin(
    *records: Progress, window: WindowShape = TUMBLING, lateness_ms: int = LATENESS_MS
) -> TaskInBucket:
    """A task that revises, of an owner who has read nothing yet."""
    made = make_task(window=window, late=LatePolicy.REVISE, lateness_ms=lateness_ms)
    return TaskInBucket(made, OWNER, {record.version: record for record in records}, SAVE_MS)


def read(part: TaskInBucket, head: Head, *entries: Entry, base: Entry | None = None) -> None:
    """Take entries, then go forward to the head."""
    part.absorb(make_slice(*entries, base=base))
    part.drained(head)


def feed(part: TaskInBucket, seq: int, first: int, rows: list[RowSpec], mark_s: int) -> None:
    """A batch of lane 0, and the head with it."""
    read(part, make_head(seq, {P0: first + len(rows)}, mark_s), make_entry(seq, first, rows))


def commit(part: TaskInBucket) -> Prepared:
    """Prepare and take it as durable."""
    prepared = part.prepare()
    for record in prepared.progress:
        assert balanced(record.ledger)
        part.committed(record)
    return prepared


def rows_of(batches: tuple[ResultBatch, ...]) -> list[Row]:
    """All rows of some batches, with the revision that their header names."""
    found: list[Row] = []
    for batch in batches:
        revision = int(dict(batch.headers)["mars-revision"])
        values = map(json.loads, batch.values)
        found += [(one["window_start"] // 1000, one["k"], one["n"], revision) for one in values]
    return found


def once_closed() -> TaskInBucket:
    """The window of seconds 0 to 9 is emitted: x twice, y once."""
    part = begin()
    feed(part, 1, 0, [(1, "x"), (2, "x"), (3, "y"), (15, "x")], mark_s=15)
    assert rows_of(commit(part).results) == [(0, "x", 2, 0), (0, "y", 1, 0)]
    return part


# ------------------------------------------------------------------------------------ revisions


def test_a_late_row_emits_its_group_again_with_all_its_rows() -> None:
    part = once_closed()
    feed(part, 2, 4, [(4, "x")], mark_s=15)

    prepared = commit(part)

    assert rows_of(prepared.results) == [(0, "x", 3, 1)]
    (record,) = prepared.progress
    assert record.revisions == {0: 1}
    assert (record.ledger.late, record.ledger.counted, record.ledger.emitted) == (0, 5, 4)
    assert not prepared.dead


def test_a_group_that_comes_late_altogether_begins_with_a_revision() -> None:
    part = once_closed()
    feed(part, 2, 4, [(4, "z")], mark_s=15)

    assert rows_of(commit(part).results) == [(0, "z", 1, 1)]


def test_revisions_are_numbered_by_window() -> None:
    part = once_closed()
    feed(part, 2, 4, [(4, "x"), (25, "x")], mark_s=25)
    assert rows_of(commit(part).results) == [(0, "x", 3, 1), (10, "x", 1, 0)]

    feed(part, 3, 6, [(4, "y"), (14, "x")], mark_s=25)
    prepared = commit(part)

    assert rows_of(prepared.results) == [(0, "y", 2, 2), (10, "x", 2, 1)]
    assert prepared.progress[0].revisions == {0: 2, 10_000: 1}


def test_many_late_rows_make_one_revision() -> None:
    part = once_closed()
    for number in range(20):
        feed(part, 2 + number, 4 + number, [(4, "x")], mark_s=15)

    assert rows_of(commit(part).results) == [(0, "x", 22, 1)]


def test_a_row_beyond_the_lateness_is_dropped_and_named() -> None:
    part = once_closed()
    feed(part, 2, 4, [(45, "x")], mark_s=45)
    assert commit(part).progress[0].forgotten_ms == 20_000
    feed(part, 3, 5, [(19, "x"), (20, "x")], mark_s=45)

    prepared = commit(part)

    assert rows_of(prepared.results) == [(20, "x", 1, 1)]
    assert prepared.progress[0].ledger.late == 1
    (dead,) = map(json.loads, prepared.dead)
    assert (dead["reason"], dead["window_start"], dead["rows"]) == ("late", 10_000, 1)


def test_a_task_that_drops_forgets_what_it_closes() -> None:
    part = TaskInBucket(make_task(), OWNER, {}, SAVE_MS)
    feed(part, 1, 0, [(1, "x"), (15, "x")], mark_s=15)
    (record,) = commit(part).progress
    assert record.forgotten_ms == record.closed_ms == 10_000
    feed(part, 2, 2, [(1, "x")], mark_s=15)

    assert not part.waiting
    assert not commit(part).results


def test_what_an_older_release_has_closed_is_forgotten() -> None:
    rows = [(1, "x"), (15, "x")]
    part = TaskInBucket(make_task(), OWNER, {}, SAVE_MS)
    feed(part, 1, 0, rows, mark_s=15)
    (record,) = commit(part).progress

    new = TaskInBucket(make_task(), OWNER, {1: replace(record, forgotten_ms=None)}, SAVE_MS)
    read(new, make_head(1, {P0: 2}, 15), make_entry(1, 0, rows))
    feed(new, 2, 2, [(1, "x")], mark_s=15)

    prepared = commit(new)
    assert not prepared.results
    assert prepared.progress[0].ledger.late == 1
    assert prepared.progress[0].forgotten_ms == 10_000


def test_windows_are_needed_until_they_are_forgotten() -> None:
    part = once_closed()
    assert part.records[1].needed == {P0: 0}
    feed(part, 2, 4, [(29, "x")], mark_s=29)
    assert commit(part).progress[0].needed == {P0: 0}
    assert part.upkeep.trim() == ()

    feed(part, 3, 5, [(30, "x")], mark_s=30)
    (record,) = commit(part).progress
    assert (record.closed_ms, record.forgotten_ms) == (30_000, 10_000)
    assert record.needed == {P0: 0}, "the batch has a row of second 15, too"

    feed(part, 4, 6, [(45, "x")], mark_s=45)
    assert commit(part).progress[0].needed == {P0: 4}
    assert part.upkeep.trim() == (1,)


def test_what_is_forgotten_has_no_number_any_more() -> None:
    part = once_closed()
    feed(part, 2, 4, [(4, "x")], mark_s=15)
    assert commit(part).progress[0].revisions == {0: 1}
    feed(part, 3, 5, [(45, "x")], mark_s=45)

    assert commit(part).progress[0].revisions == {}


def test_a_late_row_revises_every_sliding_window_over_its_pane() -> None:
    part = begin(window=SLIDING)
    feed(part, 1, 0, [(1, "x"), (35, "x")], mark_s=35)
    assert rows_of(commit(part).results) == [(-10, "x", 1, 0), (0, "x", 1, 0)]
    feed(part, 2, 2, [(12, "x"), (25, "y")], mark_s=35)

    assert rows_of(commit(part).results) == [(0, "x", 2, 1), (10, "x", 1, 1), (10, "y", 1, 1)]

    feed(part, 3, 4, [(41, "x")], mark_s=41)
    assert rows_of(commit(part).results) == [(20, "x", 1, 0), (20, "y", 1, 0)]


def test_a_task_without_keys_has_one_group_to_revise() -> None:
    plan = replace(make_plan(**REVISE), keys=())
    plan = replace(plan, outputs=plan.outputs[1:])
    task = replace(make_task(**REVISE), plans={1: plan})
    part = TaskInBucket(task, OWNER, {}, SAVE_MS)
    for seq, first, rows in ((1, 0, [(1, "x"), (15, "x")]), (2, 2, [(4, "y")])):
        head = make_head(seq, {P0: first + len(rows)}, 15)
        read(part, head, make_entry(seq, first, rows, plan=plan))
        prepared = commit(part)

    (batch,) = prepared.results
    assert [json.loads(value)["n"] for value in batch.values] == [2]


# -------------------------------------------------------------------------------------- HAVING


def fewer_than(most: int) -> Plan:
    """Groups with fewer rows than that."""
    count = Column("a0", ValueType.INT64)
    condition = Call(Function.LESS, (count, Literal(most, ValueType.INT64)), ValueType.BOOL)
    return replace(make_plan(**REVISE), having=condition)


def test_a_group_that_having_lets_pass_no_more_comes_again_marked_as_deleted() -> None:
    plan = fewer_than(3)
    part = TaskInBucket(replace(make_task(**REVISE), plans={1: plan}), OWNER, {}, SAVE_MS)
    read(part, make_head(1, {P0: 3}, 15), make_entry(1, 0, [(1, "x"), (2, "x"), (15, "y")]))
    assert rows_of(commit(part).results) == [(0, "x", 2, 0)]
    read(part, make_head(2, {P0: 5}, 15), make_entry(2, 3, [(3, "x"), (4, "y")]))

    results = commit(part).results

    assert rows_of(results) == [(0, "y", 1, 1), (0, "x", 3, 1)]
    assert [dict(batch.headers).get("mars-deleted") for batch in results] == [None, b"1"]


# ------------------------------------------------------------------------- those who come after


def successor(part: TaskInBucket) -> TaskInBucket:
    """A new owner, who knows the records alone."""
    return begin(*part.records.values())


def test_a_successor_goes_on_with_the_numbers_and_emits_no_revision_again() -> None:
    part = once_closed()
    feed(part, 2, 4, [(4, "x")], mark_s=15)
    commit(part)
    entries = (
        make_entry(1, 0, [(1, "x"), (2, "x"), (3, "y"), (15, "x")]),
        make_entry(2, 4, [(4, "x")]),
    )

    new = successor(part)
    read(new, make_head(2, {P0: 5}, 15), *entries)
    assert not new.waiting
    assert not new.prepare().results

    feed(new, 3, 5, [(5, "x")], mark_s=15)
    assert rows_of(commit(new).results) == [(0, "x", 4, 2)]


def test_the_merged_log_has_the_closed_windows_that_are_kept() -> None:
    part = once_closed()
    (base,) = part.upkeep.bases()
    assert [pane.start_ms for pane in base.partial.panes] == [0, 10_000]

    new = successor(part)
    read(new, make_head(1, {P0: 4}, 15), base=base)
    feed(new, 2, 4, [(4, "y")], mark_s=15)
    assert rows_of(commit(new).results) == [(0, "y", 2, 1)]


def test_before_all_is_read_again_revisions_are_owed_and_then_show_every_row() -> None:
    record = make_progress({P0: 2, P1: 1}, needed={P0: 0, P1: 0}, closed_ms=10_000, forgotten_ms=0)
    part = begin(record)
    again = make_entry(1, 0, [(1, "x"), (2, "x")])
    read(part, make_head(2, {P0: 3, P1: 0}, 15), again, make_entry(2, 2, [(3, "x")]))
    assert not part.position.caught_up
    prepared = commit(part)
    assert not prepared.results
    (owing,) = prepared.progress
    assert (owing.owed, owing.merged, owing.revisions) == ((0,), {P0: 3, P1: 1}, {})

    new = successor(part)
    read(
        new,
        make_head(3, {P0: 3, P1: 1}, 45),
        make_entry(1, 0, [(1, "x"), (2, "x"), (3, "x")]),
        make_entry(2, 0, [(1, "y")], lane=P1),
    )
    assert new.due(waited=True) is not None
    prepared = commit(new)

    assert rows_of(prepared.results) == [(0, "x", 3, 1), (0, "y", 1, 1)]
    (record,) = prepared.progress
    assert (record.owed, record.forgotten_ms) == ((), 20_000)


def test_one_commit_revises_only_so_many_windows_and_owes_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = begin(lateness_ms=100_000)
    feed(part, 1, 0, [*((second, "x") for second in range(0, 50, 10)), (55, "x")], mark_s=55)
    commit(part)
    late = [(second, "x") for second in range(0, 50, 10)]
    feed(part, 2, 6, [*late, (155, "x")], mark_s=155)
    monkeypatch.setattr(turns, "WINDOWS_AT_ONCE", 2)

    first = commit(part)
    assert [row[0] for row in rows_of(first.results)] == [0, 10, 50], "and one that closes"
    (record,) = first.progress
    assert record.owed == (20_000, 30_000, 40_000)
    assert record.forgotten_ms == 20_000, "not over what is owed"
    assert record.revisions == {}

    assert part.due() is None
    assert part.due(waited=True) is not None
    assert [row[0] for row in rows_of(commit(part).results)] == [20, 30]
    assert [row[0] for row in rows_of(commit(part).results)] == [40]
    assert part.records[1].owed == ()
    assert part.records[1].forgotten_ms == 50_000


def test_a_row_that_comes_while_its_window_is_owed_does_not_narrow_the_revision() -> None:
    counted = Ledger(read=3, counted=3, emitted=2)
    record = make_progress({P0: 3}, closed_ms=10_000, forgotten_ms=0, owed=(0,), ledger=counted)
    part = begin(record)
    again = make_entry(1, 0, [(1, "x"), (2, "y"), (15, "x")])
    read(part, make_head(2, {P0: 4}, 15), again, make_entry(2, 3, [(3, "x")]))

    assert rows_of(commit(part).results) == [(0, "x", 2, 1), (0, "y", 1, 1)]


def test_revisions_owed_at_the_end_of_a_version_are_emitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "WINDOWS_AT_ONCE", 1)
    part = begin(lateness_ms=100_000)
    feed(part, 1, 0, [(1, "x")], mark_s=10)
    commit(part)
    feed(part, 2, 1, [(11, "x")], mark_s=20)
    commit(part)
    feed(part, 3, 2, [(2, "x"), (12, "x")], mark_s=20)
    part.update(make_task(make_version(1), make_version(2, {P0: 4}), **REVISE))
    part.drained(make_head(3, {P0: 4}, 20, version=2))

    assert rows_of(commit(part).results) == [(0, "x", 2, 1)]
    assert part.records[1].owed == (10_000,)
    assert part.records[1].ledger.open == 0, "owed revisions are all that is left of the version"
    assert rows_of(commit(part).results) == [(10, "x", 2, 1)]


def test_an_older_version_forgets_its_windows_once_all_its_rows_are_accounted() -> None:
    versions = (make_version(1), make_version(2, {P0: 2}))
    task = make_task(*versions, **REVISE)
    part = TaskInBucket(task, OWNER, {}, SAVE_MS)
    first = make_entry(1, 0, [(1, "x"), (2, "x")], plan=task.plans[1])
    second = make_entry(2, 2, [(15, "x")], plan=task.plans[2])
    read(part, make_head(2, {P0: 3}, 15, version=2), first, second)

    older, newer = commit(part).progress

    assert (older.version, older.closed_ms, older.forgotten_ms) == (1, 10_000, 10_000)
    assert older.needed == {P0: 3}
    assert (newer.closed_ms, newer.forgotten_ms) == (10_000, -10_000)
    assert [record.version for record in part.prepare().progress] == [2]


# -------------------------------------------------------------------------------- on the whole

LANES = (Lane("0"), Lane("1"))


def emitted(world: World) -> dict[tuple[int, str], list[tuple[int, int]]]:
    """Revision and count of each group, in the order in which they were committed."""
    found: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for partition in world.broker.topics[Topic(f"mars.results.{NAME}")].partitions:
        for record in partition.committed(0, partition.stable_end):
            row = json.loads(record.value or b"")
            place = (row["window_start"] // 1000, row["k"])
            revision = int(dict(record.headers)["mars-revision"])
            found.setdefault(place, []).append((revision, row["n"]))
    return found


def world_with_a_closed_window(**limits: int) -> tuple[World, Reducer]:
    world = World(make_task(**REVISE), **limits)
    world.assign(dict.fromkeys(range(BUCKETS), "r1"))
    reducer = Reducer(world, "r1")
    for lane in LANES:
        world.append(NAME, lane, 0, [(1, "x"), (2, "y"), (15, "x")])
    reducer.run(2)
    assert emitted(world) == {(0, "x"): [(0, 2)], (0, "y"): [(0, 2)]}
    return world, reducer


def test_late_rows_wait_for_others_before_a_revision_is_committed() -> None:
    world, reducer = world_with_a_closed_window()
    for number in range(8):
        world.append(NAME, "0", 3 + number, [(3, "x")])
        reducer.run(1, elapsed_ms=GATHERING_MS // 10)
    assert emitted(world)[0, "x"] == [(0, 2)]

    reducer.run(3, elapsed_ms=GATHERING_MS // 10)
    assert emitted(world)[0, "x"] == [(0, 2), (1, 10)]
    reducer.run(20, elapsed_ms=GATHERING_MS)
    assert emitted(world) == {(0, "x"): [(0, 2), (1, 10)], (0, "y"): [(0, 2)]}


def test_a_lost_store_brings_the_kept_windows_back_and_no_revision_again() -> None:
    world, reducer = world_with_a_closed_window()
    world.append(NAME, "0", 3, [(3, "x")])
    reducer.run(3, elapsed_ms=GATHERING_MS)
    made: list[Reducer] = []
    owners = dict.fromkeys(range(BUCKETS), "r2")
    world.lose_store(owners, also=lambda: made.append(Reducer(world, "r2")))
    cuts = world.start_of(world.tasks[NAME]).cuts
    assert cuts == {Lane("0"): (3, 4), Lane("1"): (3,)}
    for lane in LANES:
        world.append(NAME, lane, 0, [(1, "x"), (2, "y"), (15, "x")])
    made[0].run(3, elapsed_ms=GATHERING_MS)
    world.append(NAME, "0", 3, [(3, "x")])
    made[0].run(3, elapsed_ms=GATHERING_MS)
    assert emitted(world) == {(0, "x"): [(0, 2), (1, 3)], (0, "y"): [(0, 2)]}

    world.append(NAME, "1", 3, [(3, "x"), (4, "y")])
    made[0].run(3, elapsed_ms=GATHERING_MS)
    assert emitted(world)[0, "x"] == [(0, 2), (1, 3), (2, 4)]
    assert emitted(world)[0, "y"][-1][1] == 3


def test_kept_windows_are_saved_with_the_open_ones() -> None:
    world, reducer = world_with_a_closed_window(snapshot_every_ms=1_000)
    for number in range(4):
        for lane in LANES:
            world.append(NAME, lane, 3 + number, [(15, "x")])
        reducer.run(5, elapsed_ms=300)
    records = [record for record in world.newest() if record.snapshot is not None]
    assert records, "panes were open for long"
    assert all(record.needed[lane] >= 3 for record in records for lane in LANES)

    made: list[Reducer] = []
    owners = dict.fromkeys(range(BUCKETS), "r2")
    world.lose_store(owners, also=lambda: made.append(Reducer(world, "r2")))
    head = world.store.head([NAME])[NAME]
    assert head is not None
    for lane in LANES:
        rows = [(1, "x"), (2, "y"), (15, "x"), *[(15, "x")] * 4]
        stops = sorted({*world.start_of(world.tasks[NAME]).cuts[lane], len(rows)})
        first = head.offsets[lane]
        for stop in stops:
            if first < stop:
                world.append(NAME, lane, first, rows[first:stop])
                first = stop
    world.append(NAME, "0", 7, [(3, "x"), (3, "y")])
    made[0].run(6, elapsed_ms=GATHERING_MS)

    assert emitted(world)[0, "x"] == [(0, 2), (1, 3)]
    assert emitted(world)[0, "y"][-1][1] == 3
