"""What reducers do with a log: look, read, trim, compact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.adapters.memory import partial_log as memory_log
from mars.adapters.redis import looking
from mars.adapters.redis.log import TRIM_SEQS_TOGETHER_MAX
from mars.adapters.redis.scripts import CALLS_AT_ONCE_MAX
from mars.adapters.store import LOOK_ENTRIES_MAX, content_of
from mars.core.types import Bucket, Entry, Sequence64, StoreEpoch, TaskName
from mars.protocol.ports import LogSlice, LogTrim, PartialLog, ReadRequest, TaskLook
from tests.contracts.batches import (
    BUCKETS,
    EPOCH,
    LANE,
    OTHER_LANE,
    OTHER_TASK,
    TASK,
    base,
    batch,
    born,
    entries,
    head_of,
    server_of,
    start,
    take_base,
)
from tests.contracts.redis_servers import Store

ALL = Sequence64(1_000)
NOTHING_YET = Sequence64(0)
BUCKET = Bucket(0)


def seqs(found: list[Entry]) -> list[int]:
    return [entry.seq for entry in found]


def fill(log: PartialLog, batches: int, buckets: tuple[int, ...] = (0, 1)) -> None:
    """Entries 1 .. `batches`, ten rows each."""
    for number in range(batches):
        log.append(TASK, EPOCH, 1, batch(number * 10, number * 10 + 10, buckets=buckets))


# ------------------------------------------------------------------------------------- head


def test_head_tells_all_of_a_task_that_has_begun(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start({LANE: 5, OTHER_LANE: 6}, version=3, active=False))
    head = head_of(log)
    assert (head.epoch, head.version, head.active) == (EPOCH, 3, False)
    assert head.offsets == {LANE: 5, OTHER_LANE: 6}
    assert (head.marks_ms, head.idle) == ({}, frozenset())
    assert (head.seq, head.log_bytes) == (0, 0)
    assert head.now_ms > 0


def test_heads_of_many_tasks_come_at_once_and_none_for_unknown_ones(log: PartialLog) -> None:
    names = [TaskName(f"task_{number}") for number in range(20)]
    for number, name in enumerate(names):
        log.initialise(name, StoreEpoch(number + 1), start())
    heads = log.head([*names, OTHER_TASK])
    assert heads.pop(OTHER_TASK) is None
    assert [head and head.epoch for head in heads.values()] == list(range(1, 21))
    assert list(heads) == names


def test_head_of_no_tasks_is_empty(log: PartialLog) -> None:
    assert log.head([]) == {}


# ------------------------------------------------------------------------------------- look


def looked(log: PartialLog, **after: int) -> TaskLook:
    """A look at the task that follows buckets `b0`, `b1` ... from those numbers on."""
    logs = {Bucket(int(name[1:])): Sequence64(seq) for name, seq in after.items()}
    look = log.look({TASK: logs}, ())[TASK]
    assert look is not None
    return look


def test_a_look_brings_what_is_new_in_the_logs_that_are_followed(log: PartialLog) -> None:
    fill(log, 4)
    log.append(TASK, EPOCH, 1, batch(40, 50, buckets=(0,)))
    look = looked(log, b0=1, b1=2, b2=4)
    assert look.head == replace(head_of(log), now_ms=look.head.now_ms)
    for bucket, after in ((0, 1), (1, 2), (2, 4)):
        request = ReadRequest(TASK, Bucket(bucket), Sequence64(after), look.head.seq)
        assert look.slices[Bucket(bucket)] == log.read_many([request])[0]


def test_a_look_brings_nothing_of_a_log_in_which_nothing_is_new(log: PartialLog) -> None:
    fill(log, 4)
    assert looked(log).slices == {}
    assert list(looked(log, b0=4, b1=3).slices) == [1]


def test_a_look_at_tasks_that_are_not_there_says_so(log: PartialLog) -> None:
    assert log.look({OTHER_TASK: {BUCKET: Sequence64(1)}}, ()) == {OTHER_TASK: None}
    assert log.look({}, ()) == {}


def test_looks_at_many_tasks_are_told_apart(log: PartialLog) -> None:
    names = [TaskName(f"task_{number}") for number in range(CALLS_AT_ONCE_MAX + 2)]
    for number, name in enumerate(names):
        log.initialise(name, EPOCH, start())
        log.append(name, EPOCH, 1, batch(0, 5, buckets=(0,)))
        log.append(name, EPOCH, 1, batch(5, 6 + number, buckets=(0,)))
    looks = log.look({name: {BUCKET: Sequence64(1)} for name in names}, ())
    assert list(looks) == names
    ends = [one.slices[BUCKET].entries[0].ranges[0].next for one in looks.values() if one]
    assert ends == [number + 6 for number in range(len(names))]


def test_a_look_leaves_out_a_log_of_which_more_has_come_than_it_brings(log: PartialLog) -> None:
    fill(log, LOOK_ENTRIES_MAX + 2)
    assert list(looked(log, b0=1, b1=2).slices) == [1]


def test_a_look_leaves_out_what_does_not_fit_in_its_bytes(
    log: PartialLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 3)
    (entry,) = entries(log, after=2)
    size = content_of(entry.version, entry.ranges, entry.partial)[2]
    for twin in (memory_log, looking):
        monkeypatch.setattr(twin, "LOOK_BYTES_MAX", 3 * size)
    assert list(looked(log, b0=1, b1=2).slices) == [0, 1]
    assert list(looked(log, b0=1, b1=1).slices) == [0]


def test_a_look_tells_how_many_entries_have_vanished(store: Store, log: PartialLog) -> None:
    fill(log, 4)
    assert looked(log, b0=3).slices[BUCKET].vanished == 0
    store.lose_entry(BUCKET, 2)
    assert looked(log, b0=3).slices[BUCKET].vanished == 1


# ------------------------------------------------------------------------------------- read


def test_read_gives_the_entries_between_two_numbers_in_order(log: PartialLog) -> None:
    fill(log, 12)
    assert seqs(entries(log)) == list(range(1, 13))
    assert seqs(entries(log, after=3, upto=10)) == [4, 5, 6, 7, 8, 9, 10]
    assert seqs(entries(log, after=12)) == []
    assert seqs(entries(log, after=7, upto=7)) == []


def test_read_of_a_task_or_bucket_without_entries_is_empty(log: PartialLog) -> None:
    for task, bucket in ((TASK, Bucket(3)), (OTHER_TASK, BUCKET)):
        found = log.read(task, bucket, NOTHING_YET, ALL)
        assert replace(found, run_id="") == LogSlice(None, ())


def test_looks_and_reads_name_the_life_of_the_server(log: PartialLog) -> None:
    fill(log, 2)
    run_id = server_of(log)
    head = log.head([TASK])[TASK]
    assert head is not None
    assert head.run_id == run_id
    assert log.read(TASK, BUCKET, NOTHING_YET, ALL).run_id == run_id
    assert log.read(TASK, BUCKET, Sequence64(1), ALL).run_id == run_id


def test_many_reads_are_answered_in_the_order_of_the_requests(log: PartialLog) -> None:
    fill(log, 3)
    log.initialise(OTHER_TASK, EPOCH, start())
    log.append(OTHER_TASK, EPOCH, 1, batch(0, 7, buckets=(1,)))
    log.compact(TASK, EPOCH, born(log), Bucket(1), base(2, bucket=1))
    slices = log.read_many(
        [
            ReadRequest(TASK, BUCKET, Sequence64(2), ALL),
            ReadRequest(TASK, Bucket(1), NOTHING_YET, ALL),
            ReadRequest(OTHER_TASK, Bucket(1), NOTHING_YET, ALL),
            ReadRequest(TASK, BUCKET, Sequence64(1), Sequence64(2)),
            ReadRequest(OTHER_TASK, BUCKET, NOTHING_YET, ALL),
        ]
    )
    assert [seqs(list(one.entries)) for one in slices] == [[3], [3], [1], [2], []]
    assert [one.base and one.base.seq for one in slices] == [None, 2, None, None, None]
    assert log.read_many([]) == []


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_read_tells_how_many_entries_have_vanished_wherever_it_begins(
    store: Store, log: PartialLog, after: int
) -> None:
    fill(log, 4)
    assert log.read(TASK, BUCKET, Sequence64(after), ALL).vanished == 0
    store.lose_entry(BUCKET, 2)
    assert log.read(TASK, BUCKET, Sequence64(after), ALL).vanished == 1
    assert log.read(TASK, Bucket(1), Sequence64(after), ALL).vanished == 0
    store.lose_entry(BUCKET, 4)
    assert log.read(TASK, BUCKET, Sequence64(after), ALL).vanished == 2


def test_entries_that_were_trimmed_or_merged_have_not_vanished(
    store: Store, log: PartialLog
) -> None:
    fill(log, 4)
    log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(1)])
    store.lose_entry(BUCKET, 2)
    assert log.read(TASK, BUCKET, NOTHING_YET, ALL).vanished == 1
    log.compact(TASK, EPOCH, born(log), BUCKET, base(3))
    assert log.read(TASK, BUCKET, NOTHING_YET, ALL).vanished == 0
    assert log.read(TASK, BUCKET, Sequence64(3), ALL).vanished == 0


def test_a_base_hides_no_entry_that_has_vanished_above_it(store: Store, log: PartialLog) -> None:
    fill(log, 4)
    store.lose_entry(BUCKET, 4)
    log.compact(TASK, EPOCH, born(log), BUCKET, base(3))
    assert log.read(TASK, BUCKET, Sequence64(3), ALL).vanished == 1


def test_whole_logs_of_several_buckets_are_read_together(log: PartialLog) -> None:
    fill(log, 3)
    log.compact(TASK, EPOCH, born(log), Bucket(1), base(2, bucket=1))
    buckets = [Bucket(1), Bucket(2), BUCKET]
    one, empty, other = log.read_together(TASK, buckets, Sequence64(3))
    assert (one.base and one.base.seq, seqs(list(one.entries))) == (2, [3])
    assert (empty.base, empty.entries) == (None, ())
    assert (other.base, seqs(list(other.entries))) == (None, [1, 2, 3])
    assert other == log.read(TASK, BUCKET, NOTHING_YET, Sequence64(3))
    assert seqs(list(log.read_together(TASK, [BUCKET], Sequence64(2))[0].entries)) == [1, 2]
    assert log.read_together(TASK, [], ALL) == []
    assert log.read_together(OTHER_TASK, [BUCKET], ALL)[0].entries == ()


# ------------------------------------------------------------------------------------- trim


def test_trimmed_entries_are_gone_from_their_bucket_alone(log: PartialLog) -> None:
    fill(log, 4)
    assert log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(1), Sequence64(3)])
    assert seqs(entries(log, 0)) == [2, 4]
    assert seqs(entries(log, 1)) == [1, 2, 3, 4]


def test_log_bytes_return_to_zero_when_all_is_trimmed(log: PartialLog) -> None:
    fill(log, 4)
    full = head_of(log).log_bytes
    every = [Sequence64(seq) for seq in range(1, 5)]
    log.trim(TASK, EPOCH, born(log), BUCKET, every)
    assert head_of(log).log_bytes == full // 2
    log.trim(TASK, EPOCH, born(log), Bucket(1), every)
    assert head_of(log).log_bytes == 0


def test_trimming_again_or_nothing_changes_nothing(store: Store, log: PartialLog) -> None:
    fill(log, 3)
    log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(1)])
    before = store.dump()
    assert log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(1), Sequence64(99)])
    assert log.trim(TASK, EPOCH, born(log), BUCKET, [])
    assert store.dump() == before


def test_trim_of_another_epoch_is_refused(store: Store, log: PartialLog) -> None:
    fill(log, 3)
    before = store.dump()
    assert not log.trim(TASK, StoreEpoch(EPOCH - 1), born(log), BUCKET, [Sequence64(1)])
    assert not log.trim(TASK, StoreEpoch(EPOCH + 1), born(log), BUCKET, [])
    assert not log.trim(OTHER_TASK, EPOCH, born(log), BUCKET, [Sequence64(1)])
    assert store.dump() == before


def test_more_entries_than_one_script_takes_are_trimmed(log: PartialLog) -> None:
    fill(log, 5)
    assert log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(seq) for seq in range(1, 2_500)])
    assert entries(log) == []


def test_trims_that_go_together_are_those_of_each(store: Store, log: PartialLog) -> None:
    many = TRIM_SEQS_TOGETHER_MAX + 20
    fill(log, many)
    log.initialise(OTHER_TASK, EPOCH, start())
    log.append(OTHER_TASK, EPOCH, 1, batch(0, 7, buckets=(0,)))
    life = born(log)
    other = log.head([OTHER_TASK])[OTHER_TASK]
    assert other is not None
    log.trim_together(
        [
            LogTrim(TASK, EPOCH, life, BUCKET, list(map(Sequence64, range(1, many)))),
            LogTrim(TASK, EPOCH, life, Bucket(1), [Sequence64(1), Sequence64(3)]),
            LogTrim(TASK, EPOCH, "another life", Bucket(1), [Sequence64(2)]),
            LogTrim(OTHER_TASK, EPOCH, other.born, BUCKET, [Sequence64(1)]),
        ]
    )
    assert seqs(entries(log)) == [many]
    assert seqs(entries(log, 1))[:3] == [2, 4, 5]
    assert not log.read(OTHER_TASK, BUCKET, NOTHING_YET, ALL).entries

    before = store.dump()
    log.trim_together([])
    assert store.dump() == before


def test_numbers_go_on_after_everything_was_trimmed(log: PartialLog) -> None:
    fill(log, 3, buckets=(0,))
    log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(seq) for seq in (1, 2, 3)])
    log.append(TASK, EPOCH, 1, batch(30, 40))
    assert seqs(entries(log)) == [4]


# ---------------------------------------------------------------------------------- compact


def test_base_takes_the_place_of_the_entries_up_to_it(log: PartialLog) -> None:
    fill(log, 5)
    merged = base(3)
    assert log.compact(TASK, EPOCH, born(log), BUCKET, merged)
    fresh = log.read(TASK, BUCKET, NOTHING_YET, ALL)
    assert fresh.base == merged
    assert seqs(list(fresh.entries)) == [4, 5]
    assert seqs(entries(log, 1)) == [1, 2, 3, 4, 5]


def test_base_is_for_fresh_readers_only(log: PartialLog) -> None:
    fill(log, 5)
    log.compact(TASK, EPOCH, born(log), BUCKET, base(3))
    assert log.read(TASK, BUCKET, Sequence64(1), ALL).base is None
    assert seqs(entries(log, after=4)) == [5]


def test_newer_base_takes_the_place_of_the_older_one(log: PartialLog) -> None:
    fill(log, 5)
    log.compact(TASK, EPOCH, born(log), BUCKET, base(3))
    newer = base(4, size=50)
    assert log.compact(TASK, EPOCH, born(log), BUCKET, newer)
    fresh = log.read(TASK, BUCKET, NOTHING_YET, ALL)
    assert fresh.base == newer
    assert seqs(list(fresh.entries)) == [5]


def test_base_of_the_same_number_may_be_written_again_and_emptied(log: PartialLog) -> None:
    fill(log, 3)
    log.compact(TASK, EPOCH, born(log), BUCKET, base(3))
    full = head_of(log).log_bytes
    assert log.compact(TASK, EPOCH, born(log), BUCKET, base(3, size=0))
    assert head_of(log).log_bytes == full - 30


def test_base_below_the_present_one_is_refused(store: Store, log: PartialLog) -> None:
    fill(log, 5)
    log.compact(TASK, EPOCH, born(log), BUCKET, base(4))
    before = store.dump()
    assert not log.compact(TASK, EPOCH, born(log), BUCKET, base(3))
    assert store.dump() == before


def test_log_bytes_are_those_of_base_and_entries(log: PartialLog) -> None:
    fill(log, 1, buckets=(0,))
    one_entry = head_of(log).log_bytes
    for number in range(1, 4):
        log.append(TASK, EPOCH, 1, batch(number * 10, number * 10 + 10))
    log.compact(TASK, EPOCH, born(log), BUCKET, base(3))
    with_base = head_of(log).log_bytes
    assert take_base(log, BUCKET)
    assert head_of(log).log_bytes == one_entry
    assert with_base > one_entry
    assert log.read(TASK, BUCKET, NOTHING_YET, ALL).base is None
    assert take_base(log, BUCKET)
    assert head_of(log).log_bytes == one_entry


def test_compaction_of_another_epoch_is_refused(store: Store, log: PartialLog) -> None:
    fill(log, 3)
    log.compact(TASK, EPOCH, born(log), BUCKET, base(1))
    before = store.dump()
    for epoch in (StoreEpoch(EPOCH - 1), StoreEpoch(EPOCH + 1)):
        assert not log.compact(TASK, epoch, born(log), BUCKET, base(2))
        assert not take_base(log, BUCKET, epoch)
    assert not log.compact(OTHER_TASK, EPOCH, born(log), BUCKET, base(2))
    assert store.dump() == before


def test_compaction_makes_room_for_lanes_that_were_refused(store: Store) -> None:
    log = store.open(log_bytes_max=2_000)
    log.initialise(TASK, EPOCH, start({LANE: 0}))
    for number in range(BUCKETS):
        log.append(TASK, EPOCH, 1, batch(number * 10, number * 10 + 10, mark_ms=9, size=900))
    full = head_of(log).log_bytes
    log.compact(TASK, EPOCH, born(log), BUCKET, base(BUCKETS))
    assert head_of(log).log_bytes < 2_000 < full


def test_second_process_reads_what_the_first_wrote(store: Store, log: PartialLog) -> None:
    fill(log, 3)
    log.compact(TASK, EPOCH, born(log), BUCKET, base(2))
    fresh = store.open().read(TASK, BUCKET, NOTHING_YET, ALL)
    assert fresh.base == base(2)
    assert seqs(list(fresh.entries)) == [3]


# -------------------------------------------------------------------- bases of several versions


def test_bases_of_older_versions_are_read_with_the_newest_and_count_as_well(
    log: PartialLog,
) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    newest, older, oldest = (replace(base(1), version=number) for number in (3, 2, 1))
    log.compact(TASK, EPOCH, born(log), BUCKET, newest)
    alone = head_of(log).log_bytes

    assert log.compact(TASK, EPOCH, born(log), BUCKET, newest, (older, oldest))

    found = log.read(TASK, BUCKET, NOTHING_YET, ALL)
    assert (found.base, found.entries, found.older) == (newest, (), (older, oldest))
    assert log.read(TASK, BUCKET, Sequence64(1), ALL).older == ()
    assert head_of(log).log_bytes == 3 * alone


def test_bases_of_older_versions_go_with_the_next_base(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    log.append(TASK, EPOCH, 1, batch(10, 20))
    log.compact(TASK, EPOCH, born(log), BUCKET, base(1), (replace(base(1), version=0),))
    assert log.compact(TASK, EPOCH, born(log), BUCKET, base(2))
    found = log.read(TASK, BUCKET, NOTHING_YET, ALL)
    assert (found.base, found.older) == (base(2), ())

    log.compact(TASK, EPOCH, born(log), BUCKET, base(2), (replace(base(2), version=0),))
    assert take_base(log, BUCKET)
    assert log.read(TASK, BUCKET, NOTHING_YET, ALL).older == ()
    assert head_of(log).log_bytes == 0


# ------------------------------------------------------------------------------ saved panes


def test_panes_put_back_are_the_base_of_a_log_and_none_of_its_entries_goes(
    log: PartialLog,
) -> None:
    fill(log, 2, buckets=(0,))
    before = head_of(log).log_bytes
    newest, older = (replace(base(0), version=number) for number in (2, 1))

    assert log.put_base(TASK, EPOCH, born(log), BUCKET, (newest, older))

    found = log.read(TASK, BUCKET, NOTHING_YET, ALL)
    assert (found.base, found.older) == (newest, (older,))
    assert found.vanished == 0
    assert seqs(list(found.entries)) == [1, 2]
    added = head_of(log).log_bytes - before
    assert log.compact(TASK, EPOCH, born(log), BUCKET, base(2))
    assert head_of(log).log_bytes * 2 == added


def test_panes_put_back_are_read_where_no_entry_has_come_yet(log: PartialLog) -> None:
    assert log.put_base(TASK, EPOCH, born(log), BUCKET, (base(0),))
    assert log.read(TASK, BUCKET, NOTHING_YET, NOTHING_YET).base == base(0)
    assert log.read(TASK, Bucket(1), NOTHING_YET, NOTHING_YET).base is None


def test_panes_put_back_take_the_place_of_no_base(store: Store, log: PartialLog) -> None:
    fill(log, 3)
    log.compact(TASK, EPOCH, born(log), BUCKET, base(2))
    before = store.dump()
    assert log.put_base(TASK, EPOCH, born(log), BUCKET, (base(0),))
    assert store.dump() == before


def test_panes_put_back_in_another_epoch_are_refused(store: Store, log: PartialLog) -> None:
    fill(log, 1)
    before = store.dump()
    for epoch in (StoreEpoch(EPOCH - 1), StoreEpoch(EPOCH + 1)):
        assert not log.put_base(TASK, epoch, born(log), BUCKET, (base(0),))
    assert not log.put_base(OTHER_TASK, EPOCH, born(log), BUCKET, (base(0),))
    assert store.dump() == before
