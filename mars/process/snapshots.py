"""Reads the snapshots that a bucket's machine asks for."""

from __future__ import annotations

from mars.core.errors import SnapshotLost
from mars.core.types import Entry
from mars.engine.codec.entry import CorruptEntry
from mars.engine.codec.snapshot import decode_snapshot
from mars.protocol.ports import ResultSink
from mars.protocol.reducer.events import ReadSnapshots, SnapshotsRead


def read_snapshots(sink: ResultSink, request: ReadSnapshots) -> SnapshotsRead:
    """What is there of them, and why the others are not. Raises Unavailable: try again."""
    found: list[Entry] = []
    lost: dict[int, str] = {}
    for record in request.records:
        try:
            found.append(decode_snapshot(sink.saved(record)))
        except (SnapshotLost, CorruptEntry) as problem:
            lost[record.version] = str(problem)
    return SnapshotsRead(request, tuple(found), lost)
