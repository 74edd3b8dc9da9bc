"""The budget of a task's log: who is refused over it, and how far beyond it the log may grow.

Entries here count for some 250 to 300 bytes each, unless they are told to be larger.

    used   0 ──────────── budget ──────────── 2 x budget
    any lane taken ──────▶│
    holder of the watermark taken ───────────▶│            where the log is within the budget,
                                                           whatever the size of the batch
"""

from __future__ import annotations

from mars.core.types import Bucket, Lane, Mapped, Sequence64
from mars.protocol.ports import AppendOutcome, Applied, Backpressure, IdleLease, PartialLog
from tests.contracts.batches import (
    EPOCH,
    LANE,
    OTHER_LANE,
    TASK,
    applied,
    base,
    batch,
    born,
    both_lanes,
    drop,
    head_of,
    start,
)
from tests.contracts.redis_servers import Store

BUDGET = 1_000
HISTORY, OTHER_HISTORY = Lane("0@b1"), Lane("1@b1")


def begun(store: Store, budget: int = BUDGET, **changes: object) -> PartialLog:
    """A store with this budget, and a task of two lanes."""
    log = store.open(log_bytes_max=budget)
    assert log.initialise(TASK, EPOCH, start(**changes))  # type: ignore[arg-type]
    return log


def refused(store: Store, log: PartialLog, mapped: Mapped) -> bool:
    """Whether the batch is held back, after a look at whether nothing at all has changed."""
    before = store.dump()
    outcome = log.append(TASK, EPOCH, 1, mapped)
    assert store.dump() == before or isinstance(outcome, Applied)
    return outcome == Backpressure()


def fill(log: PartialLog, lane: Lane, mark_ms: int, size: int = BUDGET) -> AppendOutcome:
    """The first rows of a lane: more than the budget, which a log within it takes."""
    return log.append(TASK, EPOCH, 1, batch(0, 1, lane=lane, mark_ms=mark_ms, size=size))


# ------------------------------------------------------------------------------ over the budget


def test_full_log_refuses_a_lane_that_does_not_hold_the_watermark(store: Store) -> None:
    log = begun(store)
    log.append(TASK, EPOCH, 1, batch(0, 1, mark_ms=200, size=1))
    log.append(TASK, EPOCH, 1, batch(0, 1, lane=OTHER_LANE, mark_ms=100, size=1))
    assert refused(store, log, batch(1, 2, mark_ms=300, size=900))
    ahead = batch(1, 2, lane=OTHER_LANE, mark_ms=150, size=900)
    assert log.append(TASK, EPOCH, 1, ahead) == applied(3)


def test_batch_that_just_fits_into_the_budget_is_taken(store: Store) -> None:
    def sized(log: PartialLog) -> Mapped:
        log.initialise(TASK, EPOCH, start())
        log.append(TASK, EPOCH, 1, batch(0, 1, lane=OTHER_LANE, mark_ms=1, size=1))
        log.append(TASK, EPOCH, 1, batch(0, 1, mark_ms=9, size=1))
        return batch(1, 2, mark_ms=10, size=100)

    log = store.with_budget(10_000)
    assert log.append(TASK, EPOCH, 1, sized(log)) == applied(3)
    needed = head_of(log).log_bytes
    drop(log)
    for budget, expected in ((needed, applied(3)), (needed - 1, Backpressure())):
        log = store.with_budget(budget)
        assert log.append(TASK, EPOCH, 1, sized(log)) == expected
        drop(log)


