"""Foldings of tasks whose watermark is of a bucket or of a key (decision 25).

KEY      entry ──┬─ below M ─────────────────────────▶ panes          on time
                 ├─ before those are all back ───────▶ put aside
                 └─ else: is its group closed? ─ no ─▶ panes
                                               └ yes ▶ ledger         late
BUCKET   the marks of the bucket's own rows give the level; all else is as ever
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from mars.core.errors import TaskLimit
from mars.core.plan import Plan, WatermarkScope
from mars.core.types import Entry, Lane, PaneRows, Reason, Sequence64
from mars.core.windows import Window, find_watermark
from mars.engine.aggregates import COUNTED, MARK
from mars.engine.combining import Placed, combine_partials, join_ranges
from mars.engine.finishing import finish
from mars.protocol.ports import Head, Ledger
from mars.protocol.windows import folding as limits
from mars.protocol.windows.folding import Ahead, ClosedWindow, Folding, States
from mars.protocol.windows.key_marks import KeyMarks
from mars.protocol.windows.open_panes import Size


class KeyFolding(Folding):
    """Closes windows key by key. Windows are tumbling, so that a pane is a window.

    `ahead_ms` (X) is the last commit's: up to it groups are closed by their keys' marks.
    """

    def _begin(self) -> None:
        self._marks = KeyMarks(self.plan, self.ahead_ms)
        self._settled = False
        self._aside: list[Entry] = []
        self._ahead: Mapping[Window, int] | None = None
        """How many groups of which windows are due by their keys; None: unknown."""
        self._some_ahead = False
        if not self._ledger.read:  # nothing lies below M
            self.settle()

    @property
    def is_steady(self) -> bool:
        """A window's groups do not close together."""
        return False

    # ------------------------------------------------------------------------------- reading

    @property
    def settled(self) -> bool:
        """True once all rows below M have been read: it is known then what is closed."""
        return self._settled

    def absorb(self, entry: Entry) -> None:
        """Take one entry, or put it aside. Raises StoreWentBack, and TaskLimit where rows below M
        are gone: what they had closed cannot be known any more.
        """
        if self.contains(entry):
            super().absorb(entry)
            return
        accounted = self._accounted(entry)
        if not accounted and not self._settled:
            self._aside.append(entry)
            return
        if accounted and any(one.reason is Reason.GONE for one in entry.partial.rejections.ranges):
            raise TaskLimit(_GONE)
        super().absorb(entry)

    def snapshot_lost(self, until_ms: int) -> None:
        """What the rows in it had closed cannot be known any more. Raises TaskLimit."""
        raise TaskLimit(_GONE)

    def absorb_base(self, base: Entry) -> None:
        """Take what the log begins with; rows that were put aside are put aside again."""
        if self._accounted(base):
            super().absorb_base(base)
        else:
            self.absorb(base)

    def settle(self) -> None:
        """All rows below M are back: drop the groups that are closed, then take what waits."""
        if self._settled:
            return
        self._settled, self._ahead, self._some_ahead = True, None, False
        self._marks.committed(self.ahead_ms, self.closed_ms)
        self._drop_closed()
        aside, self._aside = self._aside, []
        for entry in aside:
            self.absorb(entry)

    def _closed_apart(
        self, alive: tuple[PaneRows, ...], states: States
    ) -> tuple[tuple[PaneRows, ...], tuple[PaneRows, ...], States]:
        """Late are the rows of groups that the last commit has closed."""
        late: list[PaneRows] = []
        kept: list[PaneRows] = []
        left: dict[int, pl.DataFrame] = {}
        for pane in alive:
            parts = self._marks.split(states[pane.start_ms], self._end(pane.start_ms))
            rows = _rows_in(parts.closed)
            if rows:
                late.append(replace(pane, rows=rows))
            if parts.open.height:
                kept.append(replace(pane, rows=pane.rows - rows))
                left[pane.start_ms] = parts.open
        return tuple(late), tuple(kept), left

    def _keep(self, alive: Sequence[PaneRows], states: States, *, accounted: bool) -> None:
        super()._keep(alive, states, accounted=accounted)
        for pane in alive:
            self._marks.see(states[pane.start_ms])
        self._ahead = None

    def _end(self, start_ms: int) -> int:
        """The end of the window that a pane is."""
        return self.plan.window.last_end(start_ms)

    # ------------------------------------------------------------------------------- closing

    def close_ahead(self, closed_ms: int | None) -> Ahead:
        """The groups that are due, of the oldest windows first.

        Where they are too many, X says how far they go; up to the X before, none may be left out.
        """
        windows: list[ClosedWindow] = []
        upto_ms, rows, groups = self.ahead_ms, 0, 0
        for window, due in self._due_after(closed_ms):
            further = upto_ms is None or window.end_ms > upto_ms
            if further and (len(windows) >= limits.WINDOWS_AT_ONCE or groups > limits.ROWS_AT_ONCE):
                break
            upto_ms = window.end_ms if upto_ms is None else max(window.end_ms, upto_ms)
            counted = _rows_in(due)
            closed = self._closed(window, finish(self.plan, due, window))
            windows.append(replace(closed, rows=counted))
            rows += counted
            groups += due.height
        return Ahead(upto_ms, tuple(windows), rows)

    def _due_after(self, closed_ms: int | None) -> Iterator[tuple[Window, pl.DataFrame]]:
        """Windows that end after `closed_ms`, in order, with those of their groups that are due."""
        for window in self._due():
            after = closed_ms is None or window.end_ms > closed_ms
            due = self._due_groups(window) if after else None
            if due is not None:
                yield window, due

    def _due(self) -> Mapping[Window, int]:
        """The windows after C that have groups that are due, in order, and how many these are."""
        if self._ahead is None:
            windows = (self.plan.window.last_window(start) for start in self._reached())
            groups = ((window, self._due_groups(window)) for window in windows)
            self._ahead = {window: due.height for window, due in groups if due is not None}
        return self._ahead

    def _reached(self) -> Iterator[int]:
        """The panes after C whose end the mark of some key has come to, in order."""
        reached_ms = self._marks.reached_ms if self._settled else None
        for start in self._panes:
            end_ms = self._end(start)
            if reached_ms is None or end_ms > reached_ms:
                return
            if self.closed_ms is None or end_ms > self.closed_ms:
                yield start

    def _due_groups(self, window: Window) -> pl.DataFrame | None:
        """The states of those groups of a window that are due; None if there are none."""
        states = self.window_states(window)
        due = None if states is None else self._marks.due(states, window.end_ms)
        return None if due is None or due.is_empty() else due

    def behind(self, level_ms: int | None) -> bool:
        """True, too, where C was held by the number of windows, and all were closed ahead."""
        if self.ahead_ms is None:
            return super().behind(level_ms)
        closed_ms = self.closed_by(level_ms)
        if closed_ms is None:
            return False
        return self.closed_ms is None or self.closed_ms < min(closed_ms, self.ahead_ms)

    def size_ahead(self) -> Size:
        """The groups that are due by their keys, and their windows."""
        due = self._due()
        return Size(len(due), len(due), sum(due.values()))

    def has_ahead(self) -> bool:
        """Asked after each entry. What is due stays so until a commit, and what is not can become
        so only by rows of its key: so all keys are looked at once after each commit.
        """
        if not self._some_ahead:
            touched = self._marks.touched()
            self._some_ahead = bool(self._due()) if touched is None else self._any_due(touched)
        return self._some_ahead

    def _any_due(self, marks: pl.DataFrame) -> bool:
        """Whether any group of these keys is due."""
        return any(
            not self._marks.passed(pl.concat(parts), self._end(start), marks).is_empty()
            for start in self._reached()
            if (parts := self._panes[start].parts)
        )

    def committed(
        self,
        merged: Mapping[Lane, int],
        closed_ms: int | None,
        ledger: Ledger,
        forgotten_ms: int | None = None,
        ahead_ms: int | None = None,
    ) -> bool:
        """What the record says is closed is durable: it is forgotten."""
        gone = super().committed(merged, closed_ms, ledger, forgotten_ms, ahead_ms)
        if not self._settled:
            return gone
        self._marks.committed(ahead_ms, closed_ms)
        self._ahead, self._some_ahead = None, False
        return self._drop_closed() or gone

    def bases(self, seq: Sequence64, through: Mapping[Lane, int]) -> tuple[Entry, ...]:
        """One entry of what is accounted, and one of what waits."""
        whole = super().bases(seq, through)
        if not self._aside:
            return whole
        placed = [Placed(entry.ranges, entry.partial) for entry in self._aside]
        ranges = join_ranges(part for entry in self._aside for part in entry.ranges)
        waiting = Entry(seq, self.plan.version, ranges, combine_partials(self.plan, placed))
        self._aside = [waiting]
        return (*whole, waiting)

    def _drop_closed(self) -> bool:
        """Forget the groups that are closed; True if there were any."""
        dropped = False
        empty: list[int] = []
        for start in self._panes:
            states = self._panes[start].states(self.plan)
            if states is None:
                continue
            parts = self._marks.split(states, self._end(start))
            if not parts.closed.height:
                continue
            dropped = True
            if parts.open.height:
                self._panes.at(start).keep(parts.open, _rows_in(parts.open))
            else:
                empty.append(start)
        self._panes.drop(empty)
        return dropped


