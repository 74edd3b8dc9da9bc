from __future__ import annotations

import pytest

from mars.core.types import Bucket, Entry, Lane, Partial, Range, RowCounts, Sequence64
from mars.protocol.reducer.log_index import STORE_OVERHEAD_BYTES, LogIndex
from mars.protocol.windows.input import StoreWentBack

LANE = Lane("0")


def entry(seq: int, first: int, next_: int) -> Entry:
    """An entry of one lane, without rows."""
    nothing = Partial(Bucket(0), RowCounts(), (), b"")
    return Entry(Sequence64(seq), 1, (Range(LANE, first, next_),), nothing)


def test_entries_go_when_nobody_needs_their_offsets() -> None:
    log = LogIndex()
    for one in (entry(1, 0, 10), entry(2, 10, 20), entry(3, 20, 30)):
        log.follows(one)
        log.keep(one)
    assert log.trim({LANE: 19}) == (1,)
    assert log.trim({LANE: 20}) == (2,)
    assert log.trim({LANE: 20}) == ()
    assert log.last == 3


def test_entries_that_the_base_contains_go_at_once() -> None:
    log = LogIndex()
    log.has_bases([entry(5, 0, 100)])
    log.keep_contained(entry(3, 40, 50))
    assert log.is_worth_merging
    assert log.trim({}) == (3,)
    assert not log.is_worth_merging


def test_offsets_that_come_twice_mean_that_the_store_went_back() -> None:
    log = LogIndex()
    log.follows(entry(1, 0, 10))
    with pytest.raises(StoreWentBack, match="entry 2 begins at 9"):
        log.follows(entry(2, 9, 20))


def merged(log: LogIndex) -> bool:
    """Asked anew each time."""
    return log.is_merged


def test_what_was_merged_is_merged_again_only_once_windows_have_closed_or_entries_came() -> None:
    log = LogIndex()
    assert merged(log)
    log.keep(entry(1, 0, 10))
    assert not merged(log)
    log.merged(Sequence64(1), [entry(1, 0, 10)])
    assert merged(log)
    log.loosened()
    assert not merged(log)
    log.merged(Sequence64(1), [entry(1, 0, 10)])
    log.keep(entry(2, 10, 20))
    assert not merged(log)
    assert log.last == 2


def test_a_base_that_was_read_may_hold_what_has_been_closed() -> None:
    log = LogIndex()
    log.has_bases([entry(4, 0, 10), entry(4, 0, 8)])
    assert not log.is_merged
    assert log.last == 4


def test_only_what_cannot_be_merged_further_exceeds_a_share() -> None:
    log = LogIndex()
    log.merged(Sequence64(1), [entry(1, 0, 10)])
    assert log.exceeds(STORE_OVERHEAD_BYTES)
    assert not log.exceeds(2 * STORE_OVERHEAD_BYTES)
    log.keep(entry(2, 10, 20))
    assert not log.exceeds(STORE_OVERHEAD_BYTES)


def test_a_base_is_given_away_once_all_of_it_lies_below() -> None:
    log = LogIndex()
    log.has_bases([entry(4, 0, 10), entry(4, 0, 8)])
    assert log.take_base_below({LANE: 9}) is None
    assert log.take_base_below({LANE: 10}) == (4, (Range(LANE, 0, 10), Range(LANE, 0, 8)))
    assert log.take_base_below({LANE: 10}) is None
    assert log.last is None
