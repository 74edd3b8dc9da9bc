"""The acker of a reducer process: a thread beside everything else, for which nothing waits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from mars.core.errors import MarsError, Unavailable
from mars.core.types import Bucket, MemberId, StoreEpoch, TaskName
from mars.process.life import Life
from mars.process.telemetry import incidents, logs
from mars.process.telemetry.incidents import Tell, untold
from mars.process.tracking import POST_INTERVAL_S, Outbox
from mars.protocol.leader.view import KnownProgress
from mars.protocol.ports import Heads, NoteBox, Progress, ProgressLog
from mars.protocol.ports.notes import Note, Root
from mars.protocol.tracker.acking import Acking
from mars.protocol.tracker.judging import Judgement, RecordKey, Verdict, judge
from mars.protocol.tracker.ring import HashRing

LOST_EPOCH = "tracker_lost_epoch"
"""The figure in a reducer's report by which it says that a partial of this store epoch is lost."""


class TrackerLoop:
    """Takes the notes of its roots, and looks into those that are overdue."""

    def __init__(
        self,
        member: MemberId,
        deadline_ms: int,
        buckets: int,
        *,
        outbox: Outbox,
        box: NoteBox,
        log: Heads,
        progress: ProgressLog,
        tell: Tell = untold,
    ) -> None:
        self.outbox = outbox
        self._member = member
        self._buckets = buckets
        self._acking = Acking(member, deadline_ms)
        self._box = box
        self._store = log
        self._progress = progress
        self._tell = tell
        self._known = KnownProgress()
        self._positions: dict[Bucket, int] = {}
        self._ring = outbox.ring
        self._lost_epoch: StoreEpoch | None = None
        self._log = logs.logger("tracker")

    def run(self, life: Life) -> None:
        """Go round until asked to stop; then hand all records over."""
        while not life.wait(POST_INTERVAL_S):
            self.round()
        others = HashRing(self._ring.members - {self._member})
        self.outbox.leave(self._member, self._acking.ring_changed(others))

    def round(self) -> None:
        """One turn. Raises nothing: what is not done now is done later, or not proven."""
        try:
            self._go_round()
        except Unavailable:
            pass  # the reducer itself says which server is away
        except MarsError as problem:
            logs.error(self._log, "the tracker cannot look into a root", problem=str(problem))
        except Exception:  # noqa: BLE001 -- a safety net must not take its process with it
            logs.error(self._log, "unexpected error, the tracker goes on", trace=True)

    def _go_round(self) -> None:
        self.outbox.post()
        if self.outbox.ring is not self._ring:
            self._ring = self.outbox.ring
            self.outbox.put(self._acking.ring_changed(self._ring))
        now_ms = int(time.monotonic() * 1000)
        while notes := self._box.take(self._member):
            self._acking.take(notes, now_ms)
        found = self._acking.tick(now_ms)
        self.outbox.put(found.forward)
        if found.suspects:
            self._look_into(found.suspects)

    def load(self) -> dict[str, float]:
        """Figures for the member's report."""
        figures = self._acking.figures
        lost = {} if self._lost_epoch is None else {LOST_EPOCH: float(self._lost_epoch)}
        return {
            "tracker_pending_roots": figures.pending,
            "tracker_proven_total": figures.proven,
            "tracker_unproven_total": figures.unproven,
            "tracker_lost_total": figures.lost,
            **lost,
        }

    # ------------------------------------------------------------------------------- the truth

    def _look_into(self, suspects: Sequence[Note]) -> None:
        heads = self._store.head(list({suspect.root.life.task for suspect in suspects}))
        records = self._records()
        verdicts: list[tuple[Root, Verdict]] = []
        for suspect in suspects:
            found = judge(suspect, self._buckets, records, heads.get(suspect.root.life.task))
            verdicts.append((suspect.root, found.verdict))
            if found.verdict is Verdict.LOST:
                self._report(suspect, found, records)
        self._acking.judged(verdicts)

    def _records(self) -> Mapping[RecordKey, Progress]:
        for number in range(self._buckets):
            bucket = Bucket(number)
            piece = self._progress.read(bucket, self._positions.get(bucket, 0))
            self._positions[bucket] = piece.next
            self._known = self._known.with_records(piece.records)
        return self._known.records

    def _report(
        self, suspect: Note, found: Judgement, records: Mapping[RecordKey, Progress]
    ) -> None:
        """Name the loss, and let the leader have the offsets read again."""
        life, seq = suspect.root
        self._lost_epoch = life.epoch
        closed_ms = _closed(life.task, life.version, found.buckets, records)
        without_it = "none" if closed_ms is None else f"windows that end by {closed_ms} ms"
        lost = incidents.partial_lost(suspect.root, suspect.ranges, found.buckets, closed_ms)
        self._tell(lost)
        logs.warning(
            self._log,
            "a partial is lost between store and reducer; its offsets are read again",
            kind="partial_lost",
            task=life.task,
            version=life.version,
            store_epoch=life.epoch,
            seq=seq,
            buckets=list(found.buckets),
            certain=found.certain,
            ranges=[f"{part.lane}[{part.first},{part.next})" for part in suspect.ranges],
            emitted_without_it=without_it,
        )


def _closed(
    task: TaskName, version: int, buckets: Sequence[Bucket], records: Mapping[RecordKey, Progress]
) -> int | None:
    """Up to which end windows can no longer be mended, ms; None: all of them can."""
    ends = [
        record.closed_ms
        for bucket in buckets
        if (record := records.get((task, version, bucket))) is not None
        and record.closed_ms is not None
    ]
    return max(ends, default=None)
