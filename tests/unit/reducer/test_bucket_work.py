"""Large transactions of a reducer process: which are known to be under way."""

from __future__ import annotations

import queue
import threading
from typing import Any, cast

import pytest

from mars.core.errors import Unavailable
from mars.core.types import Bucket, MemberId, TaskName, Topic
from mars.process.life import ServiceHealth
from mars.protocol.ports import Committed, ResultBatch, Transaction
from mars.protocol.reducer.events import BucketCommitted, BucketFailed, CommitTransaction, Event
from reducer.bucket_work import LARGE_ROWS, BucketWork
from reducer.metering import Metering

SOON_S = 10.0


class Sink:
    """Commits once it may, or fails."""

    def __init__(self, failure: Exception | None) -> None:
        self.may = threading.Event()
        self._failure = failure

    def commit(self, _transaction: Transaction, start: int) -> Committed:
        assert self.may.wait(SOON_S)
        if self._failure is not None:
            raise self._failure
        return Committed((), start)

    def close(self) -> None:
        pass


def commit_of(rows: int) -> CommitTransaction:
    half = [b"{}"] * (rows // 2)
    rest = [b"{}"] * (rows - len(half))
    batches = tuple(
        ResultBatch(TaskName("a"), 1, Topic("out"), 0, values, values, ())
        for values in (half, rest)
    )
    return CommitTransaction(Bucket(3), 1, Transaction(Bucket(3), batches, (), ()), 0)


@pytest.mark.parametrize("failure", [None, Unavailable("kafka", "away"), ValueError("a fault")])
def test_a_large_transaction_is_under_way_until_its_outcome_is_told(
    failure: Exception | None,
) -> None:
    told: queue.SimpleQueue[tuple[Event, bool]] = queue.SimpleQueue()
    sink = Sink(failure)
    work = BucketWork(
        MemberId("reducer-1"),
        cast(Any, sink),
        lambda event: told.put((event, work.is_large)),
        1,
        Metering(),
        ServiceHealth("reducer"),
    )
    work.start(commit_of(LARGE_ROWS + 1))
    assert work.is_large
    sink.may.set()
    event, large = told.get(timeout=SOON_S)
    assert isinstance(event, BucketFailed if failure else BucketCommitted)
    assert not large, "the round that the outcome begins must find none"
    work.close()


def test_a_transaction_of_fewer_rows_is_not_large() -> None:
    told: queue.SimpleQueue[Event] = queue.SimpleQueue()
    sink = Sink(None)
    work = BucketWork(
        MemberId("reducer-1"), cast(Any, sink), told.put, 1, Metering(), ServiceHealth("reducer")
    )
    work.start(commit_of(LARGE_ROWS))
    assert not work.is_large
    sink.may.set()
    told.get(timeout=SOON_S)
    work.close()
