"""What only the real sink can show: threads, limits, and brokers that go away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from mars.adapters.kafka.sink.refusals import may_hold_foreign
from mars.adapters.kafka.sink.sink import KafkaSink
from mars.adapters.kafka.sink.transaction import BucketTransaction
from mars.core.errors import Interrupted, OutputRefused, Unavailable
from mars.core.types import Bucket, Topic
from mars.protocol.ports import Committed, Progress, Transaction
from tests.contracts.kafka_servers import ALL_BUCKETS, BUCKETS, KafkaCluster, ProxiedKafka
from tests.contracts.transactions import (
    BUCKET,
    TASK,
    Rows,
    claim,
    committed,
    own,
    transaction,
    visible,
)
from tests.contracts.waiting import eventually

pytestmark = pytest.mark.integration

COMMITTED_WITHIN_S = 30.0
"""A client that was cut off finds its way back within some seconds."""


@pytest.fixture
def output(kafka_cluster: KafkaCluster) -> Topic:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    return kafka_cluster.topic(2)


def test_buckets_commit_side_by_side(kafka_cluster: KafkaCluster, output: Topic) -> None:
    sink = kafka_cluster.sink()

    def work(bucket: Bucket) -> Progress:
        position = own(sink, bucket=bucket).next
        for emit in (1, 2):
            rows = Rows(output, [[b"%d" % bucket] * 20], bucket=bucket)
            done = sink.commit(transaction(emit, rows, bucket=bucket), position)
            position = done.next
        return done.progress[0]

    with ThreadPoolExecutor(len(ALL_BUCKETS)) as pool:
        records = list(pool.map(work, ALL_BUCKETS))
    assert len(committed(kafka_cluster, output)) == 2 * 20 * len(ALL_BUCKETS)
    for bucket, record in zip(ALL_BUCKETS, records, strict=True):
        assert record.emission is not None
        assert sink.audit(record.emission, bucket) is None


def test_a_transaction_larger_than_the_queue_waits_for_room(
    kafka_cluster: KafkaCluster, output: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars.adapters.kafka.config.RESULT_ROWS_QUEUED_MAX", 500)
    sink = kafka_cluster.sink()
    position = own(sink).next
    rows = Rows(output, [[b"%d" % number for number in range(5_000)]])
    done = sink.commit(transaction(1, rows), position)
    emission = done.progress[0].emission
    assert emission is not None
    assert (emission.first, emission.last) == (0, 4_999)
    assert sink.audit(emission, BUCKET) is None


def test_a_row_that_is_too_large_is_refused_with_its_topic(
    kafka_cluster: KafkaCluster, output: Topic
) -> None:
    sink = kafka_cluster.sink()
    position = own(sink).next
    rows = Rows(output, [[b"a", b"x" * 2_000_000, b"b"]])
    with pytest.raises(OutputRefused) as refused:
        sink.commit(transaction(1, rows), position)
    assert (refused.value.task, refused.value.topic) == (TASK, output)
    assert "a record is too large; select less text" in refused.value.detail
    assert visible(kafka_cluster, output) == []
    sink.commit(transaction(1, Rows(output, [[b"a"]])), own(sink).next)


def test_a_row_that_only_the_broker_finds_too_large_is_refused_with_its_topic(
    kafka_cluster: KafkaCluster,
) -> None:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    small = kafka_cluster.topic(1, {"max.message.bytes": "2000"})
    sink = kafka_cluster.sink()
    position = own(sink).next
    rows = Rows(small, [[b"%032x" % (number * 7919**9) for number in range(500)]])
    with pytest.raises(OutputRefused) as refused:
        sink.commit(transaction(1, rows), position)
    assert refused.value.topic == small


def test_a_producer_that_could_not_be_made_in_the_background_is_made_by_the_commit(
    kafka_cluster: KafkaCluster, output: Topic
) -> None:
    sink = kafka_cluster.sink()
    position = own(sink).next
    failed: Future[object] = Future()
    failed.set_exception(Unavailable("kafka", "told to fail"))
    slot = sink._slots[BUCKET]
    slot.ready.result()
    sink._slots[BUCKET] = replace(slot, ready=failed)  # type: ignore[arg-type]
    sink.commit(transaction(1, Rows(output, [[b"a"]])), position)
    assert committed(kafka_cluster, output) == [b"a"]


def test_a_producer_serves_one_transaction_whatever_becomes_of_it(
    kafka_cluster: KafkaCluster, output: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[BucketTransaction] = []
    begin = BucketTransaction.begin

    def counting(self: BucketTransaction) -> None:
        begun.append(self)
        begin(self)

    monkeypatch.setattr(BucketTransaction, "begin", counting)
    sink = kafka_cluster.sink()
    position = own(sink).next
    taken_back = transaction(1, Rows(output, [[b"never"]])).results
    sink.draft(BUCKET, taken_back, position)
    sink.draft(BUCKET, taken_back, position)
    done = sink.commit(transaction(1, Rows(output, [[b"a"]])), position)
    sink.commit(transaction(2, Rows(output, [[b"b"]])), done.next)
    # The claim, two drafts, and two commits.
    assert len(begun) == len(set(begun)) == 5
    assert committed(kafka_cluster, output) == [b"a", b"b"]


def test_a_claim_that_is_committed_but_not_there_is_none(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an unclean election, or where somebody made the topic again just then."""
    progress, commit = kafka_cluster.names.progress, BucketTransaction.commit
    kafka_cluster.create(progress, BUCKETS, {"cleanup.policy": "delete"})
    kafka_cluster.admin().ensure_internal(BUCKETS)

    def vanishing(self: BucketTransaction) -> None:
        commit(self)
        end = kafka_cluster.settled_end(progress, BUCKET)
        kafka_cluster.truncate(progress, BUCKET, end)

    monkeypatch.setattr(BucketTransaction, "commit", vanishing)
    with pytest.raises(Interrupted, match="is not there"):
        kafka_cluster.sink().claim(claim())


