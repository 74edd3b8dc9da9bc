"""One commit of one version, from what is due to the record.

due windows ───────────┐
late rows: revisions ──┼──▶ Prepared: rows, references, progress record, snapshot
groups that are ahead ─┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mars.core.types import Lane
from mars.protocol.ports import Progress, ResultBatch, SnapshotParts
from mars.protocol.ports.seen import Seen
from mars.protocol.reducer.emission import Emitted, emitted, told
from mars.protocol.reducer.snapshots import needed_with
from mars.protocol.reducer.version import VersionInBucket
from mars.protocol.windows.closing import WithheldResult


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a task, or one version of it, adds to a transaction of its bucket."""

    results: tuple[ResultBatch, ...] = ()
    dead: tuple[bytes, ...] = ()
    progress: tuple[Progress, ...] = ()
    snapshots: tuple[SnapshotParts, ...] = ()
    held: tuple[WithheldResult, ...] = ()
    """Results that are not in it."""

    @classmethod
    def of_all(cls, pieces: Sequence[Prepared]) -> Prepared:
        """What several tasks or versions add, in order."""
        if len(pieces) == 1:
            return pieces[0]
        return cls(
            tuple(batch for piece in pieces for batch in piece.results),
            tuple(reference for piece in pieces for reference in piece.dead),
            tuple(record for piece in pieces for record in piece.progress),
            tuple(parts for piece in pieces for parts in piece.snapshots),
            tuple(result for piece in pieces for result in piece.held),
        )

    @property
    def withheld(self) -> str:
        """What to tell people of results that are not in it; empty where all are."""
        return told(self.held)


def prepare(version: VersionInBucket, seen: Seen | None) -> Prepared:
    """Everything that a version can commit now; `seen` goes into its record.

    Before all is read again it can commit progress only (R6): what was read may be merged then,
    else a log that is filled anew could be full before it says what it said before. Revisions are
    owed then. One whose rows cannot be judged yet repeats its last record.
    """
    if version.folding.settled:
        return _Preparation(version).prepared(seen)
    last = version.record
    return Prepared() if last is None else Prepared(progress=(_again(version, last),))


def _again(version: VersionInBucket, last: Progress) -> Progress:
    """The last record once more, so that the log can be merged."""
    owner = version.owner
    seen = last.seen if last.store_epoch == owner.store_epoch else Seen(0, 0)
    return replace(
        last,
        emit=last.emit + 1,
        assignment_epoch=owner.epoch,
        store_epoch=owner.store_epoch,
        seen=seen if owner.tracked else None,
    )


class _Preparation:
    """What a commit made now closes: `level` is how far the input has come."""

    def __init__(self, version: VersionInBucket) -> None:
        self._version = version
        state, caught_up, merged = version.state, version.position.caught_up, version.merged()
        self.level = state.reach(version.level())
        none_to_come = caught_up and version.is_accounted(merged)
        self.closing = state.commits.closing(
            self.level, merged, caught_up=caught_up, none_to_come=none_to_come
        )

    def prepared(self, seen: Seen | None) -> Prepared:
        """Rows, references, the record, and the snapshot that it names."""
        version, last, frontier = self._version, self._version.record, self.closing.frontier
        needed = version.state.commits.needed(version.read_again(frontier.merged), frontier)
        snapshot, parts = version.snapshots.of_commit(version.folding, last, frontier, needed)
        rows = self._rows()
        record = replace(
            self._record(),
            needed=_forward(needed_with(snapshot, needed), last),
            snapshot=snapshot,
            emission=rows.emission or (last.emission if last else None),
            seen=seen,
        )
        record = version.state.commits.told(record, self.closing, self.level, last)
        dead = (*version.folding.input.dead, *(one for held in rows.withheld for one in held.dead))
        snapshots = () if parts is None else (parts,)
        return Prepared(rows.batches, dead, (record,), snapshots, rows.withheld)

    def _rows(self) -> Emitted:
        """The rows of all windows; those of the draft, if it is of just these."""
        version, state, closing = self._version, self._version.state, self.closing
        due, draft = state.due(self.level), None if closing.revised else version.draft
        if draft is not None and draft.fits(state.panes, due, version.next_emit()):
            return draft.rows
        closed = [*closing.revised, *state.close(due), *closing.ahead.windows]
        return emitted(version.plan, version.numbered(closing.frontier.merged), closed)

    def _record(self) -> Progress:
        """The record, without what it says of windows, and what lies elsewhere in Kafka."""
        version, frontier = self._version, self.closing.frontier
        last, owner = version.record, version.owner
        return Progress(
            task=version.task.name,
            version=version.version.version,
            bucket=owner.bucket,
            assignment_epoch=owner.epoch,
            store_epoch=owner.store_epoch,
            emit=version.next_emit(),
            closed_ms=None,
            merged=frontier.merged,
            needed={},
            ledger=version.ledger(frontier, self.closing.ahead.rows),
            references=last.references if last else None,
            newest_ms=self._newest_ms(),
        )

    def _newest_ms(self) -> int | None:
        """The highest mark there was, in this life of the store or before: the marks of rows that a
        snapshot holds, or that were filtered, are lost with the store.
        """
        last, head = self._version.record, self._version.position.head
        known = [] if last is None or last.newest_ms is None else [last.newest_ms]
        return max([*known, *(() if head is None else head.marks_ms.values())], default=None)


def _forward(needed: Mapping[Lane, int], last: Progress | None) -> dict[Lane, int]:
    """L, not below that of the last record.

    Rows are read again in other batches than before; one that begins further back makes a pane
    seem to need rows that it never had.
    """
    older = last.needed if last is not None else {}
    return {lane: max(offset, older.get(lane, 0)) for lane, offset in needed.items()}
