from __future__ import annotations

from dataclasses import replace

import pytest

from mars.adapters.kafka.wire import encode_progress, progress_key
from mars.core.definitions import resume_helps
from mars.core.errors import Fenced, Interrupted, OutputRefused, SourceMadeAnew, Unavailable
from mars.core.types import Bucket, Topic
from mars.engine.codec.result_headers import result_headers
from mars.protocol.ports import Emission, References, SourceTopic, Transaction
from tests.contracts.kafka_servers import BUCKETS, Cluster
from tests.contracts.transactions import (
    BUCKET,
    OTHER_TASK,
    TASK,
    Rows,
    claim,
    committed,
    own,
    progress,
    progress_after,
    transaction,
    visible,
)
from tests.contracts.waiting import eventually


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With the topics of Mars in it."""
    cluster.admin().ensure_internal(BUCKETS)
    return cluster


@pytest.fixture
def output(cluster: Cluster) -> Topic:
    return cluster.topic(2)


# ---------------------------------------------------------------------------------------- claim


def test_a_claim_answers_with_all_records_before_it_and_itself(
    cluster: Cluster, output: Topic
) -> None:
    sink = cluster.sink()
    first = claim(1)
    claimed = sink.claim(first)
    assert claimed.records == (first,)
    done = sink.commit(transaction(1, Rows(output, [[b"a"]])), claimed.next)
    sink.release(BUCKET)
    second = claim(2, member="reducer-2")
    again = sink.claim(second)
    assert again.records == (first, *done.progress, second)
    assert again.next > done.next


def test_a_claim_does_not_see_what_was_never_committed(cluster: Cluster) -> None:
    writer = cluster.writer(cluster.names.transactional_id(BUCKET))
    record = encode_progress(progress(1))
    writer.write(cluster.names.progress, BUCKET, [record])
    claimed = own(cluster.sink())
    assert len(claimed.records) == 1


def test_a_claim_settles_the_open_transaction_of_an_older_owner_so_that_readers_go_on(
    cluster: Cluster, output: Topic
) -> None:
    writer = cluster.writer(cluster.names.transactional_id(BUCKET))
    writer.write(output, 0, [b"never"])
    cluster.append(output, 0, [b"other"])
    admin = cluster.admin()
    assert admin.ends(output)[0] == 0
    own(cluster.sink())
    eventually(lambda: admin.ends(output)[0] > 1)
    assert committed(cluster, output) == [b"other"]


def test_a_claim_of_an_older_epoch_is_fenced(cluster: Cluster) -> None:
    own(cluster.sink(), epoch=5)
    with pytest.raises(Fenced):
        own(cluster.sink(), epoch=4)


def test_a_claim_of_the_same_epoch_after_an_error_succeeds(cluster: Cluster) -> None:
    sink = cluster.sink()
    own(sink, epoch=5)
    assert len(own(sink, epoch=5).records) == 2


def test_a_claim_sees_a_newer_owner_by_its_progress_too(cluster: Cluster) -> None:
    record = progress(1, epoch=9)
    cluster.append(
        cluster.names.progress, BUCKET, [encode_progress(record)], key=progress_key(record)
    )
    with pytest.raises(Fenced):
        own(cluster.sink(), epoch=8)


# ---------------------------------------------------------------------------------------- commit


def test_a_commit_writes_rows_references_and_progress_together(
    cluster: Cluster, output: Topic
) -> None:
    sink = cluster.sink()
    claimed = own(sink)
    rows = Rows(output, [[b"a", b"b", b"c"]])
    done = sink.commit(transaction(1, rows, dead=(b"dead-1", b"dead-2")), claimed.next)
    assert committed(cluster, output) == [b"a", b"b", b"c"]
    dead = cluster.names.dead
    partition = BUCKET % len(cluster.admin().ends(dead))
    assert committed(cluster, dead, partition) == [b"dead-1", b"dead-2"]
    assert progress_after(cluster, claimed.next) == done.progress
    (record,) = done.progress
    assert record == replace(
        rows.progress(1),
        emission=replace(rows.emission(1), first=0, last=2),
        references=References(partition, 0, 1, 2),
    )


def test_commits_follow_each_other_and_each_next_is_where_the_last_one_ended(
    cluster: Cluster, output: Topic
) -> None:
    sink = cluster.sink()
    position = own(sink).next
    for emit in (1, 2, 3, 4):
        done = sink.commit(transaction(emit, Rows(output, [[b"%d" % emit]])), position)
        assert progress_after(cluster, position) == done.progress
        assert done.next > position
        position = done.next
    assert committed(cluster, output) == [b"1", b"2", b"3", b"4"]


def test_offsets_of_each_task_version_span_all_its_batches(cluster: Cluster, output: Topic) -> None:
    sink = cluster.sink()
    claimed = own(sink)
    first = Rows(output, [[b"a", b"b"], [], [b"c"]])
    other = Rows(output, [[b"d"]], task=OTHER_TASK)
    newer = Rows(output, [[b"e", b"f"]], version=2)
    elsewhere = Rows(output, [[b"g"]], task=OTHER_TASK, version=2, partition=1)
    mixed = transaction(1, first, other, newer, elsewhere)
    # The batches of one version need not come side by side.
    results = mixed.results
    mixed = replace(mixed, results=(results[0], results[3], *results[1:3], *results[4:]))
    done = sink.commit(mixed, claimed.next)
    spans = [
        (record.task, record.version, record.emission.first, record.emission.last)
        for record in done.progress
        if record.emission is not None
    ]
    assert spans == [
        (TASK, 1, 0, 2),
        (OTHER_TASK, 1, 3, 3),
        (TASK, 2, 4, 5),
        (OTHER_TASK, 2, 0, 0),
    ]
    for record in done.progress:
        assert record.emission is not None
        assert sink.audit(record.emission, BUCKET) is None
    assert committed(cluster, output) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_an_emission_of_an_earlier_emit_number_is_carried_on_as_it_is(
    cluster: Cluster, output: Topic
) -> None:
    sink = cluster.sink()
    claimed = own(sink)
    carried = progress(7, emission=Emission(output, 0, 3, 11, 17, 4, 99))
    done = sink.commit(Transaction(BUCKET, (), (), (carried,)), claimed.next)
    assert done.progress == (carried,)


def test_the_last_record_of_a_deleted_task_is_a_record(cluster: Cluster) -> None:
    sink = cluster.sink()
    claimed = own(sink)
    last = progress(3, deleted=True)
    sink.commit(Transaction(BUCKET, (), (), (last,)), claimed.next)
    assert progress_after(cluster, claimed.next) == (last,)


def test_a_commit_without_progress_leaves_the_position(cluster: Cluster) -> None:
    sink = cluster.sink()
    claimed = own(sink)
    dead_only = Transaction(BUCKET, (), (b"dead",), ())
    assert sink.commit(dead_only, claimed.next).next == claimed.next
    sink.commit(transaction(1), claimed.next)


def test_a_commit_without_a_claim_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Interrupted, match="claim"):
        cluster.sink().commit(transaction(1), 0)


def test_a_released_bucket_must_be_claimed_again(cluster: Cluster) -> None:
    sink = cluster.sink()
    claimed = own(sink)
    sink.release(BUCKET)
    with pytest.raises(Interrupted):
        sink.commit(transaction(1), claimed.next)
    sink.commit(transaction(1), own(sink).next)


# --------------------------------------------------------------------------------------- fencing


def test_an_owner_that_was_taken_over_can_commit_nothing_more(
    cluster: Cluster, output: Topic
) -> None:
    older, newer = cluster.sink(), cluster.sink()
    known = own(older, epoch=1)
    position = own(newer, epoch=2).next
    with pytest.raises((Fenced, Interrupted)):
        older.commit(transaction(1, Rows(output, [[b"zombie"]])), known.next)
    with pytest.raises(Fenced):
        own(older, epoch=1)
    # The older owner's last claim may have cost the newer one its producer, not its bucket.
    try:
        newer.commit(transaction(1, Rows(output, [[b"good"]]), epoch=2), position)
    except Interrupted:
        position = own(newer, epoch=2).next
        newer.commit(transaction(1, Rows(output, [[b"good"]]), epoch=2), position)
    assert committed(cluster, output) == [b"good"]


@pytest.mark.parametrize(("epoch", "then"), [(9, Fenced), (0, None)])
def test_a_record_that_somebody_else_wrote_stops_the_next_commit(
    cluster: Cluster, output: Topic, epoch: int, then: type[Exception] | None
) -> None:
    sink = cluster.sink()
    claimed = own(sink, epoch=1)
    foreign = progress(50, epoch=epoch)
    cluster.append(
        cluster.names.progress, BUCKET, [encode_progress(foreign)], key=progress_key(foreign)
    )
    with pytest.raises((Fenced, Interrupted)):
        sink.commit(transaction(1, Rows(output, [[b"x"]])), claimed.next)
    assert visible(cluster, output) == []
    if then is None:
        assert foreign in own(sink, epoch=1).records
    else:
        with pytest.raises(then):
            own(sink, epoch=1)


# ----------------------------------------------------------------------------------------- audit


def emitted(cluster: Cluster, rows: Rows) -> Emission:
    sink = cluster.sink()
    done = sink.commit(transaction(1, rows), own(sink).next)
    emission = done.progress[0].emission
    assert emission is not None
    return emission


def test_the_audit_finds_missing_doubled_and_changed_rows(cluster: Cluster, output: Topic) -> None:
    sink = cluster.sink()
    emission = emitted(cluster, Rows(output, [[b"a", b"b", b"c"]]))
    assert sink.audit(emission, BUCKET) is None
    assert "3 rows of 4" in (sink.audit(replace(emission, count=4), BUCKET) or "")
    assert "2 rows of 3" in (sink.audit(replace(emission, last=1), BUCKET) or "")
    assert "checksum" in (sink.audit(replace(emission, checksum=1), BUCKET) or "")
    assert "0 rows of 3" in (sink.audit(replace(emission, emit=2), BUCKET) or "")
    assert "0 rows of 3" in (sink.audit(emission, Bucket(3)) or "")


def test_the_audit_leaves_out_rows_of_others_between_the_offsets(
    cluster: Cluster, output: Topic
) -> None:
    rows = Rows(output, [[b"a"]])
    emission = emitted(cluster, rows)
    other = result_headers(TASK, 1, Bucket(3), 1, complete=True)
    cluster.append(output, 0, [b"other"], headers=other)
    cluster.append(output, 0, [b"nobody's"])
    cluster.append(output, 0, [b"b"], headers=rows.results(1)[0].headers)
    wider = replace(rows.emission(1), first=emission.first)
    both = Rows(output, [[b"a", b"b"]]).emission(1)
    found = replace(wider, last=emission.last + 4, count=2, checksum=both.checksum)
    assert cluster.sink().audit(found, BUCKET) is None


def test_the_audit_does_not_see_rows_that_were_never_committed(
    cluster: Cluster, output: Topic
) -> None:
    rows = Rows(output, [[b"a"]])
    writer = cluster.writer()
    writer.write(output, 0, [b"a"])
    writer.abort()
    recorded = replace(rows.emission(1), first=0, last=0)
    assert "0 rows of 1" in (cluster.sink().audit(recorded, BUCKET) or "")


def test_the_audit_waits_for_a_transaction_that_hides_the_rows(
    cluster: Cluster, output: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars.adapters.kafka.recovery.looking.VISIBLE_TIMEOUT_S", 0.2)
    hiding = cluster.writer()
    hiding.write(output, 0, [b"hides what follows"])
    emission = emitted(cluster, Rows(output, [[b"a"]]))
    with pytest.raises(Unavailable, match="open transaction"):
        cluster.sink().audit(emission, BUCKET)
    hiding.abort()
    monkeypatch.undo()
    assert cluster.sink().audit(emission, BUCKET) is None


def test_the_audit_says_nothing_of_rows_that_retention_took(
    cluster: Cluster, output: Topic
) -> None:
    emission = emitted(cluster, Rows(output, [[b"a", b"b", b"c"]]))
    cluster.truncate(output, 0, emission.first + 1)
    assert cluster.sink().audit(emission, BUCKET) is None


def test_the_audit_says_that_a_topic_is_gone(cluster: Cluster, output: Topic) -> None:
    emission = emitted(cluster, Rows(output, [[b"a"]]))
    cluster.delete(output)
    assert f"there is no {output}" in (cluster.sink().audit(emission, BUCKET) or "")


# --------------------------------------------------------------------------------------- sources


def test_rows_of_a_topic_that_was_made_anew_are_not_committed(
    cluster: Cluster, output: Topic
) -> None:
    source = cluster.topic(2)
    known = cluster.admin().describe(source)
    assert known is not None
    read = SourceTopic(TASK, source, known.topic_id)

    def due(emit: int, row: bytes) -> Transaction:
        return replace(transaction(emit, Rows(output, [[row]])), sources=(read,))

    sink = cluster.sink()
    done = sink.commit(due(1, b"before"), own(sink).next)
    cluster.delete(source)
    eventually(lambda: cluster.admin().describe(source) is None)
    done = sink.commit(due(2, b"while it is gone"), done.next)
    cluster.admin().ensure_output(source, 2)
    with pytest.raises(SourceMadeAnew, match=f"{source} was deleted and made again") as refused:
        sink.commit(due(3, b"after"), done.next)
    assert refused.value.task == TASK
    assert not resume_helps(str(refused.value))
    assert committed(cluster, output) == [b"before", b"while it is gone"]


# --------------------------------------------------------------------------------------- outputs


def test_a_topic_that_is_gone_is_named_and_stops_no_other_task(
    cluster: Cluster, output: Topic
) -> None:
    sink = cluster.sink()
    claimed = own(sink)
    gone = Topic(f"{output}.gone")
    good, lost = Rows(output, [[b"good"]]), Rows(gone, [[b"lost"]], task=OTHER_TASK)
    with pytest.raises(OutputRefused) as refused:
        sink.commit(transaction(1, good, lost), claimed.next)
    assert (refused.value.task, refused.value.topic) == (OTHER_TASK, gone)
    assert visible(cluster, output) == []
    sink.commit(transaction(1, good), own(sink).next)
    assert committed(cluster, output) == [b"good"]
