"""What the twins can show: crashes between the steps of a commit, and commits that come late."""

from __future__ import annotations

import pytest

from mars.adapters.memory.sink import Crash, MemorySink
from mars.core.errors import Interrupted, Unavailable
from mars.core.types import Topic
from mars.protocol.ports import Progress
from tests.contracts.kafka_servers import BUCKETS, MemoryCluster
from tests.contracts.transactions import BUCKET, Rows, claim, committed, own, transaction, visible


@pytest.fixture
def twin() -> MemoryCluster:
    twin = MemoryCluster()
    twin.admin().ensure_internal(BUCKETS)
    return twin


@pytest.fixture
def output(twin: MemoryCluster) -> Topic:
    return twin.topic()


def interrupted(sink: MemorySink, output: Topic, crash: Crash, value: bytes = b"a") -> None:
    position = own(sink).next
    sink.crash_next(crash)
    with pytest.raises(Interrupted):
        sink.commit(transaction(1, Rows(output, [[value]])), position)


def emits(records: tuple[object, ...]) -> list[int]:
    return [record.emit for record in records if isinstance(record, Progress)]


def test_a_crash_before_the_commit_leaves_nothing(twin: MemoryCluster, output: Topic) -> None:
    sink = twin.sink()
    interrupted(sink, output, Crash.BEFORE_COMMIT)
    assert emits(own(sink).records) == []
    assert committed(twin, output) == []


def test_a_crash_after_the_commit_has_taken_effect(twin: MemoryCluster, output: Topic) -> None:
    sink = twin.sink()
    interrupted(sink, output, Crash.AFTER_COMMIT)
    assert emits(own(sink).records) == [1]
    assert committed(twin, output) == [b"a"]


def test_a_commit_that_comes_before_the_next_claim_takes_effect(
    twin: MemoryCluster, output: Topic
) -> None:
    sink = twin.sink()
    interrupted(sink, output, Crash.COMMIT_DELAYED)
    assert visible(twin, output) == []
    twin.broker.deliver_delayed()
    assert emits(own(sink).records) == [1]
    assert committed(twin, output) == [b"a"]


def test_a_commit_that_comes_after_the_next_claim_ends_nothing(
    twin: MemoryCluster, output: Topic
) -> None:
    sink = twin.sink()
    interrupted(sink, output, Crash.COMMIT_DELAYED)
    claimed = own(sink)
    twin.broker.deliver_delayed()
    assert emits(claimed.records) == []
    assert committed(twin, output) == []


def test_a_late_commit_ends_the_next_transaction_of_the_same_producer(
    twin: MemoryCluster, output: Topic
) -> None:
    # Why a producer serves one transaction: this is what the broker does to one that serves two.
    producer = twin.broker.producer("id")
    producer.produce(output, 0, b"first")
    producer.commit_late()
    producer.commit()
    producer.produce(output, 0, b"half of the second")
    twin.broker.deliver_delayed()
    assert visible(twin, output) == [b"first", b"half of the second"]


def test_a_claim_can_crash_too(twin: MemoryCluster) -> None:
    sink = twin.sink()
    sink.crash_next(Crash.AFTER_COMMIT)
    with pytest.raises(Interrupted):
        sink.claim(claim())
    assert len(own(sink).records) == 2


@pytest.mark.parametrize("before", [True, False])
def test_a_call_can_be_told_to_fail(twin: MemoryCluster, output: Topic, before: bool) -> None:
    sink = twin.sink()
    position = own(sink).next
    sink.fail_next("commit", before=before)
    with pytest.raises(Unavailable):
        sink.commit(transaction(1, Rows(output, [[b"a"]])), position)
    assert committed(twin, output) == ([] if before else [b"a"])


def test_a_reader_told_to_fail_has_read_nothing(twin: MemoryCluster, output: Topic) -> None:
    twin.append(output, 0, [b"a"])
    reader = twin.alone()
    reader.seek(output, 0, 0)
    reader.fail_next("poll")
    with pytest.raises(Unavailable):
        reader.poll(10, 0.0)
    assert len(reader.poll(10, 0.0)) == 2
    with pytest.raises(ValueError, match="nothing"):
        reader.fail_next("poll", before=False)


def test_a_member_given_up_by_its_group_hears_of_it_and_joins_again(twin: MemoryCluster) -> None:
    topic = twin.topic(2)
    member = twin.member()
    member.subscribe([topic])
    member.poll(10, 0.0)
    member.expire()
    kinds = [type(event).__name__ for _turn in range(2) for event in member.poll(10, 0.0)]
    assert kinds == ["Revoked", "Assigned"]


def test_progress_of_other_namespaces_is_apart(twin: MemoryCluster) -> None:
    from mars.adapters.memory.admin import MemoryTopicAdmin

    MemoryTopicAdmin(twin.broker, "other").ensure_internal(BUCKETS)
    sink = MemorySink(twin.broker, "other")
    sink.claim(claim(epoch=9))
    assert len(own(twin.sink(), epoch=1).records) == 1
    assert twin.progress().read(BUCKET, 0).next > 0
