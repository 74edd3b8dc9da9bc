"""One version of a task in one bucket: its log folded into state, and where its rows went.

    entries in SEQ order ──▶ Input: below M? in the base? gone?   ──▶ ledger, references
                               │
                               └──▶ PaneState: late? which panes? ──▶ windows, L = what is needed

It begins from the last committed progress record (or from nothing) and reads the log from its
start. Both halves of what a record says are judged by the last durable one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mars.core.plan import Plan
from mars.core.types import Bucket, Entry, Lane, Sequence64
from mars.core.windows import Session
from mars.engine.combining import Placed, combine_partials, join_ranges
from mars.protocol.ports import Frontier, Head, Ledger, Progress, Snapshot
from mars.protocol.windows.counts.count_state import CountState
from mars.protocol.windows.counts.key_state import EVER, KeyState
from mars.protocol.windows.counts.lane_numbers import LaneNumbers
from mars.protocol.windows.gaps import Gaps, OffsetGaps, RowGaps, TimeGaps, gone_of
from mars.protocol.windows.input import Input
from mars.protocol.windows.pane_state import PaneState
from mars.protocol.windows.sessions.session_state import SessionState
from mars.protocol.windows.state import Closed, WindowState


class Folding:
    """Absorbs a log's entries and says what a commit accounts for.

    `starts` are the offsets at which the version begins; they count where there is no record yet.
    """

    def __init__(
        self,
        plan: Plan,
        bucket: Bucket,
        starts: Mapping[Lane, int],
        record: Progress | None = None,
    ) -> None:
        frontier = Frontier(dict(starts)) if record is None else record.frontier
        self.plan = plan
        self.bucket = bucket
        self.input = Input(plan, frontier.merged, record)
        self.gaps: Gaps
        self.state: WindowState
        if isinstance(plan.window, Session):
            self.gaps = TimeGaps(plan, record)
            self.state = SessionState(plan, plan.window, self.gaps, frontier)
        elif plan.counts_by_key:
            self.gaps = offsets = OffsetGaps(record)
            numbers = LaneNumbers(starts, record, EVER)
            self.state = KeyState(plan, offsets, numbers, frontier, starts)
        elif plan.counts_rows:
            self.gaps = gaps = RowGaps(record)
            self.state = CountState(plan, gaps, LaneNumbers(starts, record), frontier)
        else:
            self.gaps = TimeGaps(plan, record)
            self.state = PaneState(plan, self.gaps, frontier, record)
        self._aside: list[Entry] = []
        """Entries above M that wait until all below it are back."""
        if not self.input.ledger.read:  # nothing lies below M
            self.settle()

    @property
    def settled(self) -> bool:
        """True once a commit may say something new."""
        return self.state.closer.settled

    def snapshot_lost(self, snapshot: Snapshot) -> None:
        """The rows in a snapshot cannot be read any more.

        Raises TaskLimit for a task that cannot go on without.
        """
        self.state.closer.lacks_rows()
        self.gaps.snapshot_lost(snapshot)

    def reached(self, head: Head) -> None:
        """All that the store held at a look is absorbed."""
        self.gaps.reached(head)
        self.state.reached(head)

    # ------------------------------------------------------------------------------- absorb

    def absorb_base(self, base: Entry) -> None:
        """Take what the log begins with: no row below the base's offsets is missing.

        Rows that were put aside are put aside again.
        """
        waited = base.partial.counts.read > 0  # the other one has states alone
        passed = self.input.contains(base) or self.input.is_over(base)
        if passed or (waited and self.input.passes_over(base)):
            self.input.pass_over(base)
        else:
            self._take(base)
        if not self.state.closer.waits or self.input.accounts_for(base):
            self.input.has_base(base)

    def absorb(self, entry: Entry) -> None:
        """Take one entry. Raises StoreWentBack if it lies on both sides of M or of the base, and
        TaskLimit where a limit is passed, or rows below M are gone that cannot be done without.
        """
        if self.input.passes_over(entry):
            self.input.pass_over(entry)
        else:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        accounted = self.input.accounts_for(entry)
        if not accounted and not self.settled:
            self._aside.append(entry)
            return
        if accounted and gone_of(entry):
            self.state.closer.lacks_rows()
        self.input.take(entry, accounted=accounted)
        self.gaps.look(entry)
        arrived = self.state.judge(entry.partial, accounted=accounted)
        if not accounted:
            if arrived.late:
                self.input.drop_late(entry, arrived.late)
            if late_partly := self.state.late_partly(arrived.panes):
                self.input.late_partly(late_partly)
        self.state.keep(arrived, accounted=accounted)

    def settle(self) -> None:
        """All rows below M have been read again: what waited for them can be judged now."""
        if self.settled:
            return
        self.state.closer.settle()
        aside, self._aside = self._aside, []
        for entry in aside:
            self.absorb(entry)

    # ------------------------------------------------------------------------------- commit

    def ledger(self, closed: Closed, ahead_rows: int = 0) -> Ledger:
        """The ledger as it stands once everything up to C is emitted, and so many rows of windows
        that end later. All that is open must have been read.
        """
        ledger = self.input.ledger
        emitted = ledger.counted - self.state.commits.rows_after(closed) + ahead_rows
        return ledger if emitted == ledger.emitted else replace(ledger, emitted=emitted)

    def committed(self, frontier: Frontier, ledger: Ledger) -> bool:
        """The progress record with these values is durable: forget what it closed for good.

        True if that was anything.
        """
        self.input.committed(frontier.merged, ledger)
        return self.state.committed(frontier)

    def bases(self, seq: Sequence64, through: Mapping[Lane, int]) -> tuple[Entry, ...]:
        """What is to stand in place of every entry up to `seq` (R9), when the log was read
        `through` these offsets.

        One entry has all panes that are kept, of rows that are accounted: call it right after a
        commit. Another has what waits.
        """
        base = self._merged_entry(seq, self.input.covered(through))
        if not self._aside:
            return (base,)
        placed = [Placed(entry.ranges, entry.partial) for entry in self._aside]
        ranges = join_ranges(part for entry in self._aside for part in entry.ranges)
        waiting = Entry(seq, self.plan.version, ranges, combine_partials(self.plan, placed))
        self._aside = [waiting]
        return base, waiting

    def _merged_entry(self, seq: Sequence64, through: Mapping[Lane, int]) -> Entry:
        return self.state.commits.merged_entry(self.bucket, seq, through, self.state.frontier)

    def snapshot(self, frontier: Frontier) -> Entry | None:
        """All panes that stay once a frontier is committed; None if a snapshot may be wrong.

        Everything below its M must have been read. Rows that are gone spoil the windows of the next
        ones of their lane, which is not yet known of them; of sessions it stays unknown for longer.
        """
        if self.gaps.lanes and not self.plan.has_sessions:
            return None
        commits, merged = self.state.commits, frontier.merged
        return commits.merged_entry(self.bucket, Sequence64(0), merged, frontier)
