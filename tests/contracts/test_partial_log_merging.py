"""What assistants do with a log: its owner clears it, and segments become single entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    PaneRows,
    Partial,
    Range,
    RowCounts,
    Sequence64,
    StoreEpoch,
)
from mars.engine.codec.states import encode_states, states_bytes
from mars.protocol.ports import Cleared, Clearing, PartialLog, ReadRequest
from tests.contracts.batches import (
    EPOCH,
    LANE,
    OTHER_TASK,
    TASK,
    base,
    batch,
    born,
    entries,
    server_of,
    start,
)
from tests.contracts.redis_servers import Store

BUCKET = Bucket(0)
OWNER = AssignmentEpoch(4)
ALL = Sequence64(1_000)
OPEN = Clearing(TASK, BUCKET, EPOCH, OWNER, True)
CLOSED = replace(OPEN, opens=False)


def fill(log: PartialLog, batches: int, first: int = 0) -> None:
    """Entries of ten rows each, in two buckets."""
    for number in range(first, first + batches):
        log.append(TASK, EPOCH, 1, batch(number * 10, number * 10 + 10, buckets=(0, 1)))


def of_several(*seqs: int, size: int = 30, bucket: int = 0, version: int = 1) -> Entry:
    """What stands for these entries."""
    panes = (PaneRows(60_000, 3 * len(seqs), {LANE: 0}),)
    merged = Partial(Bucket(bucket), RowCounts(counted=3 * len(seqs)), panes, b"m" * size)
    ranges = (Range(LANE, seqs[0] * 10 - 10, seqs[-1] * 10),)
    numbers = tuple(map(Sequence64, seqs))
    return Entry(numbers[-1], version, ranges, merged, merged=numbers)


def clear(log: PartialLog, *said: Clearing) -> None:
    log.look({TASK: {}}, said or [OPEN])


def merge(log: PartialLog, entry: Entry, run_id: str | None = None) -> bool:
    return log.merge(TASK, EPOCH, OWNER, entry, run_id or server_of(log))


def seqs(found: Sequence[Entry]) -> list[int]:
    return [entry.seq for entry in found]


def log_bytes(log: PartialLog) -> int:
    head = log.head([TASK])[TASK]
    assert head is not None
    return head.log_bytes


# ------------------------------------------------------------------------------------ clearing


def test_a_log_is_cleared_above_the_seq_of_the_look_that_says_so(log: PartialLog) -> None:
    fill(log, 3)
    assert log.cleared(TASK) == {}
    looks = log.look({TASK: {}, OTHER_TASK: {}}, [OPEN])
    look = looks[TASK]
    assert look is not None
    assert look.head.seq == 3
    assert looks[OTHER_TASK] is None
    assert log.cleared(TASK) == {BUCKET: Cleared(OWNER, Sequence64(3))}
    fill(log, 1, first=3)
    clear(log, CLOSED, replace(OPEN, bucket=Bucket(1)))
    assert log.cleared(TASK) == {
        BUCKET: Cleared(OWNER, None),
        Bucket(1): Cleared(OWNER, Sequence64(4)),
    }


def test_a_look_that_says_nothing_is_a_look(log: PartialLog) -> None:
    fill(log, 2)
    look = log.look({TASK: {}}, [])[TASK]
    assert look is not None
    assert look.head.seq == 2


def test_a_former_owner_says_nothing_any_more(store: Store, log: PartialLog) -> None:
    fill(log, 2)
    clear(log, replace(CLOSED, owner_epoch=AssignmentEpoch(5)))
    before = store.dump()
    clear(log, OPEN)
    assert store.dump() == before


def test_a_clearing_of_another_life_of_the_store_is_passed_over(
    store: Store, log: PartialLog
) -> None:
    fill(log, 2)
    before = store.dump()
    clear(log, replace(OPEN, epoch=StoreEpoch(EPOCH - 1)), replace(OPEN, task=OTHER_TASK))
    assert store.dump() == before


def test_a_new_life_of_a_task_knows_no_clearing(log: PartialLog) -> None:
    fill(log, 4)
    clear(log)
    fill(log, 2, first=4)
    assert merge(log, of_several(5, 6))
    log.initialise(TASK, StoreEpoch(EPOCH + 1), start())
    assert log.cleared(TASK) == {}
    assert entries(log) == []
    assert log_bytes(log) == 0


# ------------------------------------------------------------------------------------- merging


def test_a_merged_entry_takes_the_place_of_all_that_it_stands_for(log: PartialLog) -> None:
    clear(log)
    fill(log, 6)
    merged = of_several(2, 3, 4)
    assert merge(log, merged)
    assert seqs(entries(log)) == [1, 4, 5, 6]
    assert entries(log)[1] == merged
    assert seqs(entries(log, 1)) == [1, 2, 3, 4, 5, 6]
    assert seqs(entries(log, after=1, upto=4)) == [4]
    assert seqs(entries(log, after=4)) == [5, 6]
    assert log.read(TASK, BUCKET, Sequence64(1), ALL).vanished == 0
    assert log.read(TASK, BUCKET, Sequence64(0), ALL).vanished == 0


def test_a_look_brings_what_was_merged_as_a_read_does(log: PartialLog) -> None:
    clear(log)
    fill(log, 6)
    assert merge(log, of_several(2, 3, 4))
    look = log.look({TASK: {BUCKET: Sequence64(1)}}, ())[TASK]
    assert look is not None
    assert look.slices == {BUCKET: log.read(TASK, BUCKET, Sequence64(1), look.head.seq)}
    assert seqs(look.slices[BUCKET].entries) == [4, 5, 6]


def test_a_look_clears_only_logs_of_tasks_that_it_looks_at(log: PartialLog) -> None:
    fill(log, 1)
    log.look({OTHER_TASK: {}}, [OPEN])
    assert log.cleared(TASK) == {}


def test_segments_are_merged_in_any_order(log: PartialLog) -> None:
    clear(log)
    fill(log, 6)
    assert merge(log, of_several(4, 5, 6))
    assert merge(log, of_several(1, 2, 3))
    assert seqs(entries(log)) == [3, 6]
    (together,) = log.read_together(TASK, [BUCKET], ALL)
    assert seqs(together.entries) == [3, 6]


def test_log_bytes_are_those_of_what_is_left(log: PartialLog) -> None:
    clear(log)
    fill(log, 1)
    one = log_bytes(log) // 2
    fill(log, 2, first=1)
    assert merge(log, of_several(1, 2, 3, size=1_000))
    larger = log_bytes(log) - 3 * one
    log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(3)])
    assert log_bytes(log) == 3 * one
    assert 1_000 < larger < 1_500


def test_states_that_are_merged_count_for_what_they_are_uncompressed(log: PartialLog) -> None:
    clear(log)
    fill(log, 2)
    states = encode_states(pl.DataFrame({"k0": ["the same text for all"] * 10_000}))
    merged = of_several(1, 2)
    before, plain = log_bytes(log), states_bytes(states)
    assert merge(log, replace(merged, partial=replace(merged.partial, states=states)))
    assert plain < log_bytes(log) < plain + before
    log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(2)])
    assert 0 < log_bytes(log) < before


def test_a_merged_entry_is_trimmed_and_put_into_a_base_like_any_other(log: PartialLog) -> None:
    clear(log)
    fill(log, 8)
    assert merge(log, of_several(1, 2))
    assert merge(log, of_several(3, 4))
    assert merge(log, of_several(6, 7))
    assert log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(2)])
    assert seqs(entries(log)) == [4, 5, 7, 8]
    assert log.compact(TASK, EPOCH, born(log), BUCKET, base(5))
    fresh = log.read(TASK, BUCKET, Sequence64(0), ALL)
    assert fresh.base is not None
    assert (seqs(fresh.entries), fresh.vanished) == ([7, 8], 0)


def test_a_base_takes_the_place_of_what_was_merged_up_to_its_own_seq(
    store: Store, log: PartialLog
) -> None:
    clear(log)
    fill(log, 4)
    assert merge(log, of_several(2, 3))
    assert log.compact(TASK, EPOCH, born(log), BUCKET, base(3))
    assert seqs(entries(log)) == [4]
    store.lose_entry(BUCKET, 4)
    assert log.read(TASK, BUCKET, Sequence64(3), ALL).vanished == 1


@pytest.mark.parametrize("again", [(3, 4), (4, 5), (5, 6), (2, 3, 4, 5), (4, 5, 6)], ids=str)
def test_what_is_merged_is_not_merged_again(
    store: Store, log: PartialLog, again: tuple[int, ...]
) -> None:
    clear(log)
    fill(log, 6)
    assert merge(log, of_several(3, 4, 5))
    before = store.dump()
    assert not merge(log, of_several(*again))
    assert not merge(log, of_several(3, 4, 5))
    assert store.dump() == before


def test_nothing_is_replaced_where_an_entry_is_gone(store: Store, log: PartialLog) -> None:
    clear(log)
    fill(log, 4)
    log.trim(TASK, EPOCH, born(log), BUCKET, [Sequence64(3)])
    before = store.dump()
    assert not merge(log, of_several(2, 3, 4))
    assert not merge(log, of_several(4, 5))
    assert store.dump() == before


def test_nothing_is_merged_that_its_owner_may_have_read(store: Store, log: PartialLog) -> None:
    fill(log, 3)
    assert not merge(log, of_several(1, 2))
    clear(log, CLOSED)
    assert not merge(log, of_several(1, 2))
    clear(log)
    fill(log, 3, first=3)
    before = store.dump()
    assert not merge(log, of_several(2, 3))
    assert not merge(log, of_several(3, 4, 5))
    assert store.dump() == before
    assert merge(log, of_several(4, 5))


def test_what_was_merged_since_a_look_is_not_missing(log: PartialLog) -> None:
    clear(log)
    fill(log, 6)
    assert merge(log, of_several(2, 3, 4))

    (seen,) = log.read_together(TASK, [BUCKET], Sequence64(3))
    (owners,) = log.read_many([ReadRequest(TASK, BUCKET, Sequence64(0), Sequence64(3))])

    assert [entry.seqs for entry in seen.entries] == [(1,), (2, 3, 4)]
    assert [entry.seqs for entry in owners.entries] == [(1,)]


def test_assistants_of_another_owner_change_nothing(store: Store, log: PartialLog) -> None:
    clear(log)
    fill(log, 3)
    run_id = server_of(log)
    before = store.dump()
    for owner in (AssignmentEpoch(3), AssignmentEpoch(5)):
        assert not log.merge(TASK, EPOCH, owner, of_several(1, 2), run_id)
    assert store.dump() == before


def test_assistants_of_another_life_change_nothing(store: Store, log: PartialLog) -> None:
    clear(log)
    fill(log, 3)
    run_id = server_of(log)
    before = store.dump()
    assert not log.merge(TASK, StoreEpoch(EPOCH + 1), OWNER, of_several(1, 2), run_id)
    assert not log.merge(OTHER_TASK, EPOCH, OWNER, of_several(1, 2), run_id)
    assert not merge(log, of_several(1, 2), run_id="another")
    assert not merge(log, of_several(1, 2, version=2))
    assert store.dump() == before