class BucketFolding(Folding):
    """Closes windows by the marks of the bucket's own rows.

    They start closing, and nothing more: a successor that knows them less well closes later.
    """

    def _begin(self) -> None:
        self._lane_marks: dict[Lane, int] = {}

    def _keep(self, alive: Sequence[PaneRows], states: States, *, accounted: bool) -> None:
        super()._keep(alive, states, accounted=accounted)
        for pane in alive:
            mark_ms = pane.start_ms  # as much is known of each lane where several are merged
            if len(pane.first) == 1:
                mark_ms = states[pane.start_ms].select(pl.col(MARK).max()).item()
            for lane in pane.first:
                self._lane_marks[lane] = max(mark_ms, self._lane_marks.get(lane, mark_ms))

    def level(self, head: Head, level_ms: int | None) -> int | None:
        """The lowest mark of the bucket's rows, lane by lane; `level_ms` where that is further."""
        options = self.plan.options
        own = find_watermark(
            lanes=head.offsets.keys(),
            marks_ms=self._lane_marks,
            taken_ms={},
            idle=head.idle,
            delay_ms=options.delay_ms,
            idle_after_ms=options.idle_after_ms,
            now_ms=head.now_ms,
            finished=head.finished,
        )
        known = [] if own.held_by is None or own.time_ms is None else [own.time_ms]
        return max([*known, *([] if level_ms is None else [level_ms])], default=None)


def folding_class(plan: Plan) -> type[Folding]:
    """What folds the entries of a plan."""
    match plan.options.watermark:
        case WatermarkScope.PARTITION:
            return Folding
        case WatermarkScope.BUCKET:
            return BucketFolding
        case WatermarkScope.KEY:
            return KeyFolding


def _rows_in(states: pl.DataFrame) -> int:
    return int(states.get_column(COUNTED).sum())


_GONE = (
    "rows that its open windows need are gone from Kafka, and windows close key by key by what was "
    "read before: which of its results were emitted cannot be known any more. Register it again "
    "under another name, and let Kafka keep rows for longer"
)
