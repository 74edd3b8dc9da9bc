"""Transactions whose markers Kafka has lost: what hangs is ended, what was committed comes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mars.adapters.kafka.recovery import looking
from mars.adapters.kafka.recovery.hanging import SETTLES_MAX, Ends, hanging
from mars.adapters.kafka.sink import sink as kafka_sink
from mars.adapters.kafka.wire import encode_progress, state_key
from mars.adapters.memory import sink as memory_sink
from mars.core.errors import Interrupted
from mars.core.types import Topic
from mars.engine.codec.result_headers import BUCKET as BUCKET_HEADER
from mars.engine.codec.result_headers import number
from mars.local.servers import KafkaServer
from mars.protocol.ports import (
    Progress,
    ProgressRecord,
    References,
    ResultSink,
    Transaction,
)
from tests.conftest import missing_kafka, need
from tests.contracts.hanging import (
    UNVERIFIED,
    Hang,
    Row,
    after_settling,
    hang_of,
    lose_drafts_abort,
    lose_progress_to_a_claim,
    lose_settling_aborts,
)
from tests.contracts.kafka_servers import BUCKETS, Cluster, KafkaCluster, MemoryCluster, Writer
from tests.contracts.transactions import (
    BUCKET,
    OTHER_TASK,
    TASK,
    Rows,
    claim,
    committed,
    own,
    progress,
    saving,
    transaction,
    visible,
)
from tests.contracts.waiting import READY_WITHIN_S, started


@pytest.fixture(scope="module")
def unverified_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that takes records of transactions that nobody began."""
    need(missing_kafka())
    server = started(KafkaServer(tmp_path_factory.mktemp("kafka"), properties=UNVERIFIED))
    yield server
    server.stop(READY_WITHIN_S)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """With the topics of Mars in it."""
    found: Cluster = MemoryCluster()
    if request.param == "kafka":
        found = KafkaCluster(request.getfixturevalue("unverified_kafka").bootstrap)
        found.writer().abort()  # Until somebody asks for the coordinator there is none.
    found.admin().ensure_internal(BUCKETS)
    yield found
    found.close()


@pytest.fixture
def hang(cluster: Cluster) -> Hang:
    return hang_of(cluster)


@pytest.fixture
def output(cluster: Cluster) -> Topic:
    return cluster.topic(1)


def written_end(cluster: Cluster, topic: Topic) -> int:
    """Behind the last record of the topic's first partition, committed or not."""
    if isinstance(cluster, MemoryCluster):
        return cluster.broker.partition(topic, 0).end
    assert isinstance(cluster, KafkaCluster)
    return cluster.admin().written_end(topic, 0)


def hung_rows(hang: Hang, output: Topic, values: list[bytes], emit: int = 1) -> Progress:
    """Rows that hang at the beginning of the topic; the progress that belongs to them."""
    rows = Rows(output, [values])
    (batch,) = rows.results(emit)
    hang(output, 0, [Row(value, b"[0]", batch.headers) for value in values])
    found = replace(rows.emission(emit), first=0, last=len(values) - 1)
    return replace(rows.progress(emit), emission=found)


def commit_only(cluster: Cluster, record: Progress) -> None:
    """Progress whose effects hang: it is committed, they are not."""
    sink = cluster.sink()
    later = replace(record, emit=record.emit + 1)
    sink.commit(Transaction(BUCKET, (), (), (later,)), own(sink).next)
    sink.release(BUCKET)


def last(records: tuple[ProgressRecord, ...]) -> Progress:
    return [record for record in records if isinstance(record, Progress)][-1]


def hang_progress(cluster: Cluster, hang: Hang, record: ProgressRecord) -> None:
    hang(cluster.names.progress, BUCKET, [Row(encode_progress(record), b"key")])


def test_rows_without_progress_never_come_to_light(
    cluster: Cluster, hang: Hang, output: Topic
) -> None:
    hung_rows(hang, output, [b"never", b"never"])
    sink = cluster.sink()
    position = own(sink).next
    sink.commit(transaction(1, Rows(output, [[b"a"]])), position)
    assert committed(cluster, output) == [b"a"]


