"""Panes that stay open for long, saved in Kafka: when, and how they come back.

    snapshot at S, every so often     L = max(S, first offsets of open panes)
    store lost ──▶ records name snapshots ──▶ read ──▶ put into the store ──▶ the log is read

Without them the loss of the store would mean to read all rows of all open windows again: a day of
them for a window of a day. With them it means those that came since the last snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mars.core.types import Entry, Lane, StoreEpoch
from mars.engine.codec.snapshot import encode_snapshot, parts_checksum
from mars.protocol.ports import Frontier, Progress, Snapshot, SnapshotParts
from mars.protocol.reducer import position
from mars.protocol.windows.folding import Folding


def is_of_lost_store(record: Progress | None, store_epoch: StoreEpoch) -> bool:
    """True if the panes of the record's snapshot may not be in the present store."""
    if record is None or record.snapshot is None:
        return False
    return record.store_epoch < store_epoch


class Restoring:
    """The snapshots that a task's log lacks in one bucket after a loss of the store, and anchors.

    `wanted` are the records whose snapshots are to be read; then `found` is what is to be put into
    the store before the log is read, the newest version first. The `anchors` of the present life of
    the store stand beside the log, by version.
    """

    def __init__(self, records: Mapping[int, Progress], store_epoch: StoreEpoch) -> None:
        self._lost = {
            version for version, one in records.items() if is_of_lost_store(one, store_epoch)
        }
        self.wanted: tuple[Progress, ...] = tuple(
            record
            for version, record in sorted(records.items(), reverse=True)
            if version in self._lost or (record.snapshot is not None and record.anchored)
        )
        self.found: tuple[Entry, ...] = ()
        self.anchors: dict[int, Entry] = {}

    def read(self, found: Sequence[Entry]) -> None:
        """All that was wanted was looked for."""
        self.wanted = ()
        self.found = tuple(one for one in found if one.version in self._lost)
        self.anchors = {one.version: one for one in found if one.version not in self._lost}

    def beginning(self, bases: Sequence[Entry]) -> list[Entry]:
        """What a log is to begin with that begins with these bases: an anchor in place of those of
        its version, unless they were merged after it was saved.
        """
        anchors, self.anchors = self.anchors, {}
        # Of a version's bases the first decides: others hold what waits, which an anchor has too.
        first = {base.version: base for base in reversed(bases)}
        for version, base in first.items():
            if version in anchors and reaches(base, _ends(anchors[version])):
                del anchors[version]
        return [*(base for base in bases if base.version not in anchors), *anchors.values()]

    def put_back(self) -> None:
        """The store has what was found."""
        self.found = ()


def reaches(base: Entry, offsets: Mapping[Lane, int]) -> bool:
    """Whether a log was merged up to these offsets, so that its base has what was saved there."""
    return position.reaches(_ends(base), offsets)


def _ends(entry: Entry) -> dict[Lane, int]:
    return {part.lane: part.next for part in entry.ranges}


SOON_MS = 60_000
"""No snapshot follows another one sooner: most windows are closed by then."""

SOON_ROWS = 1_000_000
"""So many rows of a task take mappers some seconds to read again."""

SOON_ROWS_A_PART = 100_000
"""And of a large snapshot, for each of its parts: to write one (512 KiB) takes a hundredth of the
time that these rows take."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Through which offsets rows were merged at some time."""

    at_ms: int
    merged: Mapping[Lane, int]

    def rows_since(self, merged: Mapping[Lane, int]) -> int:
        """Rows, or at least offsets, that were merged since, of lanes that were there."""
        return sum(max(0, merged.get(lane, at) - at) for lane, at in self.merged.items())


class Snapshots:
    """The snapshots of one version in one bucket.

    One is due `every_ms` after the last, or after this owner has begun, if open panes reach back
    before that time: windows (with delay) that are shorter never do, as long as no lane holds them
    back. It is due sooner where so many rows came since that reading them again takes long, and
    much longer than saving does. When it is taken changes no result.

    It is taken again though no row came: its record says how far event time has come by the clock,
    and after two losses in a row windows would be late by all of that.
    """

    def __init__(self, every_ms: int) -> None:
        self._every_ms = every_ms
        self._look_ms = min(every_ms, SOON_MS)
        self._mark: _Mark | None = None
        self._looked_ms = 0
        self._is_due = False
        self._is_lost = False

    def lost(self) -> None:
        """The one that the last record names is not there any more."""
        self._is_lost = True

    def is_due(
        self,
        now_ms: int,
        older: Snapshot | None,
        merged: Callable[[], Mapping[Lane, int]],
        needed: Callable[[Mapping[Lane, int]], Mapping[Lane, int]],
    ) -> bool:
        """True if panes should be saved: they need rows from `needed(merged())` on.

        `older` is the snapshot before. It is asked often, so both are found out only where they are
        needed.
        """
        mark = self._mark
        if mark is not None and now_ms - self._looked_ms < self._look_ms:
            return self._is_due
        self._looked_ms = now_ms
        now = _Mark(now_ms, dict(merged()))
        if mark is not None:
            parts = older.parts if older is not None else 0
            many = mark.rows_since(now.merged) >= max(SOON_ROWS, parts * SOON_ROWS_A_PART)
            if now_ms - mark.at_ms < self._every_ms and not many:
                return self._is_due
            if _reaches_below(needed(now.merged), mark.merged):
                self._is_due = True
        self._mark = now
        return self._is_due

    def of_commit(
        self,
        folding: Folding,
        last: Progress | None,
        frontier: Frontier,
        needed: Mapping[Lane, int],
    ) -> tuple[Snapshot | None, SnapshotParts | None]:
        """The snapshot that a record is to name, and its parts if they are to be written or go.

        `needed`: the panes that stay open need no row below these offsets.
        """
        older = last.snapshot if last is not None else None
        if self._is_due or folding.state.needs_anchor:
            entry = folding.snapshot(frontier)
            if entry is not None and entry.partial.panes:
                return _taken(folding, entry, frontier.merged, older)
        if older is None or (not self._is_lost and _reaches_below(needed, older.merged)):
            return older, None
        return None, SnapshotParts(folding.plan.task, folding.plan.version, (), older.parts)

    def committed(self) -> None:
        """A record of this version is durable."""
        self._is_due = self._is_lost = False


def _taken(
    folding: Folding, entry: Entry, merged: Mapping[Lane, int], older: Snapshot | None
) -> tuple[Snapshot, SnapshotParts]:
    parts = encode_snapshot(entry)
    snapshot = Snapshot(
        merged=dict(merged),
        until_ms=folding.state.panes.ends_ms(entry.partial.panes),
        parts=len(parts),
        checksum=parts_checksum(parts),
    )
    replaced = older.parts if older is not None else 0
    return snapshot, SnapshotParts(folding.plan.task, entry.version, parts, replaced)


def needed_with(snapshot: Snapshot | None, needed: Mapping[Lane, int]) -> dict[Lane, int]:
    """L: what lies below a snapshot's offsets is in it."""
    saved = snapshot.merged if snapshot is not None else {}
    return {lane: max(at, saved.get(lane, 0)) for lane, at in needed.items()}


def _reaches_below(needed: Mapping[Lane, int], merged: Mapping[Lane, int]) -> bool:
    """True if rows below a snapshot's offsets are still needed."""
    return any(at < merged.get(lane, 0) for lane, at in needed.items())
