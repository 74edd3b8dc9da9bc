"""The way of a batch, told at level debug: from its offsets to the rows that were emitted with it.

    mapper, bulk  batch written      batch, ranges      batch: TASK/E/SEQ, its trace id
    reducer       batch read         batch, bucket
    reducer       results drafted    bucket             written, for a commit that is to come
    reducer       results committed  bucket, emit, merged      what ends at or below is in it

A result row names its bucket, its emit number and its ranges in its headers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from mars.core.types import Bucket, Mapped, Range, Sequence64, StoreEpoch, TaskName
from mars.process.telemetry import logs
from mars.protocol.ports import AppendOutcome, Applied, LogSlice, Progress, ResultBatch


def appended(
    log: logging.Logger,
    task: TaskName,
    epoch: StoreEpoch,
    version: int,
    mapped: Mapped,
    outcome: AppendOutcome | None,
) -> None:
    """A batch was offered to the store; `outcome` is None if nothing is known of it."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    ranges = _told(mapped.ranges)
    if isinstance(outcome, Applied):
        logs.debug(
            log,
            "batch written",
            batch=_trace(task, epoch, outcome.seq),
            version=version,
            ranges=ranges,
            buckets=[partial.bucket for partial in mapped.partials],
        )
    else:
        logs.debug(log, "batch not written", task=task, ranges=ranges, why=outcome)


def read(
    log: logging.Logger, task: TaskName, epoch: StoreEpoch, bucket: Bucket, piece: LogSlice
) -> None:
    """A part of a bucket's log was read."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    for entry in piece.entries:
        for seq in entry.seqs:
            logs.debug(log, "batch read", batch=_trace(task, epoch, seq), bucket=bucket)


def drafted(log: logging.Logger, bucket: Bucket, results: Iterable[ResultBatch]) -> None:
    """Rows were written that are not due yet; without any: they were taken back."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    rows = sum(len(batch.values) for batch in results)
    logs.debug(log, "results drafted" if rows else "draft taken back", bucket=bucket, rows=rows)


def committed(log: logging.Logger, records: Iterable[Progress]) -> None:
    """Progress was committed, with results where an emission is named."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    for record in records:
        emission = record.emission
        emits = emission is not None and emission.emit == record.emit
        logs.debug(
            log,
            "results committed" if emits else "progress committed",
            task=record.task,
            version=record.version,
            bucket=record.bucket,
            emit=record.emit,
            epoch=record.store_epoch,
            merged=dict(record.merged),
            closed_ms=record.closed_ms,
            rows=emission.count if emission is not None and emits else 0,
        )


def _trace(task: TaskName, epoch: StoreEpoch, seq: Sequence64) -> str:
    return f"{task}/{epoch}/{seq}"


def _told(ranges: Iterable[Range]) -> str:
    return " ".join(f"{part.lane}[{part.first},{part.next})" for part in ranges)
