"""Snapshots as they lie in `mars.state`: are they there as a progress record says?"""

from __future__ import annotations

from collections.abc import Mapping

from mars.adapters.kafka.wire import state_key
from mars.core.errors import SnapshotLost
from mars.engine.codec.snapshot import parts_checksum
from mars.protocol.ports import Progress, Snapshot


def named_snapshot(record: Progress) -> Snapshot:
    """The snapshot that a record names. Raises ValueError if it names none."""
    if record.snapshot is None:
        raise ValueError(f"no snapshot is named by {record}")
    return record.snapshot


def parts_of(record: Progress, found: Mapping[bytes | None, bytes | None]) -> tuple[bytes, ...]:
    """The parts of the snapshot among the records `found` at its offsets, by key.

    Raises SnapshotLost if one is missing, or if they are not those that were written.
    """
    snapshot = named_snapshot(record)
    keys = [
        state_key(record.task, record.version, record.bucket, number)
        for number in range(snapshot.parts)
    ]
    parts = tuple(part for key in keys if (part := found.get(key)) is not None)
    if len(parts) < len(keys):
        raise _lost(record, f"{len(parts)} of its {len(keys)} parts are there")
    if parts_checksum(parts) != snapshot.checksum:
        raise _lost(record, "its parts are not those that were written")
    return parts


def _lost(record: Progress, detail: str) -> SnapshotLost:
    return SnapshotLost(
        f"The snapshot of task {record.task} version {record.version}, bucket {record.bucket}, "
        f"taken at emit number {record.emit} or before, cannot be read: {detail}."
    )