def test_rows_that_hang_where_the_last_emission_lies_never_come_to_light(
    cluster: Cluster, hang: Hang, output: Topic
) -> None:
    sink = cluster.sink()
    sink.commit(transaction(1, Rows(output, [[b"a"]])), own(sink).next)
    sink.release(BUCKET)
    hung_rows(hang, output, [b"never"], emit=2)
    claimed = own(sink, epoch=2)
    assert claimed.restored == ()
    sink.commit(transaction(2, Rows(output, [[b"b"]]), epoch=2), claimed.next)
    assert committed(cluster, output) == [b"a", b"b"]


def test_rows_of_committed_progress_come_back_once(
    cluster: Cluster, hang: Hang, output: Topic
) -> None:
    record = hung_rows(hang, output, [b"a", b"b", b"c"])
    commit_only(cluster, record)
    sink = cluster.sink()
    claimed = own(sink, epoch=2)
    assert len(claimed.restored) == 1
    assert "3 rows" in claimed.restored[0]
    again = last(claimed.records)
    assert (again.emit, again.assignment_epoch) == (record.emit + 2, 2)
    assert (again.merged, again.ledger) == (record.merged, record.ledger)
    assert again.emission is not None
    assert again.emission.first > 2
    assert cluster.sink().audit(again.emission, BUCKET) is None
    next_rows = Rows(output, [[b"d"]])
    sink.commit(transaction(again.emit + 1, next_rows, epoch=2), claimed.next)
    assert committed(cluster, output) == [b"a", b"b", b"c", b"d"]
    assert own(cluster.sink(), epoch=3).restored == ()


def test_progress_that_hangs_counts_and_its_rows_come_back(
    cluster: Cluster, hang: Hang, output: Topic
) -> None:
    record = hung_rows(hang, output, [b"a", b"b"])
    hang_progress(cluster, hang, record)
    claimed = own(cluster.sink())
    assert record in claimed.records
    assert committed(cluster, output) == [b"a", b"b"]


def test_progress_that_fell_with_a_broken_claim_counts_and_its_rows_come_back(
    cluster: Cluster, hang: Hang, output: Topic
) -> None:
    record = hung_rows(hang, output, [b"a", b"b"])
    hang_progress(cluster, hang, record)
    for epoch in (1, 2):
        broken = cluster.writer(cluster.names.transactional_id(BUCKET))
        # Each broken claim but the first has written again what it found.
        again = [encode_progress(record)] if epoch > 1 else []
        broken.write(cluster.names.progress, BUCKET, [*again, encode_progress(claim(epoch))])
        broken.abort()
    claimed = own(cluster.sink(), epoch=3)
    assert [each for each in claimed.records if each == record] == [record]
    assert len(claimed.restored) == 2
    assert committed(cluster, output) == [b"a", b"b"]


