"""M3 of the protocol: what is taken, what is refused and in which order; refusals are void."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from mars.core.types import Bucket, Lane, Mapped, Range, StoreEpoch, TaskName
from mars.engine.codec.states import encode_states, states_bytes
from mars.protocol.ports import (
    AppendOutcome,
    Batch,
    Cut,
    IdleLease,
    NoTask,
    PartialLog,
    Stale,
    TaskPaused,
    WrongEpoch,
    WrongVersion,
)
from tests.contracts.batches import (
    BUCKETS,
    EPOCH,
    LANE,
    LEADER,
    OTHER_LANE,
    OTHER_TASK,
    TASK,
    applied,
    base,
    batch,
    born,
    both_lanes,
    entries,
    gap,
    head_of,
    partial,
    start,
    take_base,
)
from tests.contracts.redis_servers import Store

# ---------------------------------------------------------------------------------- taken


def test_first_batch_is_entry_one_and_moves_its_lane(log: PartialLog) -> None:
    assert log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500)) == applied(1)
    head = head_of(log)
    assert head.offsets == {LANE: 10, OTHER_LANE: 0}
    assert head.marks_ms == {LANE: 500}
    assert head.seq == 1


def test_each_partial_is_read_back_as_it_was_sent(log: PartialLog) -> None:
    sent = batch(0, 10, buckets=(0, 2, 3))
    log.append(TASK, EPOCH, 1, sent)
    for one in sent.partials:
        (entry,) = entries(log, one.bucket)
        assert (entry.seq, entry.version) == (1, 1)
        assert entry.ranges == sent.ranges
        assert entry.partial == one
    assert entries(log, 1) == []


def test_batches_are_numbered_in_order_whatever_their_lane(log: PartialLog) -> None:
    assert log.append(TASK, EPOCH, 1, batch(0, 10)) == applied(1)
    assert log.append(TASK, EPOCH, 1, batch(0, 5, lane=OTHER_LANE)) == applied(2)
    assert log.append(TASK, EPOCH, 1, batch(10, 20)) == applied(3)
    assert [entry.ranges[0].lane for entry in entries(log)] == [LANE, OTHER_LANE, LANE]


def test_batch_of_several_lanes_moves_them_together(log: PartialLog) -> None:
    assert log.append(TASK, EPOCH, 1, both_lanes(0, 10, 0, 4)) == applied(1)
    assert head_of(log).offsets == {LANE: 10, OTHER_LANE: 4}


def test_batch_without_any_row_moves_its_lane_and_is_numbered(log: PartialLog) -> None:
    assert log.append(TASK, EPOCH, 1, gap(0, 3)) == applied(1)
    head = head_of(log)
    assert head.offsets[LANE] == 3
    assert head.seq == 1
    assert head.log_bytes == 0


def test_mark_never_goes_back(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500))
    log.append(TASK, EPOCH, 1, batch(10, 20, mark_ms=400))
    log.append(TASK, EPOCH, 1, batch(20, 30))
    assert head_of(log).marks_ms == {LANE: 500}


def test_marks_before_1970_are_ordered_as_numbers(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=-500))
    log.append(TASK, EPOCH, 1, batch(10, 20, mark_ms=-60))
    log.append(TASK, EPOCH, 1, batch(20, 30, mark_ms=-7_000))
    assert head_of(log).marks_ms == {LANE: -60}


def test_states_count_for_what_they_are_uncompressed(log: PartialLog) -> None:
    states = encode_states(pl.DataFrame({"k0": ["the same text for all"] * 10_000}))
    plain = states_bytes(states)
    assert plain > 5 * len(states)
    mapped = batch(0, 10)
    mapped = replace(mapped, partials=(replace(mapped.partials[0], states=states),))
    log.append(TASK, EPOCH, 1, mapped)
    assert plain < head_of(log).log_bytes < plain + 500
    merged = base(1)
    merged = replace(merged, partial=replace(merged.partial, states=states))
    assert log.compact(TASK, EPOCH, born(log), Bucket(0), merged, (merged,))
    assert 2 * plain < head_of(log).log_bytes < 2 * plain + 500
    assert log.put_base(TASK, EPOCH, born(log), Bucket(1), (merged,))
    assert 3 * plain < head_of(log).log_bytes < 3 * plain + 1_000
    assert take_base(log, Bucket(0))
    assert plain < head_of(log).log_bytes < plain + 500


def test_offsets_of_years_of_traffic_stay_exact(store: Store) -> None:
    log, far = store.open(), 2**53 - 10
    log.initialise(TASK, EPOCH, start({LANE: far}))
    assert log.append(TASK, EPOCH, 1, batch(far, far + 3)) == applied(1)
    assert log.append(TASK, EPOCH, 1, batch(far + 3, far + 9)) == applied(2)
    assert head_of(log).offsets == {LANE: far + 9}


def test_log_bytes_grow_with_what_is_stored(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, buckets=(0, 1), size=1_000))
    small = head_of(log).log_bytes
    log.append(TASK, EPOCH, 1, batch(10, 20, buckets=(0, 1), size=2_000))
    assert 2_000 < small < 3_000
    assert head_of(log).log_bytes == 2 * small + 2_000


# -------------------------------------------------------------------------------- refused


def refusal(store: Store, log: PartialLog, version: int, mapped: Mapped) -> AppendOutcome:
    """What is answered, after a look at whether nothing at all has changed."""
    before = store.dump()
    outcome = log.append(TASK, EPOCH, version, mapped)
    assert store.dump() == before
    return outcome


def test_unknown_task_is_refused(store: Store) -> None:
    log = store.open()
    log.initialise(OTHER_TASK, EPOCH, start())
    assert refusal(store, log, 1, batch(0, 10)) == NoTask()


def test_other_epochs_are_refused_with_the_current_one(store: Store, log: PartialLog) -> None:
    before = store.dump()
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert log.append(TASK, StoreEpoch(epoch), 1, batch(0, 10)) == WrongEpoch(EPOCH)
    assert store.dump() == before


def test_paused_task_is_refused(store: Store, log: PartialLog) -> None:
    log.set_active(TASK, EPOCH, LEADER, active=False)
    assert refusal(store, log, 1, batch(0, 10)) == TaskPaused()


@pytest.mark.parametrize("first", [0, 9, 11])
def test_batch_that_does_not_go_on_where_the_lane_is_gets_the_offset(
    store: Store, log: PartialLog, first: int
) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    assert refusal(store, log, 1, batch(first, first + 5)) == Stale(LANE, 10)


def test_lane_that_the_leader_has_not_added_is_stale_at_minus_one(
    store: Store, log: PartialLog
) -> None:
    unknown = Lane("9")
    assert refusal(store, log, 1, batch(0, 10, lane=unknown)) == Stale(unknown, -1)


def test_one_stale_lane_refuses_the_whole_batch(store: Store, log: PartialLog) -> None:
    assert refusal(store, log, 1, both_lanes(0, 10, 3, 4)) == Stale(OTHER_LANE, 0)


def test_same_batch_a_second_time_is_stale(store: Store, log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    assert refusal(store, log, 1, batch(0, 10)) == Stale(LANE, 10)


def test_older_version_is_taken_up_to_the_bound_and_the_new_one_from_it(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start({LANE: 0}, version=2, bounds={1: {}, 2: {LANE: 20}}))
    assert refusal(store, log, 2, batch(0, 10)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 1, batch(0, 10)) == applied(1)
    assert refusal(store, log, 1, batch(10, 21)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 1, batch(10, 20)) == applied(2)
    assert refusal(store, log, 1, batch(20, 30)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 2, batch(20, 30)) == applied(3)
    assert [entry.version for entry in entries(log)] == [1, 1, 2]


def test_lane_without_a_bound_belongs_to_the_current_version(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start(version=2, bounds={1: {}, 2: {LANE: 20}}))
    assert refusal(store, log, 1, batch(0, 10, lane=OTHER_LANE)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 2, batch(0, 10, lane=OTHER_LANE)) == applied(1)


def test_rows_are_taken_as_those_of_their_own_version_alone(store: Store) -> None:
    """Of a mapper that has not heard of version 2, and goes on as if 1 ended where 3 begins."""
    log = store.open()
    bounds = {1: {LANE: 2}, 2: {LANE: 10}, 3: {LANE: 20}}
    log.initialise(TASK, EPOCH, start({LANE: 5}, version=3, bounds=bounds))
    assert log.append(TASK, EPOCH, 1, batch(5, 10)) == applied(1)
    assert refusal(store, log, 1, batch(10, 20)) == WrongVersion(3)
    assert refusal(store, log, 3, batch(10, 20)) == WrongVersion(3)
    assert refusal(store, log, 2, batch(10, 21)) == WrongVersion(3)
    assert log.append(TASK, EPOCH, 2, batch(10, 20)) == applied(2)
    assert refusal(store, log, 2, batch(20, 30)) == WrongVersion(3)
    assert log.append(TASK, EPOCH, 3, batch(20, 30)) == applied(3)


def test_no_version_is_taken_below_where_it_begins_nor_one_that_the_task_does_not_have(
    store: Store,
) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start({LANE: 5}, version=4, bounds={2: {LANE: 8}, 4: {LANE: 20}}))
    for version in (1, 2, 3, 4, 5):
        assert refusal(store, log, version, batch(5, 7)) == WrongVersion(4)


def test_lane_that_came_later_belongs_to_the_last_version_that_does_not_name_it(
    store: Store,
) -> None:
    """A partition made while version 2 was current: it began at 0, and 3 where it stood then."""
    log = store.open()
    bounds = {1: {LANE: 0}, 2: {LANE: 10}, 3: {LANE: 20, OTHER_LANE: 50}}
    log.initialise(TASK, EPOCH, start({LANE: 0, OTHER_LANE: 0}, version=3, bounds=bounds))
    assert refusal(store, log, 1, batch(0, 50, lane=OTHER_LANE)) == WrongVersion(3)
    assert refusal(store, log, 2, batch(0, 51, lane=OTHER_LANE)) == WrongVersion(3)
    assert log.append(TASK, EPOCH, 2, batch(0, 50, lane=OTHER_LANE)) == applied(1)
    assert log.append(TASK, EPOCH, 3, batch(50, 60, lane=OTHER_LANE)) == applied(2)


def test_range_of_another_version_refuses_the_whole_batch(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start(version=2, bounds={1: {}, 2: {LANE: 20, OTHER_LANE: 7}}))
    assert refusal(store, log, 1, both_lanes(0, 20, 0, 8)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 1, both_lanes(0, 20, 0, 7)) == applied(1)


def test_version_that_is_not_current_yet_is_refused(store: Store, log: PartialLog) -> None:
    assert refusal(store, log, 2, batch(0, 10)) == WrongVersion(1)


def test_batch_that_straddles_cuts_gets_the_lowest_of_them(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start({LANE: 0}, cuts={LANE: (100, 9, 20)}))
    assert refusal(store, log, 1, batch(0, 200)) == Cut(LANE, 9)
    assert log.append(TASK, EPOCH, 1, batch(0, 9)) == applied(1)
    assert refusal(store, log, 1, batch(9, 101)) == Cut(LANE, 20)
    assert log.append(TASK, EPOCH, 1, batch(9, 20)) == applied(2)
    assert log.append(TASK, EPOCH, 1, batch(20, 100)) == applied(3)
    assert log.append(TASK, EPOCH, 1, batch(100, 150)) == applied(4)


def test_batch_that_goes_one_offset_beyond_a_cut_straddles_it(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start({LANE: 0}, cuts={LANE: (7,)}))
    assert refusal(store, log, 1, batch(0, 8)) == Cut(LANE, 7)
    assert log.append(TASK, EPOCH, 1, batch(0, 7)) == applied(1)
    assert log.append(TASK, EPOCH, 1, batch(7, 8)) == applied(2)


def test_lanes_that_go_on_by_themselves_are_together_behind_all_of_their_cuts(
    store: Store,
) -> None:
    """Before that an entry of both could lie on both sides of what a bucket has accounted."""
    log = store.open()
    cuts = {LANE: (10, 20), OTHER_LANE: (5,)}
    assert log.initialise(TASK, EPOCH, start(cuts=cuts))
    assert refusal(store, log, 1, both_lanes(0, 4, 0, 5)) == Cut(LANE, 10)
    assert log.append(TASK, EPOCH, 1, batch(0, 10)) == applied(1)
    assert refusal(store, log, 1, both_lanes(10, 20, 0, 5)) == Cut(LANE, 20)
    assert log.append(TASK, EPOCH, 1, batch(10, 20)) == applied(2)
    assert refusal(store, log, 1, both_lanes(20, 30, 0, 5)) == Cut(OTHER_LANE, 5)
    assert log.append(TASK, EPOCH, 1, batch(0, 5, lane=OTHER_LANE)) == applied(3)
    assert log.append(TASK, EPOCH, 1, both_lanes(20, 30, 5, 9)) == applied(4)


def test_lanes_of_a_backfill_are_together_before_their_cuts(store: Store) -> None:
    """They go on in the same chunks again, so at each cut they lie on one side."""
    log = store.open()
    lanes = (Lane("0@b1"), Lane("1@b1"))
    cuts: dict[Lane, tuple[int, ...]] = dict.fromkeys(lanes, (10,))
    assert log.initialise(TASK, EPOCH, start(offsets=dict.fromkeys(lanes, 0), cuts=cuts))
    assert log.append(TASK, EPOCH, 1, both_lanes(0, 5, 0, 5, lanes=lanes)) == applied(1)
    assert refusal(store, log, 1, both_lanes(5, 10, 5, 11, lanes=lanes)) == Cut(lanes[1], 10)


def test_reasons_come_in_the_order_of_the_protocol(store: Store) -> None:
    log = store.open(log_bytes_max=1)
    everything_wrong = batch(5, 50)
    assert log.append(TASK, EPOCH, 1, everything_wrong) == NoTask()
    log.initialise(
        TASK,
        EPOCH,
        start({LANE: 0}, version=2, active=False, bounds={1: {}, 2: {LANE: 60}}, cuts={LANE: (7,)}),
    )
    assert log.append(TASK, StoreEpoch(1), 3, everything_wrong) == WrongEpoch(EPOCH)
    assert log.append(TASK, EPOCH, 3, everything_wrong) == TaskPaused()
    log.set_active(TASK, EPOCH, LEADER, active=True)
    assert log.append(TASK, EPOCH, 3, everything_wrong) == Stale(LANE, 0)
    assert log.append(TASK, EPOCH, 3, batch(0, 50)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 1, batch(0, 50)) == Cut(LANE, 7)


# ------------------------------------------------------------------------------ idle leases


def test_lane_is_idle_while_its_lease_lasts_by_the_clock_of_the_store(
    store: Store, log: PartialLog
) -> None:
    assert head_of(log).idle == frozenset()
    assert log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0, 1)]) == [True]
    leased = head_of(log)
    assert leased.idle == {LANE}
    store.let_leases_expire()
    expired = head_of(log)
    assert expired.idle == frozenset()
    assert expired.now_ms - leased.now_ms >= 2_900


def test_lease_is_refused_unless_all_is_as_the_mapper_believes(
    store: Store, log: PartialLog
) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    before = store.dump()
    assert log.renew_idle([IdleLease(TASK, EPOCH, LANE, 9, 1)]) == [False]
    assert log.renew_idle([IdleLease(TASK, EPOCH, Lane("9"), 10, 1)]) == [False]
    assert log.renew_idle([IdleLease(TASK, StoreEpoch(EPOCH - 1), LANE, 10, 1)]) == [False]
    assert log.renew_idle([IdleLease(OTHER_TASK, EPOCH, LANE, 10, 1)]) == [False]
    assert store.dump() == before
    log.set_active(TASK, EPOCH, LEADER, active=False)
    assert log.renew_idle([IdleLease(TASK, EPOCH, LANE, 10, 1)]) == [False]


def test_a_mapper_that_knows_a_deleted_task_of_the_name_leases_nothing(
    store: Store, log: PartialLog
) -> None:
    log.drop(TASK, EPOCH, LEADER, 1)
    log.initialise(TASK, EPOCH, start(version=2, bounds={2: {}}))
    before = store.dump()

    assert log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0, 1)]) == [False]
    assert log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0, 22)]) == [False]

    assert store.dump() == before
    assert log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0, 2)]) == [True]


def test_leases_of_one_call_are_judged_each_by_itself(log: PartialLog) -> None:
    log.initialise(OTHER_TASK, EPOCH, start())
    log.append(TASK, EPOCH, 1, batch(0, 10))
    places = [(TASK, LANE, 10), (TASK, OTHER_LANE, 3), (OTHER_TASK, LANE, 0), (TASK, OTHER_LANE, 0)]
    leases = [IdleLease(task, EPOCH, lane, offset, 1) for task, lane, offset in places]
    assert log.renew_idle(leases) == [True, False, True, True]
    heads = log.head([TASK, OTHER_TASK])
    assert [head.idle for head in heads.values() if head] == [{LANE, OTHER_LANE}, {LANE}]
    assert log.renew_idle([]) == []


def test_rows_and_marks_end_the_idleness_of_their_lane_alone(log: PartialLog) -> None:
    log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0, 1)])
    log.renew_idle([IdleLease(TASK, EPOCH, OTHER_LANE, 0, 1)])
    log.append(TASK, EPOCH, 1, batch(0, 10))
    assert head_of(log).idle == {OTHER_LANE}
    log.append(TASK, EPOCH, 1, batch(0, 10, lane=OTHER_LANE, mark_ms=5, buckets=()))
    assert head_of(log).idle == frozenset()


def test_gap_without_rows_leaves_a_lane_idle(log: PartialLog) -> None:
    log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0, 1)])
    log.append(TASK, EPOCH, 1, gap(0, 3))
    assert head_of(log).idle == {LANE}


# ------------------------------------------------------------------ callers that are wrong


@pytest.mark.parametrize(
    "wrong",
    [
        Mapped((), {}, ()),
        batch(5, 5),
        batch(5, 4),
        batch(-1, 4),
        batch(0, 2**53),
        batch(0, 9, mark_ms=2**53),
        batch(0, 9, buckets=(1, 1)),
        batch(0, 9, buckets=(BUCKETS,)),
        Mapped((Range(LANE, 0, 5), Range(LANE, 5, 9)), {}, (partial(0),)),
        Mapped((Range(LANE, 0, 5),), {OTHER_LANE: 100}, (partial(0),)),
    ],
    ids=[
        "no range",
        "empty range",
        "backward range",
        "negative offset",
        "offset beyond exact numbers",
        "mark beyond exact numbers",
        "bucket twice",
        "unknown bucket",
        "lane twice",
        "one mark for two lanes",
    ],
)
def test_batch_that_no_mapper_may_send_is_an_error_of_the_caller(
    store: Store, log: PartialLog, wrong: Mapped
) -> None:
    before = store.dump()
    with pytest.raises(ValueError, match=r"."):
        log.append(TASK, EPOCH, 1, wrong)
    assert store.dump() == before


# ------------------------------------------------------------------------------- together


def test_batches_of_several_tasks_are_stored_together_each_by_itself(log: PartialLog) -> None:
    log.initialise(OTHER_TASK, EPOCH, start())
    unknown = TaskName("nobody")
    sent = [
        Batch(TASK, EPOCH, 1, batch(0, 10, mark_ms=500)),
        Batch(OTHER_TASK, EPOCH, 1, batch(0, 10)),
        Batch(unknown, EPOCH, 1, batch(0, 10)),
        Batch(OTHER_TASK, EPOCH, 1, batch(5, 20)),
        Batch(TASK, EPOCH, 1, batch(10, 20)),
        Batch(TASK, StoreEpoch(EPOCH + 1), 1, batch(20, 30)),
    ]

    assert log.append_together(sent) == [
        applied(1), applied(1), NoTask(), Stale(LANE, 10), applied(2), WrongEpoch(EPOCH)
    ]  # fmt: skip
    assert (head_of(log).offsets[LANE], head_of(log).seq) == (20, 2)
    assert log.append_together([]) == []
    assert log.append_together([Batch(TASK, EPOCH, 1, batch(20, 30))]) == [applied(3)]


def test_more_batches_than_fit_into_one_round_trip_are_stored_in_order(log: PartialLog) -> None:
    many = [Batch(TASK, EPOCH, 1, batch(10 * at, 10 * at + 10)) for at in range(130)]
    assert log.append_together(many) == [applied(at + 1) for at in range(130)]
    large = [
        Batch(TASK, EPOCH, 1, batch(1300 + 10 * at, 1310 + 10 * at, size=100)) for at in range(3)
    ]
    assert log.append_together(large) == [applied(131 + at) for at in range(3)]
    assert head_of(log).offsets[LANE] == 1330
