"""Panes that stay open for long, saved in Kafka: when, and how they come back.

    snapshot at S, every so often     L = max(S, first offsets of open panes)
    store lost ──▶ records name snapshots ──▶ read ──▶ put into the store ──▶ the log is read

Without them the loss of the store would mean to read all rows of all open windows again: a day of
them for a window of a day. With them it means those that came since the last snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mars.core.types import Entry, Lane, StoreEpoch
from mars.engine.codec.snapshot import encode_snapshot, parts_checksum
from mars.protocol.ports import Progress, Snapshot, SnapshotParts
from mars.protocol.windows.folding import Folding


@dataclass(frozen=True, slots=True)
class _Mark:
    """Through which offsets rows were merged at some time."""

    at_ms: int
    merged: Mapping[Lane, int]


class Snapshots:
    """The snapshots of one task in one bucket.

    A version is due `every_ms` after its last snapshot, or after this owner has begun, if its open
    panes reach back before that time: windows (with delay) that are shorter never are, as long as
    no lane holds them back.
    """

    def __init__(
        self, records: Mapping[int, Progress], store_epoch: StoreEpoch, every_ms: int
    ) -> None:
        self._store_epoch = store_epoch
        self._every_ms = every_ms
        self._marks: dict[int, _Mark] = {}
        self._due: set[int] = set()
        self._lost: set[int] = set()
        self.wanted: tuple[Progress, ...] = tuple(
            records[version]
            for version in sorted(records, reverse=True)
            if self.is_of_lost_store(records[version])
        )
        self.found: tuple[Entry, ...] = ()

    def is_of_lost_store(self, record: Progress | None) -> bool:
        """True if the panes of the record's snapshot may not be in the present store."""
        if record is None or record.snapshot is None:
            return False
        return record.store_epoch < self._store_epoch

    # ------------------------------------------------------------------------------- restoring

    def read(self, found: Sequence[Entry], lost: Iterable[int]) -> None:
        """All that was wanted was looked for."""
        self.wanted, self.found, self._lost = (), tuple(found), set(lost)

    def put_back(self) -> None:
        """The store has what was found."""
        self.found = ()

    # ---------------------------------------------------------------------------------- saving

    def is_due(
        self,
        version: int,
        now_ms: int,
        merged: Callable[[], Mapping[Lane, int]],
        kept: Callable[[Mapping[Lane, int]], Mapping[Lane, int]],
    ) -> bool:
        """True if the panes of a version should be saved: they need rows from `kept(merged())` on.

        It is asked often, so both are found out only where they are needed.
        """
        mark = self._marks.get(version)
        if mark is not None and now_ms - mark.at_ms < self._every_ms:
            return version in self._due
        now = self._marks[version] = _Mark(now_ms, dict(merged()))
        if mark is not None and _reaches_below(kept(now.merged), mark.merged):
            self._due.add(version)
        return version in self._due

    def snapshot(
        self,
        folding: Folding,
        last: Progress | None,
        merged: Mapping[Lane, int],
        forgotten_ms: int | None,
        kept: Mapping[Lane, int],
    ) -> tuple[Snapshot | None, SnapshotParts | None]:
        """The snapshot that a record is to name, and its parts if they are to be written or go.

        `kept`: the panes that stay open need no row below these offsets.
        """
        version = folding.plan.version
        older = last.snapshot if last is not None else None
        if version in self._due:
            entry = folding.snapshot(merged, forgotten_ms)
            if entry is not None and entry.partial.panes:
                return self._taken(folding, entry, merged, older)
        if older is None or (version not in self._lost and _reaches_below(kept, older.merged)):
            return older, None
        return None, SnapshotParts(folding.plan.task, version, (), older.parts)

    @staticmethod
    def _taken(
        folding: Folding, entry: Entry, merged: Mapping[Lane, int], older: Snapshot | None
    ) -> tuple[Snapshot, SnapshotParts]:
        parts = encode_snapshot(entry)
        snapshot = Snapshot(
            merged=dict(merged),
            until_ms=folding.ends_ms(entry.partial.panes),
            parts=len(parts),
            checksum=parts_checksum(parts),
        )
        replaced = older.parts if older is not None else 0
        return snapshot, SnapshotParts(folding.plan.task, entry.version, parts, replaced)

    def committed(self, record: Progress) -> None:
        """A record of this task is durable."""
        self._due.discard(record.version)
        self._lost.discard(record.version)


def needed_with(snapshot: Snapshot | None, kept: Mapping[Lane, int]) -> dict[Lane, int]:
    """L: what lies below a snapshot's offsets is in it."""
    saved = snapshot.merged if snapshot is not None else {}
    return {lane: max(at, saved.get(lane, 0)) for lane, at in kept.items()}


def _reaches_below(kept: Mapping[Lane, int], merged: Mapping[Lane, int]) -> bool:
    """True if rows below a snapshot's offsets are still needed."""
    return any(at < merged.get(lane, 0) for lane, at in kept.items())