def test_an_owner_notices_that_its_progress_fell_with_the_broken_claim_of_another(
    cluster: Cluster, hang: Hang, output: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = cluster.sink()
    position = own(sink).next
    lose_progress_to_a_claim(cluster, hang, encode_progress(claim(2)), monkeypatch)
    done = sink.commit(transaction(1, Rows(output, [[b"a"]])), position)

    with pytest.raises(Interrupted, match="taken back with the claim of another owner"):
        sink.commit(transaction(2, Rows(output, [[b"b"]])), done.next)
    claimed = own(sink, epoch=3)

    assert [one.emit for one in claimed.records if isinstance(one, Progress)] == [1]
    sink.commit(transaction(2, Rows(output, [[b"b"]]), epoch=3), claimed.next)
    assert committed(cluster, output) == [b"a", b"b"]


def test_progress_that_was_aborted_before_a_broken_claim_does_not_count(
    cluster: Cluster, output: Topic
) -> None:
    for record in (progress(1), claim()):
        writer = cluster.writer(cluster.names.transactional_id(BUCKET))
        writer.write(cluster.names.progress, BUCKET, [encode_progress(record)])
        writer.abort()
        cluster.settled_end(cluster.names.progress, BUCKET)
    assert len(own(cluster.sink(), epoch=2).records) == 1


def test_rows_that_are_no_longer_whole_are_left_to_the_audit(
    cluster: Cluster, hang: Hang, output: Topic
) -> None:
    record = hung_rows(hang, output, [b"a", b"b"])
    assert record.emission is not None
    commit_only(cluster, replace(record, emission=replace(record.emission, count=3)))
    sink = cluster.sink()
    claimed = own(sink, epoch=2)
    assert claimed.restored == ()
    emission = last(claimed.records).emission
    assert emission is not None
    assert "0 rows of 3" in (sink.audit(emission, BUCKET) or "")
    assert committed(cluster, output) == []


def test_a_snapshot_that_hangs_comes_back(cluster: Cluster, hang: Hang) -> None:
    parts = (b"one", b"two")
    (record,) = saving(1, parts).progress
    rows = [Row(part, state_key(TASK, 1, BUCKET, at)) for at, part in enumerate(parts)]
    hang(cluster.names.state, BUCKET, rows)
    assert record.snapshot is not None
    commit_only(cluster, replace(record, snapshot=replace(record.snapshot, first=0, last=1)))
    sink = cluster.sink()
    claimed = own(sink, epoch=2)
    assert len(claimed.restored) == 1
    assert sink.saved(last(claimed.records)) == parts
    assert committed(cluster, cluster.names.state, BUCKET) == [*parts]


def test_references_that_hang_come_back_and_hide_no_others(cluster: Cluster, hang: Hang) -> None:
    dead = cluster.names.dead
    partition = BUCKET % len(cluster.admin().ends(dead))
    ours = ((BUCKET_HEADER, number(BUCKET)),)
    hang(dead, partition, [Row(b"bad-1", None, ours), Row(b"bad-2", None, ours)])
    cluster.append(dead, partition, [b"other"], headers=[(BUCKET_HEADER, b"77")])
    commit_only(cluster, replace(progress(1), references=References(partition, 0, 1, 2)))
    claimed = own(cluster.sink(), epoch=2)
    assert len(claimed.restored) == 1
    assert last(claimed.records).references != References(partition, 0, 1, 2)
    assert committed(cluster, dead, partition) == [b"other", b"bad-1", b"bad-2"]


def test_references_without_progress_never_come_to_light(cluster: Cluster, hang: Hang) -> None:
    dead = cluster.names.dead
    partition = BUCKET % len(cluster.admin().ends(dead))
    hang(dead, partition, [Row(b"never", None, ((BUCKET_HEADER, number(BUCKET)),))])
    sink = cluster.sink()
    sink.commit(transaction(1, dead=(b"bad",)), own(sink).next)
    assert committed(cluster, dead, partition) == [b"bad"]


# ------------------------------------------------------------- aborts that lose their markers, too


@pytest.mark.parametrize("times", [1, 2])
def test_rows_that_outlive_the_abort_that_settles_never_come_to_light(
    cluster: Cluster, hang: Hang, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    outputs = [cluster.topic(1), cluster.topic(1)]
    for output in outputs:
        hung_rows(hang, output, [b"never", b"never"])
    sink = cluster.sink()
    position = own(sink).next
    lose_settling_aborts(cluster, hang, times, monkeypatch)
    rows = Rows(outputs[0], [[b"a"]]), Rows(outputs[1], [[b"b"]], task=OTHER_TASK)
    sink.commit(transaction(1, *rows), position)
    assert [committed(cluster, output) for output in outputs] == [[b"a"], [b"b"]]


@pytest.mark.parametrize("times", [1, 2])
def test_saved_panes_that_outlive_the_abort_that_settles_never_come_to_light(
    cluster: Cluster, hang: Hang, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    state = cluster.names.state
    hang(state, BUCKET, [Row(b"never", state_key(TASK, 1, BUCKET, 2))])
    sink = cluster.sink()
    position = own(sink).next
    lose_settling_aborts(cluster, hang, times, monkeypatch)
    sink.commit(saving(1, (b"one", b"two")), position)
    assert committed(cluster, state, BUCKET) == [b"one", b"two"]


@pytest.mark.parametrize("times", [1, 2])
def test_references_that_outlive_the_abort_that_settles_never_come_to_light(
    cluster: Cluster, hang: Hang, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    dead = cluster.names.dead
    partition = BUCKET % len(cluster.admin().ends(dead))
    hang(dead, partition, [Row(b"never", None, ((BUCKET_HEADER, number(BUCKET)),))])
    lose_settling_aborts(cluster, hang, times, monkeypatch)
    sink = cluster.sink()
    sink.commit(transaction(1, dead=(b"bad",)), own(sink).next)
    assert committed(cluster, dead, partition) == [b"bad"]


@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("again", [False, True], ids=["a commit", "a draft and its commit"])
def test_a_draft_that_hangs_after_it_was_taken_back_never_comes_to_light(
    cluster: Cluster,
    hang: Hang,
    output: Topic,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    again: bool,
) -> None:
    sink = cluster.sink()
    position = own(sink).next
    (drafted,) = transaction(1, Rows(output, [[b"never"]])).results
    sink.draft(BUCKET, (drafted,), position)
    rows = [Row(b"never", b"[0]", drafted.headers)]
    lose_drafts_abort(cluster, hang, output, rows, monkeypatch)
    sink.draft(BUCKET, (), position)
    assert cluster.admin().ends(output)[0] < written_end(cluster, output)
    lose_settling_aborts(cluster, hang, times, monkeypatch)
    due = transaction(1, Rows(output, [[b"a"]]))
    if again:
        sink.draft(BUCKET, due.results, position)
    sink.commit(due, position)
    assert committed(cluster, output) == [b"a"]


def test_rows_that_outlive_each_abort_are_ended_by_the_next_claim(
    cluster: Cluster, hang: Hang, output: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung_rows(hang, output, [b"never"])
    sink = cluster.sink()
    position = own(sink).next
    lose_settling_aborts(cluster, hang, SETTLES_MAX, monkeypatch)
    with pytest.raises(Interrupted, match="an abort had no effect"):
        sink.commit(transaction(1, Rows(output, [[b"a"]])), position)
    assert visible(cluster, output) == []
    sink.commit(transaction(1, Rows(output, [[b"a"]])), own(sink).next)
    assert committed(cluster, output) == [b"a"]


@pytest.mark.parametrize("lost", [0, 1])
def test_behind_the_open_transaction_of_others_an_abort_is_known_by_its_offset(
    cluster: Cluster, hang: Hang, output: Topic, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    hiding = cluster.writer()
    hiding.write(output, 0, [b"theirs"])
    hung_rows(hang, output, [b"never"])
    sink = cluster.sink()
    position = own(sink).next
    lose_settling_aborts(cluster, hang, lost, monkeypatch)
    sink.commit(transaction(1, Rows(output, [[b"a"]])), position)
    assert visible(cluster, output) == []
    hiding.abort()
    assert committed(cluster, output) == [b"a"]
    # Theirs, what hung, a settling record for each abort, one marker, the row and its marker, and
    # the marker of theirs. All are written by now: a commit is answered before its marker is.
    assert written_end(cluster, output) == 2 + (lost + 1) + 1 + 2 + 1


def mistaken(
    cluster: Cluster, hang: Hang, output: Topic, patch: pytest.MonkeyPatch
) -> tuple[ResultSink, int, Writer]:
    """The next abort that settles has no marker, and behind its record lies one of others.

    The sink, its position, and who has a transaction open in front.
    """
    staying, ending = cluster.writer(), [cluster.writer()]
    for writer in (staying, *ending):
        writer.write(output, 0, [b"theirs"])
    hung_rows(hang, output, [b"never"])
    sink = cluster.sink()
    position = own(sink).next
    lose_settling_aborts(cluster, hang, 1, patch)

    def end() -> None:
        while ending:
            ending.pop().abort()

    after_settling(cluster, end, patch)
    return sink, position, staying


def test_where_others_marker_may_be_taken_for_ours_the_bucket_waits(
    cluster: Cluster, hang: Hang, output: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, position, staying = mistaken(cluster, hang, output, monkeypatch)
    monkeypatch.setattr(looking, "VISIBLE_TIMEOUT_S", 1)
    due = transaction(1, Rows(output, [[b"a"]]))
    with pytest.raises(Interrupted, match="cannot be told"):
        sink.commit(due, position)
    staying.abort()
    monkeypatch.undo()
    sink.commit(due, own(sink, epoch=2).next)
    assert committed(cluster, output) == [b"a"]


def test_it_goes_on_when_those_in_front_have_ended(
    cluster: Cluster, hang: Hang, output: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, position, staying = mistaken(cluster, hang, output, monkeypatch)
    untold: list[Ends] = []

    def ending(*arguments: Any) -> Ends:
        ends = hanging(*arguments)
        if ends.untold and not untold:
            staying.abort()
            untold.append(ends)
        return ends

    for module in (kafka_sink, memory_sink):
        monkeypatch.setattr(module, "hanging", ending)
    sink.commit(transaction(1, Rows(output, [[b"a"]])), position)
    assert len(untold) == 1
    assert committed(cluster, output) == [b"a"]
