"""Rows that are written before their transaction is due: seen with it, or never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.adapters.kafka.wire import encode_progress, progress_key
from mars.core.errors import Fenced, Interrupted, OutputRefused
from mars.core.types import Bucket, Topic
from tests.contracts.kafka_servers import BUCKETS, Cluster, MemoryCluster
from tests.contracts.transactions import (
    BUCKET,
    OTHER_TASK,
    TASK,
    Rows,
    committed,
    own,
    progress,
    progress_after,
    saving,
    transaction,
    visible,
)


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With the topics of Mars in it."""
    cluster.admin().ensure_internal(BUCKETS)
    return cluster


@pytest.fixture
def output(cluster: Cluster) -> Topic:
    return cluster.topic(2)


def test_nobody_sees_a_draft_and_its_commit_shows_it_once(cluster: Cluster, output: Topic) -> None:
    sink = cluster.sink()
    position = own(sink).next
    due = transaction(1, Rows(output, [[b"a", b"b"], [b"c"]]))
    sink.draft(BUCKET, due.results, position)
    assert visible(cluster, output) == []
    done = sink.commit(due, position)
    assert committed(cluster, output) == [b"a", b"b", b"c"]
    assert progress_after(cluster, position) == done.progress
    emission = done.progress[0].emission
    assert emission is not None
    assert (emission.first, emission.last, emission.count) == (0, 2, 3)
    assert sink.audit(emission, BUCKET) is None


def test_a_draft_is_committed_with_all_that_belongs_to_it(cluster: Cluster, output: Topic) -> None:
    sink = cluster.sink()
    position = own(sink).next
    rows = Rows(output, [[b"a"]])
    other = Rows(output, [[b"b", b"c"]], task=OTHER_TASK, partition=1)
    due = transaction(1, rows, other, dead=(b"late",))
    state = saving(1, (b"part one", b"part two"))
    first, second = due.progress
    due = replace(
        due,
        progress=(replace(first, snapshot=state.progress[0].snapshot), second),
        snapshots=state.snapshots,
    )
    sink.draft(BUCKET, due.results, position)
    done = sink.commit(due, position)
    assert committed(cluster, output) == [b"a"]
    assert committed(cluster, output, 1) == [b"b", b"c"]
    dead = cluster.names.dead
    partition = BUCKET % len(cluster.admin().ends(dead))
    assert committed(cluster, dead, partition) == [b"late"]
    assert sink.saved(done.progress[0]) == (b"part one", b"part two")


def test_drafts_and_commits_follow_each_other(cluster: Cluster, output: Topic) -> None:
    sink = cluster.sink()
    position = own(sink).next
    for emit in (1, 2, 3, 4):
        due = transaction(emit, Rows(output, [[b"%d" % emit]]))
        if emit % 2:
            sink.draft(BUCKET, due.results, position)
        position = sink.commit(due, position).next
    assert committed(cluster, output) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    "others",
    [[[b"a", b"b", b"c"]], [[b"a"]], [[b"a", b"x"]], []],
    ids=["more", "fewer", "others", "none"],
)
def test_before_a_commit_of_other_rows_the_draft_is_taken_back(
    cluster: Cluster, output: Topic, others: list[list[bytes]]
) -> None:
    sink = cluster.sink()
    position = own(sink).next
    sink.draft(BUCKET, transaction(1, Rows(output, [[b"a", b"b"]])).results, position)
    due = transaction(1, Rows(output, others)) if others else transaction(1)
    done = sink.commit(due, position)
    wanted = [value for batch in others for value in batch]
    assert committed(cluster, output) == wanted
    if others:
        assert done.progress[0].emission is not None
        assert sink.audit(done.progress[0].emission, BUCKET) is None
    sink.commit(transaction(2, Rows(output, [[b"next"]])), done.next)
    assert committed(cluster, output) == [*wanted, b"next"]


def test_the_same_rows_of_another_number_are_other_rows(cluster: Cluster, output: Topic) -> None:
    sink = cluster.sink()
    position = own(sink).next
    sink.draft(BUCKET, transaction(1, Rows(output, [[b"a"]])).results, position)
    done = sink.commit(transaction(2, Rows(output, [[b"a"]])), position)
    assert committed(cluster, output) == [b"a"]
    assert done.progress[0].emission is not None
    assert sink.audit(done.progress[0].emission, BUCKET) is None


def test_a_draft_can_be_taken_back_and_made_anew(cluster: Cluster, output: Topic) -> None:
    sink = cluster.sink()
    position = own(sink).next
    for _again in range(2):
        sink.draft(BUCKET, transaction(1, Rows(output, [[b"never"]])).results, position)
        sink.draft(BUCKET, (), position)
        assert committed(cluster, output) == []
    sink.draft(BUCKET, transaction(1, Rows(output, [[b"neither"]])).results, position)
    due = transaction(1, Rows(output, [[b"a"]]))
    sink.draft(BUCKET, due.results, position)
    sink.commit(due, position)
    assert committed(cluster, output) == [b"a"]


def test_to_take_back_where_there_is_no_draft_changes_nothing(
    cluster: Cluster, output: Topic
) -> None:
    sink = cluster.sink()
    position = own(sink).next
    sink.draft(BUCKET, (), position)
    sink.commit(transaction(1, Rows(output, [[b"a"]])), position)
    assert committed(cluster, output) == [b"a"]


