"""What the tests of the sink commit: small transactions, and what is in the topics after them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mars.core.errors import Interrupted
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Lane,
    MemberId,
    StoreEpoch,
    TaskName,
    Topic,
    live_lane,
)
from mars.engine.codec.checksum import checksum
from mars.engine.codec.result_headers import result_headers
from mars.engine.codec.snapshot import parts_checksum
from mars.protocol.ports import (
    Claim,
    Claimed,
    Emission,
    Ledger,
    Progress,
    ProgressRecord,
    ResultBatch,
    ResultSink,
    Snapshot,
    SnapshotParts,
    Transaction,
)
from tests.contracts.kafka_servers import Cluster
from tests.contracts.reading import Reading
from tests.contracts.waiting import eventually

BUCKET = Bucket(1)
TASK = TaskName("by_sip")
OTHER_TASK = TaskName("by_dip")


def claim(epoch: int = 1, bucket: Bucket = BUCKET, member: str = "reducer-1") -> Claim:
    """A claim with a nonce of its own."""
    return Claim(
        bucket=bucket,
        assignment_epoch=AssignmentEpoch(epoch),
        store_epoch=StoreEpoch(1),
        nonce=uuid.uuid4().hex,
        member=MemberId(member),
    )


def progress(
    emit: int,
    *,
    task: TaskName = TASK,
    version: int = 1,
    bucket: Bucket = BUCKET,
    epoch: int = 1,
    emission: Emission | None = None,
    deleted: bool = False,
) -> Progress:
    """A record with something in each member."""
    return Progress(
        task=task,
        version=version,
        bucket=bucket,
        assignment_epoch=AssignmentEpoch(epoch),
        store_epoch=StoreEpoch(1),
        emit=emit,
        closed_ms=60_000 * emit,
        merged={live_lane(0): 10 * emit, Lane("0@b1"): 3},
        needed={live_lane(0): 10 * emit - 5, Lane("0@b1"): 3},
        ledger=Ledger(read=7, filtered=1, counted=6, emitted=2),
        watermark_ms=60_000 * emit + 1,
        emission=emission,
        deleted=deleted,
    )


@dataclass(frozen=True)
class Rows:
    """Result rows of one task version; `values` are written in one batch per inner sequence."""

    topic: Topic
    batches: Sequence[Sequence[bytes]]
    task: TaskName = TASK
    version: int = 1
    partition: int = 0
    bucket: Bucket = BUCKET

    def results(self, emit: int) -> list[ResultBatch]:
        headers = result_headers(self.task, self.version, self.bucket, emit, complete=True)
        return [
            ResultBatch(
                task=self.task,
                version=self.version,
                topic=self.topic,
                partition=self.partition,
                keys=[b"[%d]" % number for number in range(len(values))],
                values=values,
                headers=headers,
            )
            for values in self.batches
        ]

    def emission(self, emit: int) -> Emission:
        values = [value for batch in self.batches for value in batch]
        return Emission(self.topic, self.partition, emit, -1, -1, len(values), checksum(values))

    def progress(self, emit: int, epoch: int = 1) -> Progress:
        return progress(
            emit,
            task=self.task,
            version=self.version,
            bucket=self.bucket,
            epoch=epoch,
            emission=self.emission(emit),
        )


def transaction(
    emit: int, *rows: Rows, epoch: int = 1, bucket: Bucket = BUCKET, dead: tuple[bytes, ...] = ()
) -> Transaction:
    """All rows with their progress; without rows, progress of TASK alone."""
    records = tuple(part.progress(emit, epoch) for part in rows)
    return Transaction(
        bucket=bucket,
        results=tuple(batch for part in rows for batch in part.results(emit)),
        dead=dead,
        progress=records or (progress(emit, epoch=epoch, bucket=bucket),),
    )


def saving(
    emit: int, parts: tuple[bytes, ...], *, task: TaskName = TASK, replaced: int = 0
) -> Transaction:
    """Progress that names a snapshot of these parts; without parts, progress that names none."""
    snapshot = Snapshot({live_lane(0): 10 * emit}, 120_000, len(parts), parts_checksum(parts))
    record = progress(emit, task=task)
    return Transaction(
        bucket=BUCKET,
        results=(),
        dead=(),
        progress=(replace(record, snapshot=snapshot if parts else None),),
        snapshots=(SnapshotParts(task, 1, parts, replaced),),
    )


def own(sink: ResultSink, epoch: int = 1, bucket: Bucket = BUCKET) -> Claimed:
    """Claim a bucket, again if an older owner was just making a producer: R1, as reducers do."""

    def attempt() -> Claimed | None:
        try:
            return sink.claim(claim(epoch, bucket))
        except Interrupted:
            return None

    return eventually(attempt)


def committed(cluster: Cluster, topic: Topic, partition: int = 0) -> list[bytes | None]:
    """The committed values of a partition in which no transaction is open."""
    return _values(cluster, topic, partition, cluster.settled_end(topic, partition))


def visible(cluster: Cluster, topic: Topic, partition: int = 0) -> list[bytes | None]:
    """The values that a reader sees at this moment."""
    return _values(cluster, topic, partition, cluster.admin().ends(topic)[partition])


def _values(cluster: Cluster, topic: Topic, partition: int, end: int) -> list[bytes | None]:
    reading = Reading(cluster.alone())
    reading.seek(topic, partition, 0)
    reading.until_end(topic, partition, end)
    reading.reader.drop(topic, partition)
    return reading.values(topic, partition)


def progress_after(cluster: Cluster, position: int) -> tuple[ProgressRecord, ...]:
    """The bucket's records from an offset on."""
    cluster.settled_end(cluster.names.progress, BUCKET)
    return cluster.progress().read(BUCKET, position).records