@pytest.fixture
def far_output(proxied_cluster: KafkaCluster) -> Topic:
    proxied_cluster.admin().ensure_internal(BUCKETS)
    return proxied_cluster.topic(1)


def in_background(sink: KafkaSink, work: Transaction, position: int) -> Future[Committed]:
    """Commit in a thread of its own."""
    outcome: Future[Committed] = Future()

    def run() -> None:
        try:
            outcome.set_result(sink.commit(work, position))
        except Exception as error:  # noqa: BLE001 -- it is the outcome
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


class Watched:
    """A lock that tells how often it was wanted and taken, and whether somebody has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.wanted = self.taken = 0

    @property
    def held(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> None:
        self.wanted += 1
        self._lock.acquire()
        self.taken += 1

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


def test_a_large_transaction_is_handed_over_in_many_turns(
    kafka_cluster: KafkaCluster, output: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars.adapters.kafka.sink.transaction.REQUEST_BYTES", 50_000)
    turn = Watched()
    sink = kafka_cluster.sink(turn)
    position = own(sink).next
    rows = Rows(output, [[b"%d" % number for number in range(3_000)], [b"a"], [b"b"] * 2_000])
    sink.commit(transaction(1, rows), position)
    assert turn.taken > 5
    assert len(visible(kafka_cluster, output)) == 5_001


def test_small_batches_are_handed_over_together(kafka_cluster: KafkaCluster, output: Topic) -> None:
    turn = Watched()
    sink = kafka_cluster.sink(turn)
    position = own(sink).next
    sink.commit(transaction(1, Rows(output, [[b"%d" % number] for number in range(50)])), position)
    assert turn.taken == 1
    assert len(visible(kafka_cluster, output)) == 50


def test_others_have_their_turn_while_the_brokers_take_nothing(
    kafka: ProxiedKafka, proxied_cluster: KafkaCluster, far_output: Topic
) -> None:
    turn = Watched()
    sink = proxied_cluster.sink(turn)
    position = own(sink).next
    rows = Rows(far_output, [[b"%d" % number for number in range(5_000)]])
    with turn:
        outcome = in_background(sink, transaction(1, rows), position)
        eventually(lambda: turn.wanted == 2)
        kafka.proxy.stall()
    eventually(lambda: turn.taken == 2 and not turn.held)
    assert not outcome.done()
    kafka.proxy.heal()
    outcome.result(COMMITTED_WITHIN_S)


@pytest.mark.parametrize("give_up", [KafkaSink.release, None])
def test_a_commit_whose_brokers_stand_still_is_interrupted_when_the_bucket_is_given_back(
    kafka: ProxiedKafka,
    proxied_cluster: KafkaCluster,
    far_output: Topic,
    give_up: Callable[[KafkaSink, Bucket], None] | None,
) -> None:
    sink = proxied_cluster.sink()
    position = own(sink).next
    sink._slots[BUCKET].ready.result()
    kafka.proxy.stall()
    outcome = in_background(sink, transaction(1, Rows(far_output, [[b"a"]])), position)
    eventually(lambda: BUCKET not in sink._slots)
    if give_up is not None:
        give_up(sink, BUCKET)
    else:
        proxied_cluster.opened.remove(sink)
        sink.close()
    assert isinstance(outcome.exception(10), Interrupted)
    kafka.proxy.heal()
    # Whoever claims the bucket next finds out: the transaction is in the topics wholly or not.
    newer = proxied_cluster.sink()
    records = own(newer, epoch=2).records
    emitted = [record for record in records if isinstance(record, Progress)]
    rows = committed(proxied_cluster, far_output)
    assert (len(emitted), rows) in ((0, []), (1, [b"a"]))


def test_a_transaction_that_outlived_its_time_is_not_committed(
    kafka: ProxiedKafka, proxied_cluster: KafkaCluster, far_output: Topic
) -> None:
    sink = proxied_cluster.sink()
    position = own(sink).next
    with pytest.MonkeyPatch.context() as patch:
        # As if the process had been stopped between the last record and the commit.
        fenced = threading.Event()
        patch.setattr(
            "mars.adapters.kafka.sink.transaction.BucketTransaction.commit",
            _after(lambda: _fence(proxied_cluster, fenced)),
        )
        with pytest.raises(Interrupted):
            sink.commit(transaction(1, Rows(far_output, [[b"late"]])), position)
    assert fenced.is_set()
    assert committed(proxied_cluster, far_output) == []
    assert len(own(sink).records) == 2


def _after(before: Callable[[], None]) -> Callable[[object], None]:
    original = BucketTransaction.commit

    def commit(self: BucketTransaction) -> None:
        before()
        original(self)

    return commit  # type: ignore[return-value]


def _fence(cluster: KafkaCluster, done: threading.Event) -> None:
    """What the coordinator does to a transaction that is too old: it ends it with a new epoch."""
    cluster.writer(cluster.names.transactional_id(BUCKET)).abort()
    done.set()


def test_a_claim_without_brokers_is_unavailable(
    kafka: ProxiedKafka,
    proxied_cluster: KafkaCluster,
    far_output: Topic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mars.adapters.kafka.sink.transaction.CONNECT_TIMEOUT_S", 0.5)
    sink = proxied_cluster.sink()
    kafka.proxy.cut()
    with pytest.raises(Unavailable):
        sink.claim(claim())
    kafka.proxy.heal()
    own(sink)


@pytest.mark.parametrize(
    ("end", "known", "marker", "may"),
    [
        (10, 10, 10, False),  # nothing lies at or above `known`
        (9, 10, 10, False),
        (11, 10, 10, False),  # only our own marker
        (11, 10, 9, True),  # the marker lies below: one offset is not explained
        (12, 10, 10, True),
        (12, 10, 11, True),
    ],
)
def test_a_foreign_record_is_looked_for_wherever_an_offset_is_not_explained(
    end: int, known: int, marker: int, may: bool
) -> None:
    assert may_hold_foreign(end, known, marker) is may