def test_a_draft_without_a_claim_is_refused(cluster: Cluster, output: Topic) -> None:
    with pytest.raises(Interrupted, match="claim"):
        cluster.sink().draft(BUCKET, transaction(1, Rows(output, [[b"a"]])).results, 0)


def test_the_draft_of_a_bucket_that_is_given_back_is_never_seen(
    cluster: Cluster, output: Topic
) -> None:
    older, newer = cluster.sink(), cluster.sink()
    position = own(older).next
    due = transaction(1, Rows(output, [[b"a"]]))
    older.draft(BUCKET, due.results, position)
    older.release(BUCKET)
    with pytest.raises(Interrupted):
        older.commit(due, position)
    position = own(newer, epoch=2).next
    assert committed(cluster, output) == []
    newer.commit(transaction(1, Rows(output, [[b"a"]]), epoch=2), position)
    assert committed(cluster, output) == [b"a"]


def test_an_owner_that_was_taken_over_cannot_commit_its_draft(
    cluster: Cluster, output: Topic
) -> None:
    older, newer = cluster.sink(), cluster.sink()
    known = own(older, epoch=1).next
    due = transaction(1, Rows(output, [[b"zombie"]]))
    older.draft(BUCKET, due.results, known)
    position = own(newer, epoch=2).next
    with pytest.raises((Fenced, Interrupted)):
        older.commit(due, known)
    newer.commit(transaction(1, Rows(output, [[b"good"]]), epoch=2), position)
    assert committed(cluster, output) == [b"good"]


@pytest.mark.parametrize("drafted", [False, True], ids=["a commit", "the commit of a draft"])
def test_a_record_that_somebody_else_wrote_stops(
    cluster: Cluster, output: Topic, drafted: bool
) -> None:
    sink = cluster.sink()
    position = own(sink, epoch=1).next
    due = transaction(1, Rows(output, [[b"x"]]))
    if drafted:
        sink.draft(BUCKET, due.results, position)
    foreign = progress(50, epoch=9)
    cluster.append(
        cluster.names.progress, BUCKET, [encode_progress(foreign)], key=progress_key(foreign)
    )
    with pytest.raises((Fenced, Interrupted)):
        sink.commit(due, position)
    assert visible(cluster, output) == []
    with pytest.raises(Fenced):
        own(sink, epoch=1)


def test_a_record_that_somebody_else_wrote_beside_a_draft_that_is_taken_back_stops_the_next_commit(
    cluster: Cluster, output: Topic
) -> None:
    sink = cluster.sink()
    position = own(sink, epoch=1).next
    due = transaction(1, Rows(output, [[b"x"]]))
    sink.draft(BUCKET, due.results, position)
    foreign = progress(50, epoch=9)
    cluster.append(
        cluster.names.progress, BUCKET, [encode_progress(foreign)], key=progress_key(foreign)
    )
    sink.draft(BUCKET, (), position)
    with pytest.raises((Fenced, Interrupted)):
        sink.commit(due, position)
    assert visible(cluster, output) == []


def test_a_draft_for_a_topic_that_is_gone_names_the_task(cluster: Cluster, output: Topic) -> None:
    sink = cluster.sink()
    position = own(sink).next
    gone = cluster.topic()
    cluster.delete(gone)
    with pytest.raises(OutputRefused) as refused:
        sink.draft(BUCKET, transaction(1, Rows(gone, [[b"a"]])).results, position)
    assert (refused.value.task, refused.value.topic) == (TASK, gone)
    sink.commit(transaction(1, Rows(output, [[b"a"]])), own(sink).next)
    assert committed(cluster, output) == [b"a"]


def test_drafts_of_several_buckets_do_not_touch_each_other(cluster: Cluster, output: Topic) -> None:
    sink, other = cluster.sink(), Bucket(2)
    position, elsewhere = own(sink).next, own(sink, bucket=other).next
    due = transaction(1, Rows(output, [[b"a"]]))
    held = transaction(1, Rows(output, [[b"b"]], bucket=other, partition=1), bucket=other)
    sink.draft(BUCKET, due.results, position)
    sink.draft(other, held.results, elsewhere)
    sink.commit(due, position)
    assert committed(cluster, output) == [b"a"]
    assert visible(cluster, output, 1) == []
    sink.draft(other, (), elsewhere)
    sink.commit(held, elsewhere)
    assert committed(cluster, output, 1) == [b"b"]


@pytest.mark.parametrize("again", [False, True], ids=["a commit", "a draft and its commit"])
def test_a_draft_that_hangs_after_it_was_taken_back_is_not_seen_with_the_next(again: bool) -> None:
    """The coordinator has aborted it; the marker never came to the partition of the rows."""
    cluster = MemoryCluster()
    cluster.admin().ensure_internal(BUCKETS)
    output = cluster.topic()
    sink = cluster.sink()
    position = own(sink).next
    sink.draft(BUCKET, transaction(1, Rows(output, [[b"never"]])).results, position)
    rows = cluster.broker.partition(output, 0)
    cluster.broker.lose_markers(lambda each: each is rows)
    sink.draft(BUCKET, (), position)
    assert rows.stable_end < rows.end
    due = transaction(1, Rows(output, [[b"a"]]))
    if again:
        sink.draft(BUCKET, due.results, position)
    sink.commit(due, position)
    assert committed(cluster, output) == [b"a"]
