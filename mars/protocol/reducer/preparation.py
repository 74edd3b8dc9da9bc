"""One commit of one version, from what is due to the record.

due windows ───────────┐
late rows: revisions ──┼──▶ Prepared: rows, references, progress record, snapshot
groups that are ahead ─┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mars.core.types import Lane
from mars.core.windows import Window
from mars.protocol.ports import Frontier, Progress, ResultBatch, SnapshotParts
from mars.protocol.ports.seen import Seen
from mars.protocol.reducer.emission import Emitted, emitted, told
from mars.protocol.reducer.snapshots import needed_with
from mars.protocol.reducer.version import VersionInBucket
from mars.protocol.windows.closing import Ahead, ClosedWindow, WithheldResult


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
    """What a commit made now closes: `level` is the watermark, `frontier` where it leads to."""

    def __init__(self, version: VersionInBucket) -> None:
        self._version = version
        state, caught_up = version.state, version.position.caught_up
        self.level = state.reach(version.watermark())
        closed_ms = state.closed_by(self.level)
        self.ahead = Ahead(state.frontier.ahead_ms)
        revisable: list[Window] = []
        if caught_up:
            self.ahead = state.closer.close_ahead(closed_ms)
            revisable = state.revisable()
        self.owed = tuple(state.revising.pending[len(revisable) :])
        merged = version.merged()
        none_to_come = caught_up and version.is_accounted(merged)
        self._none_to_come = none_to_come
        forgotten_ms = state.forgotten_by(self.level, self.owed, none_to_come=none_to_come)
        self.frontier = Frontier(merged, closed_ms, forgotten_ms, self.ahead.upto_ms)
        self.revised: list[ClosedWindow] = state.revise(revisable)

    def prepared(self, seen: Seen | None) -> Prepared:
        """Rows, references, the record, and the snapshot that it names."""
        version, last, frontier = self._version, self._version.record, self.frontier
        read = version.read_again(frontier.merged)
        needed = version.state.panes.needed(read, frontier.forgotten_ms)
        snapshot, parts = version.snapshots.of_commit(version.folding, last, frontier, needed)
        rows = self._rows()
        record = replace(
            self._record(),
            needed=_forward(needed_with(snapshot, needed), last),
            snapshot=snapshot,
            emission=rows.emission or (last.emission if last else None),
            seen=seen,
        )
        dead = (*version.folding.input.dead, *(one for held in rows.withheld for one in held.dead))
        snapshots = () if parts is None else (parts,)
        return Prepared(rows.batches, dead, (record,), snapshots, rows.withheld)

    def _rows(self) -> Emitted:
        """The rows of all windows; those of the draft, if it is of just these."""
        version, state = self._version, self._version.state
        due, draft = state.due(self.level), None if self.revised else version.draft
        if draft is not None and draft.fits(state.panes, due, version.next_emit()):
            return draft.rows
        closed = [*self.revised, *state.close(due), *self.ahead.windows]
        return emitted(version.plan, version.numbered(self.frontier.merged), closed)

    def _record(self) -> Progress:
        """The record, without what lies elsewhere in Kafka."""
        version, level, frontier = self._version, self.level, self.frontier
        last, owner, rows = version.record, version.owner, version.folding.input
        revised = sorted({one.window for one in self.revised})
        name_of = version.plan.window.name_of
        numbers = version.state.revising.numbers_with(revised, frontier.forgotten_ms)
        return Progress(
            task=version.task.name,
            version=version.version.version,
            bucket=owner.bucket,
            assignment_epoch=owner.epoch,
            store_epoch=owner.store_epoch,
            emit=version.next_emit(),
            closed_ms=frontier.closed_ms,
            merged=frontier.merged,
            needed={},
            ledger=version.ledger(frontier.closed_ms, self.ahead.rows),
            watermark_ms=last.watermark_ms if level is None and last is not None else level,
            incomplete_before_ms=rows.incomplete_before_ms,
            gaps=dict(rows.gaps),
            references=last.references if last else None,
            forgotten_ms=frontier.forgotten_ms,
            revisions={name_of(window): number for window, number in numbers.items()},
            owed=tuple(map(name_of, (*self.owed, *self._owed_step()))),
            ahead_ms=frontier.ahead_ms,
            newest_ms=self._newest_ms(),
        )

    def _owed_step(self) -> list[Window]:
        """No further window shows what waits once no row is to come."""
        if self._none_to_come:
            return []
        return self._version.state.owed_step(self.level, self.frontier.closed_ms)

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
