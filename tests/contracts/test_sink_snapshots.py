"""Snapshots of open panes: written with the progress that names them, read where it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.errors import SnapshotLost
from mars.protocol.ports import Progress, Transaction
from tests.contracts.kafka_servers import BUCKETS, Cluster
from tests.contracts.transactions import (
    BUCKET,
    OTHER_TASK,
    committed,
    own,
    progress_after,
    saving,
)

LARGE = bytes(range(256)) * 2048
"""A part as large as they come: 512 KiB."""


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With the topics of Mars in it."""
    cluster.admin().ensure_internal(BUCKETS)
    return cluster


def commit(cluster: Cluster, *transactions: Transaction) -> list[Progress]:
    """One owner commits them one after the other; the last record of each."""
    sink = cluster.sink()
    position = own(sink).next
    found = []
    for each in transactions:
        done = sink.commit(each, position)
        position = done.next
        found.append(done.progress[-1])
    return found


def test_a_snapshot_is_found_by_the_record_that_was_committed_with_it(cluster: Cluster) -> None:
    parts = (b"one", LARGE, b"three")
    (record,) = commit(cluster, saving(1, parts))
    assert record.snapshot is not None
    assert record.snapshot.last - record.snapshot.first == 2
    assert cluster.sink().saved(record) == parts
    assert cluster.progress().saved(record) == parts


def test_a_record_is_read_back_with_the_place_of_its_snapshot(cluster: Cluster) -> None:
    claimed = own(sink := cluster.sink())
    done = sink.commit(saving(1, (b"one", b"two")), claimed.next)
    assert progress_after(cluster, claimed.next) == done.progress


def test_snapshots_of_two_tasks_lie_side_by_side(cluster: Cluster) -> None:
    mine, other = saving(1, (b"a", b"b")), saving(1, (b"c",), task=OTHER_TASK)
    both = replace(
        mine,
        progress=(*mine.progress, *other.progress),
        snapshots=(*mine.snapshots, *other.snapshots),
    )
    sink = cluster.sink()
    done = sink.commit(both, own(sink).next)
    assert [sink.saved(record) for record in done.progress] == [(b"a", b"b"), (b"c",)]


def test_a_record_that_follows_carries_its_snapshot_on(cluster: Cluster) -> None:
    sink = cluster.sink()
    first = sink.commit(saving(1, (b"a", b"b")), own(sink).next)
    (record,) = first.progress
    later = Transaction(BUCKET, (), (), (replace(record, emit=2),))
    (carried,) = sink.commit(later, first.next).progress
    assert carried.snapshot == record.snapshot
    assert sink.saved(carried) == (b"a", b"b")


def test_a_shorter_snapshot_takes_the_parts_away_that_it_no_longer_has(cluster: Cluster) -> None:
    _first, second = commit(cluster, saving(1, (b"a", b"b", b"c")), saving(2, (b"d",), replaced=3))
    assert cluster.sink().saved(second) == (b"d",)
    assert committed(cluster, cluster.names.state, BUCKET)[-3:] == [b"d", None, None]


def test_what_a_shorter_snapshot_takes_away_is_no_part_of_it(cluster: Cluster) -> None:
    _first, second = commit(cluster, saving(1, (b"a", b"b", b"c")), saving(2, (b"d",), replaced=3))
    assert second.snapshot is not None
    assert second.snapshot.first == second.snapshot.last
    # Whoever claims the bucket looks for the last part at `last`, and misses nothing.
    assert own(cluster.sink(), epoch=2).restored == ()


def test_a_snapshot_that_is_no_longer_needed_leaves_tombstones_only(cluster: Cluster) -> None:
    _first, second = commit(cluster, saving(1, (b"a", b"b")), saving(2, (), replaced=2))
    assert second.snapshot is None
    assert committed(cluster, cluster.names.state, BUCKET)[-2:] == [None, None]


def test_a_snapshot_whose_parts_are_not_there_is_lost(cluster: Cluster) -> None:
    (record,) = commit(cluster, saving(1, (b"a", b"b")))
    assert record.snapshot is not None
    beyond = replace(record.snapshot, first=record.snapshot.last, last=record.snapshot.last + 5)
    with pytest.raises(SnapshotLost, match="1 of its 2 parts"):
        cluster.sink().saved(replace(record, snapshot=beyond))
    gone = replace(record, snapshot=replace(record.snapshot, last=record.snapshot.first))
    with pytest.raises(SnapshotLost, match="1 of its 2 parts"):
        cluster.progress().saved(gone)


def test_a_snapshot_of_other_bytes_is_lost(cluster: Cluster) -> None:
    (record,) = commit(cluster, saving(1, (b"a", b"b")))
    assert record.snapshot is not None
    torn = replace(record.snapshot, checksum=record.snapshot.checksum + 1)
    with pytest.raises(SnapshotLost, match="not those that were written"):
        cluster.sink().saved(replace(record, snapshot=torn))


def test_a_snapshot_that_was_never_committed_is_not_seen(cluster: Cluster) -> None:
    writer = cluster.writer(cluster.names.transactional_id(BUCKET))
    writer.write(cluster.names.state, BUCKET, [b"a"])
    transaction = saving(1, (b"a",))
    (record,) = transaction.progress
    assert record.snapshot is not None
    named = replace(record, snapshot=replace(record.snapshot, first=0, last=0))
    own(cluster.sink())
    with pytest.raises(SnapshotLost):
        cluster.sink().saved(named)
