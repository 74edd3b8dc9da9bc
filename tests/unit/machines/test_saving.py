"""Windows that are open for long: their panes are saved in Kafka, and a lost store gets them back.

lane   0 ............ S ............ M        window of an hour, saved every second
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mars.adapters.kafka.wire import state_key
from mars.core.definitions import TaskState
from mars.core.plan import WatermarkScope
from mars.core.types import AssignmentEpoch, Bucket, Lane, StoreEpoch, Topic
from mars.core.windows import Sliding, WindowShape
from mars.protocol.ports import Ledger, Progress, Snapshot
from mars.protocol.reducer.events import TasksChanged
from mars.protocol.reducer.snapshots import needed_with
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.reducer.version import Ownership
from tests.unit.machines.reducing_rows import (
    NAME,
    OWNER,
    P0,
    P1,
    RowSpec,
    make_entry,
    make_head,
    make_progress,
    make_slice,
    make_task,
)
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World, counted

HOUR_S = 3_600
HOUR = Sliding(HOUR_S * 1000, HOUR_S * 1000)
STATE = Topic("mars.state")
EVERY_MS = 1_000
TO_FIRST = dict.fromkeys(range(BUCKETS), "r1")
TO_SECOND = dict.fromkeys(range(BUCKETS), "r2")
KEYS = 7
NEXT_OWNER = Ownership(OWNER.bucket, AssignmentEpoch(2), StoreEpoch(2))
"""Who claims the bucket after the store was lost."""


def rows(first: int, count: int) -> list[RowSpec]:
    """A row a second, in the first hour."""
    return [(second, f"k{second % KEYS}") for second in range(first, first + count)]


def world(window: WindowShape = HOUR, every_ms: int = EVERY_MS) -> World:
    here = World(make_task(window=window), snapshot_every_ms=every_ms)
    here.assign(TO_FIRST)
    return here


def feed(here: World, first: int, count: int) -> None:
    for lane in ("0", "1"):
        here.append(NAME, lane, first, rows(first, count))


def run(here: World, reducer: Reducer, seconds: int, first: int = 0) -> int:
    """A batch of two rows a lane and second; the next offset."""
    for _ in range(seconds):
        feed(here, first, 2)
        first += 2
        reducer.run(10, elapsed_ms=100)
    return first


def end_of_hour(here: World, reducer: Reducer, first: int) -> None:
    """Rows of the next hour close the first one."""
    for lane in ("0", "1"):
        here.append(NAME, lane, first, [(HOUR_S + 1, "next")])
    reducer.run(15)


def newest(here: World) -> list[Progress]:
    """Of each bucket."""
    found = here.newest()
    assert len(found) == BUCKETS
    return found


def wanted(fed: int) -> dict[tuple[int, str], int]:
    return counted([*rows(0, fed), *rows(0, fed)], HOUR_S, HOUR_S)


def recover(here: World, owner: str) -> tuple[Reducer, dict[Lane, int]]:
    """Lose the store; the reducer that goes on, and the offsets at which mappers do."""
    made: list[Reducer] = []
    owners = dict.fromkeys(range(BUCKETS), owner)
    here.lose_store(owners, also=lambda: made.append(Reducer(here, owner)))
    head = here.store.head([NAME])[NAME]
    assert head is not None
    return made[0], dict(head.offsets)


def replay(here: World, offsets: dict[Lane, int], fed: int) -> None:
    """What mappers read again, in batches that no cut lies in."""
    cuts = here.start_of(here.tasks[NAME]).cuts
    for lane, first in offsets.items():
        stops = sorted({*(cut for cut in cuts[lane] if first < cut < fed), fed})
        for start, end in zip([first, *stops], stops, strict=False):
            if start < end:
                here.append(NAME, lane, start, rows(start, end - start))


# ------------------------------------------------------------------------------------- saving


def test_a_window_open_for_long_moves_the_offsets_from_which_a_lost_store_is_read_again() -> None:
    here = world()
    fed = run(here, Reducer(here, "r1"), 6)

    for record in newest(here):
        assert record.snapshot is not None
        assert record.needed == record.snapshot.merged
        assert fed - 6 <= record.needed[Lane("0")] <= record.merged[Lane("0")] <= fed


def test_windows_that_close_in_time_are_never_saved() -> None:
    here = world(Sliding(2_000, 2_000), every_ms=5_000)
    run(here, Reducer(here, "r1"), 20)
    assert len(named(here)) <= 1, "only the row of the next hour is open"
    assert not any(log.records for log in here.broker.topics[STATE].partitions)


def test_what_is_saved_is_merged_in_the_store_too() -> None:
    here = world()
    run(here, Reducer(here, "r1"), 10)
    stored = here.store.snapshot().tasks[NAME]
    assert len(stored.bases) == BUCKETS
    assert all(len(log) <= 2 for log in stored.logs.values())


def test_a_snapshot_goes_when_its_windows_are_closed() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    fed = run(here, reducer, 5)
    assert set(parts_left(here)) == named(here)
    assert len(named(here)) == BUCKETS

    end_of_hour(here, reducer, fed)

    assert set(parts_left(here)) == named(here)
    assert len(named(here)) <= 1, "only the row of the next hour is open"


def test_a_snapshot_goes_with_its_task() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    run(here, reducer, 5)
    assert any(parts_left(here))

    here.tasks = {NAME: make_task(window=HOUR, state=TaskState.DELETED)}
    reducer.feed(TasksChanged(here.tasks))
    reducer.run(15)

    assert all(record.deleted for record in newest(here))
    assert not any(parts_left(here))


def open_for_long() -> TaskInBucket:
    """A bucket with panes that are open for so long that they are to be saved."""
    part = TaskInBucket(make_task(window=HOUR), OWNER, {}, EVERY_MS)
    part.absorb(make_slice(make_entry(1, 0, rows(0, 4))))
    part.drained(make_head(1, {P0: 4}, mark_s=4))
    assert not part.snapshot_due(0)
    assert part.snapshot_due(EVERY_MS)
    return part


def commit(part: TaskInBucket) -> tuple[Progress, bool]:
    """Prepare and take it as durable; the record, and whether parts of a snapshot came with it."""
    prepared = part.prepare()
    (record,) = prepared.progress
    part.committed(record)
    return record, bool(prepared.snapshots)


def test_a_snapshot_holds_all_that_its_record_accounts_for() -> None:
    record, written = commit(open_for_long())

    assert written
    assert record.snapshot is not None
    assert record.snapshot.merged == record.merged == record.needed == {P0: 4}


def test_later_records_name_the_snapshot_for_as_long_as_its_panes_are_open() -> None:
    part = open_for_long()
    first, _written = commit(part)
    part.absorb(make_slice(make_entry(2, 4, rows(4, 2))))
    part.drained(make_head(2, {P0: 6}, mark_s=6))

    later, written = commit(part)

    assert not written
    assert later.snapshot == first.snapshot
    assert (later.merged, later.needed) == ({P0: 6}, {P0: 4})


def test_no_record_names_a_snapshot_none_of_whose_panes_is_open() -> None:
    part = open_for_long()
    first, _written = commit(part)
    part.drained(make_head(1, {P0: 4}, mark_s=HOUR_S))

    prepared = part.prepare()

    assert first.snapshot is not None
    assert [record.snapshot for record in prepared.progress] == [None]
    assert [(one.parts, one.replaced) for one in prepared.snapshots] == [((), first.snapshot.parts)]


def test_a_snapshot_takes_the_place_of_the_one_before_it() -> None:
    part = open_for_long()
    first, _written = commit(part)
    part.absorb(make_slice(make_entry(2, 4, rows(4, 2))))
    part.drained(make_head(2, {P0: 6}, mark_s=6))
    assert part.snapshot_due(2 * EVERY_MS)

    prepared = part.prepare()

    (record,), (parts,) = prepared.progress, prepared.snapshots
    assert first.snapshot is not None
    assert record.snapshot is not None
    assert record.snapshot.merged == record.needed == {P0: 6}
    assert parts.replaced == first.snapshot.parts


def test_a_snapshot_that_is_gone_is_named_no_more_though_rows_in_it_are_read_again() -> None:
    """Another bucket needs them: to this one they are part of what it lost."""
    snapshot = Snapshot(merged={P0: 4}, until_ms=HOUR_S * 1000, parts=3, checksum=0)
    ledger = Ledger(read=6, counted=6)
    record = make_progress({P0: 6}, needed={P0: 4}, snapshot=snapshot, ledger=ledger)
    part = TaskInBucket(make_task(window=HOUR), NEXT_OWNER, {1: record}, EVERY_MS)
    assert part.restoring.wanted == (record,)
    part.restored([], [1])
    part.absorb(make_slice(make_entry(1, 2, rows(2, 4))))
    part.drained(make_head(1, {P0: 6}, mark_s=6, epoch=NEXT_OWNER.store_epoch))

    prepared = part.prepare()

    assert [record.snapshot for record in prepared.progress] == [None]
    assert [(one.parts, one.replaced) for one in prepared.snapshots] == [((), snapshot.parts)]


def test_a_lost_store_is_read_again_from_the_snapshot_on_or_from_later_open_panes_on() -> None:
    snapshot = Snapshot(merged={P0: 4, P1: 4}, until_ms=HOUR_S * 1000, parts=1, checksum=0)

    assert needed_with(snapshot, {P0: 1, P1: 6}) == {P0: 4, P1: 6}
    assert needed_with(None, {P0: 1, P1: 6}) == {P0: 1, P1: 6}


def named(here: World) -> set[bytes]:
    """Keys of the parts that the records name."""
    return {
        state_key(record.task, record.version, record.bucket, number)
        for record in newest(here)
        if record.snapshot is not None
        for number in range(record.snapshot.parts)
    }


def parts_left(here: World) -> Iterator[bytes]:
    """Keys of parts that compaction would leave."""
    for log in here.broker.topics[STATE].partitions:
        newest = {one.key: one.value for one in log.committed(0, log.stable_end)}
        yield from (key for key, value in newest.items() if value is not None and key is not None)


# ---------------------------------------------------------------------------------- restoring


def test_a_lost_store_gets_the_panes_back_and_only_newer_rows_are_read_again() -> None:
    here = world()
    fed = run(here, Reducer(here, "r1"), 6)
    saved = min(record.needed[Lane("0")] for record in newest(here))

    second, offsets = recover(here, "r2")
    assert offsets == {Lane("0"): saved, Lane("1"): saved}
    replay(here, offsets, fed)
    second.run(5)
    end_of_hour(here, second, fed)

    assert here.emitted(NAME) == wanted(fed)
    assert sum(record.ledger.read for record in newest(here)) == 2 * (fed + 1)


def test_buckets_with_newer_snapshots_pass_over_what_others_have_read_again() -> None:
    here = world()
    here.assign({0: "r1", 1: "other", 2: "other"})
    first = Reducer(here, "r1")
    other = Reducer(here, "other")
    fed = 0
    for second in range(8):
        feed(here, fed, 2)
        fed += 2
        first.run(10, elapsed_ms=100)
        if second < 3:
            other.run(10, elapsed_ms=1)
    lows = {record.bucket: record.needed[Lane("0")] for record in newest(here)}
    assert lows[Bucket(0)] > min(lows.values()), "the buckets do not differ: the test shows nothing"

    made, offsets = recover(here, "r3")
    replay(here, offsets, fed)
    made.run(5)
    end_of_hour(here, made, fed)

    assert here.emitted(NAME) == wanted(fed)


def test_what_saved_panes_hold_already_leaves_a_log_that_fills_before_all_is_read_again() -> None:
    here = world()
    here.assign({0: "r1", 1: "other", 2: "other"})
    first = Reducer(here, "r1")
    other = Reducer(here, "other")
    fed = 0
    for second in range(8):
        feed(here, fed, 2)
        fed += 2
        first.run(10, elapsed_ms=100)
        if second < 3:
            other.run(10, elapsed_ms=1)
    (saved,) = (record.snapshot for record in newest(here) if record.bucket == 0)
    assert saved is not None

    here.limits = replace(here.limits, log_bytes_max=1, snapshot_every_ms=10**9)
    made, offsets = recover(here, "r3")
    lane, until = Lane("0"), saved.merged[Lane("0")]
    assert offsets[lane] < until, "nothing is read again that is saved: the test shows nothing"
    for at in range(offsets[lane], until):
        here.append(NAME, lane, at, rows(at, 1))
        made.run(3)

    assert not here.store.snapshot().tasks[NAME].logs.get(Bucket(0))


def test_an_owner_that_dies_after_it_has_put_panes_back_leaves_nothing_undone() -> None:
    here = world()
    fed = run(here, Reducer(here, "r1"), 6)
    second, offsets = recover(here, "r2")
    second.run(1)

    here.assign(TO_FIRST)
    third = Reducer(here, "r1")
    replay(here, offsets, fed)
    third.run(5)
    end_of_hour(here, third, fed)

    assert here.emitted(NAME) == wanted(fed)


def test_an_owner_that_follows_in_the_same_store_does_not_read_the_snapshot() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    fed = run(here, reducer, 6)
    for log in here.broker.topics[STATE].partitions:
        log.truncate(log.end)

    here.assign(TO_SECOND)
    second = Reducer(here, "r2")
    second.run(5)
    end_of_hour(here, second, fed)

    assert here.emitted(NAME) == wanted(fed)
    assert "snapshot_lost" not in second.reports


def test_nothing_closes_before_the_panes_are_back() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    fed = run(here, reducer, 6)
    second, offsets = recover(here, "r2")
    replay(here, offsets, fed)
    second.store.fail_next("put_base")
    for lane in ("0", "1"):
        here.append(NAME, lane, fed, [(HOUR_S + 1, "next")])

    second.run(15)

    assert here.emitted(NAME) == wanted(fed)


def test_a_store_is_lost_again_before_the_panes_are_back() -> None:
    here = world()
    fed = run(here, Reducer(here, "r1"), 6)
    recover(here, "r2")
    third, offsets = recover(here, "r3")
    replay(here, offsets, fed)
    third.run(5)
    end_of_hour(here, third, fed)

    assert here.emitted(NAME) == wanted(fed)


def test_a_task_begun_anew_after_its_panes_were_put_back_is_not_read_without_them() -> None:
    here = world()
    fed = run(here, Reducer(here, "r1"), 6)
    second, offsets = recover(here, "r2")
    second.run(1)
    assert here.store.snapshot().tasks[NAME].bases, "nothing was put back: the test shows nothing"

    here.store.flush()
    here.store.initialise(NAME, here.store_epoch, here.start_of(here.tasks[NAME]))
    replay(here, offsets, fed)
    end_of_hour(here, second, fed)

    assert "store_went_back" in second.reports
    assert here.emitted(NAME) == {}


@pytest.mark.parametrize("rounds", [1, 5], ids=["put back", "and a record that says so"])
def test_a_replica_that_lacks_what_was_put_back_is_not_read_without_it(rounds: int) -> None:
    """Neither by who put it back, nor by who claims the bucket and has seen no other server."""
    here = world()
    fed = run(here, Reducer(here, "r1"), 6)
    second, offsets = recover(here, "r2")
    replay(here, offsets, fed)
    lacking = here.store.snapshot()
    second.run(rounds, elapsed_ms=3_000)
    assert here.store.snapshot().tasks[NAME].bases, "nothing was put back: the test shows nothing"

    here.store.restart(lacking)
    here.assign(TO_FIRST)
    third = Reducer(here, "r1")
    end_of_hour(here, third, fed)
    second.run(1)

    assert "store_went_back" in third.reports
    assert here.emitted(NAME) == {}


def test_a_snapshot_that_is_gone_is_reported_and_its_windows_are_incomplete() -> None:
    here = world()
    fed = run(here, Reducer(here, "r1"), 6)
    for log in here.broker.topics[STATE].partitions:
        log.truncate(log.end)

    second, offsets = recover(here, "r2")
    replay(here, offsets, fed)
    fed = run(here, second, 4, fed)
    end_of_hour(here, second, fed)

    assert second.reports.count("snapshot_lost") == BUCKETS
    headers = [
        dict(record.headers)["mars-complete"]
        for log in here.broker.topics[Topic(f"mars.results.{NAME}")].partitions
        for record in log.committed(0, log.stable_end)
    ]
    assert headers
    assert set(headers) == {b"0"}


def test_a_task_that_closes_key_by_key_fails_without_its_snapshot() -> None:
    task = make_task(window=HOUR, watermark=WatermarkScope.KEY, key_lag_ms=60_000)
    here = World(task, snapshot_every_ms=EVERY_MS)
    here.assign(TO_FIRST)
    fed = run(here, Reducer(here, "r1"), 6)
    for log in here.broker.topics[STATE].partitions:
        log.truncate(log.end)

    second, offsets = recover(here, "r2")
    replay(here, offsets, fed)
    second.run(5)

    assert "cannot be known any more" in second.failed[NAME]