def test_holder_of_the_watermark_that_just_fits_into_two_budgets_is_taken(store: Store) -> None:
    def sized(log: PartialLog) -> Mapped:
        log.initialise(TASK, EPOCH, start({LANE: 0}))
        log.append(TASK, EPOCH, 1, batch(0, 1, mark_ms=1, size=700))
        log.append(TASK, EPOCH, 1, batch(1, 2, mark_ms=2, size=700))
        return batch(2, 3, mark_ms=10, size=501)

    log = store.with_budget(10_000)
    assert log.append(TASK, EPOCH, 1, sized(log)) == applied(3)
    needed = head_of(log).log_bytes
    drop(log)
    assert needed % 2 == 0
    for budget, expected in ((needed // 2, applied(3)), (needed // 2 - 1, Backpressure())):
        log = store.with_budget(budget)
        assert log.append(TASK, EPOCH, 1, sized(log)) == expected
        drop(log)


def test_log_stays_bounded_while_no_reducer_empties_it(store: Store) -> None:
    log = begun(store, offsets={LANE: 0})
    for number in range(100):
        log.append(TASK, EPOCH, 1, batch(number, number + 1, mark_ms=number, size=100))
    assert BUDGET < head_of(log).log_bytes <= 2 * BUDGET
    seq = head_of(log).seq
    assert refused(store, log, batch(seq, seq + 1, mark_ms=500, size=100))

    log.trim(TASK, EPOCH, born(log), Bucket(0), [Sequence64(number + 1) for number in range(seq)])
    assert log.append(TASK, EPOCH, 1, batch(seq, seq + 1, mark_ms=500)) == applied(seq + 1)


def test_merging_makes_room_for_the_holder_again(store: Store) -> None:
    log = begun(store, offsets={LANE: 0})
    while not refused(store, log, batch(at := head_of(log).offsets[LANE], at + 10)):
        pass
    seq = head_of(log).seq
    log.compact(TASK, EPOCH, born(log), Bucket(0), base(seq))
    assert log.append(TASK, EPOCH, 1, batch(seq * 10, seq * 10 + 10)) == applied(seq + 1)


def test_log_within_its_budget_takes_a_batch_of_the_holder_that_is_larger_than_two(
    store: Store,
) -> None:
    log = begun(store)
    log.append(TASK, EPOCH, 1, batch(0, 1, mark_ms=100, size=1))
    assert refused(store, log, batch(1, 2, mark_ms=200, size=5 * BUDGET))
    huge = batch(0, 1, lane=OTHER_LANE, mark_ms=50, size=5 * BUDGET)
    assert log.append(TASK, EPOCH, 1, huge) == applied(2)
    assert refused(store, log, batch(1, 2, lane=OTHER_LANE, mark_ms=60, size=1))


# ------------------------------------------------------------------------ who holds the watermark


def test_lane_without_a_mark_holds_the_watermark_before_all_others(store: Store) -> None:
    log = begun(store)
    assert fill(log, LANE, 100) == applied(1)
    assert refused(store, log, batch(1, 2, mark_ms=200))
    assert log.append(TASK, EPOCH, 1, batch(0, 1, lane=OTHER_LANE)) == applied(2)


def test_lanes_with_the_same_lowest_mark_all_hold_the_watermark(store: Store) -> None:
    log = begun(store)
    log.append(TASK, EPOCH, 1, batch(0, 1, lane=OTHER_LANE, mark_ms=100))
    assert fill(log, LANE, 100) == applied(2)
    assert log.append(TASK, EPOCH, 1, batch(1, 2)) == applied(3)
    assert log.append(TASK, EPOCH, 1, batch(1, 2, lane=OTHER_LANE)) == applied(4)


def test_idle_lane_does_not_hold_the_watermark_until_its_lease_expires(store: Store) -> None:
    log = begun(store)
    log.append(TASK, EPOCH, 1, batch(0, 1, mark_ms=100))
    assert fill(log, OTHER_LANE, 50) == applied(2)
    assert log.renew_idle([IdleLease(TASK, EPOCH, OTHER_LANE, 1, 1)]) == [True]
    assert refused(store, log, batch(1, 2, lane=OTHER_LANE))
    assert log.append(TASK, EPOCH, 1, batch(1, 2)) == applied(3)
    store.let_leases_expire()
    assert refused(store, log, batch(2, 3))
    assert log.append(TASK, EPOCH, 1, batch(1, 2, lane=OTHER_LANE, buckets=())) == applied(4)


def test_batch_of_several_lanes_is_admitted_where_each_holds_the_watermark(store: Store) -> None:
    """Rows of those that do not would fill the room that is left for those that do."""
    log = begun(store)
    assert fill(log, LANE, 100) == applied(1)
    assert refused(store, log, both_lanes(1, 2, 0, 1))
    assert log.append(TASK, EPOCH, 1, batch(0, 1, lane=OTHER_LANE, mark_ms=100)) == applied(2)
    assert log.append(TASK, EPOCH, 1, both_lanes(1, 2, 1, 2)) == applied(3)


def with_history(store: Store) -> PartialLog:
    """A live lane with a mark that is far ahead, two of a backfill and one of files, all at 0."""
    files = Lane("f@b2")
    offsets = {LANE: 10, HISTORY: 0, OTHER_HISTORY: 0, files: 0}
    log = begun(store, offsets=offsets, ends={HISTORY: 4, OTHER_HISTORY: 9, files: 5})
    log.append(TASK, EPOCH, 1, batch(10, 11, mark_ms=900, size=1))
    log.append(TASK, EPOCH, 1, batch(0, 1, lane=files, mark_ms=800, size=1))
    return log


def test_unfinished_history_holds_the_watermark_and_finished_history_does_not(
    store: Store,
) -> None:
    log = with_history(store)
    log.append(TASK, EPOCH, 1, batch(1, 5, lane=Lane("f@b2"), mark_ms=900, buckets=()))
    live = batch(11, 12, mark_ms=950, size=BUDGET)
    assert refused(store, log, live)
    marks = {HISTORY: 20, OTHER_HISTORY: 30}
    whole = both_lanes(0, 4, 0, 4, lanes=(HISTORY, OTHER_HISTORY), marks_ms=marks)
    assert log.append(TASK, EPOCH, 1, whole) == applied(4)
    assert refused(store, log, live)
    rest = batch(4, 9, lane=OTHER_HISTORY, mark_ms=40, buckets=())
    assert log.append(TASK, EPOCH, 1, rest) == applied(5)
    assert log.append(TASK, EPOCH, 1, live) == applied(6)


def test_lanes_of_a_backfill_hold_the_watermark_together(store: Store) -> None:
    """Their rows come chunk by chunk: those of the slowest may be in a later chunk."""
    log = with_history(store)
    log.append(TASK, EPOCH, 1, batch(0, 1, lane=HISTORY, mark_ms=700, buckets=()))
    ahead = batch(1, 2, lane=HISTORY, mark_ms=710, size=BUDGET)
    assert refused(store, log, batch(1, 2, lane=Lane("f@b2"), size=BUDGET))
    assert log.append(TASK, EPOCH, 1, ahead) == applied(4)
