"""Groups that close ahead of the others, by the marks of their own keys (decision 25).

entry ──┬─ below M ─────────────────────────▶ panes          on time
        ├─ before those are all back ───────▶ put aside
        └─ else: is its group closed? ─ no ─▶ panes
                                      └ yes ▶ ledger         late
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import polars as pl

from mars.core.errors import TaskLimit
from mars.core.types import PaneRows
from mars.core.windows import Window
from mars.engine.aggregates import COUNTED
from mars.engine.finishing import finish
from mars.protocol.ports import Frontier, Head
from mars.protocol.windows import turns
from mars.protocol.windows.by_key.marks import KeyMarks
from mars.protocol.windows.closers import Arrived
from mars.protocol.windows.closing import Ahead, ClosedWindow
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.window_panes import States, WindowPanes


class KeyCloser:
    """Closes windows key by key. Windows are tumbling, so that a pane is a window.

    `frontier` is that of the last commit: up to its X groups are closed by their keys' marks.
    """

    is_steady: ClassVar[bool] = False
    reads_states: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, panes: WindowPanes, frontier: Frontier) -> None:
        self.settled = False
        self._panes = panes
        self._frontier = frontier
        self._marks = KeyMarks(panes.plan, frontier.ahead_ms)
        self._due: Mapping[Window, int] | None = None
        """How many groups of which windows are due by their keys; None: unknown."""
        self._some_due = False

    # ------------------------------------------------------------------------------- reading

    def settle(self) -> None:
        """All rows below M are back: drop the groups that are closed."""
        self.settled, self._due, self._some_due = True, None, False
        self._marks.committed(self._frontier.ahead_ms, self._frontier.closed_ms)
        self._drop_closed()

    def lacks_rows(self) -> None:
        """What the rows that are gone had closed cannot be known any more. Raises TaskLimit."""
        raise TaskLimit(_GONE)

    def late_apart(self, panes: tuple[PaneRows, ...], states: States) -> Arrived:
        """Late are the rows of groups that the last commit has closed."""
        late: list[PaneRows] = []
        kept: list[PaneRows] = []
        left: dict[int, pl.DataFrame] = {}
        for pane in panes:
            parts = self._marks.split(states[pane.start_ms], self._end(pane.start_ms))
            rows = _rows_in(parts.closed)
            if rows:
                late.append(PaneRows(pane.start_ms, rows, pane.first))
            if parts.open.height:
                kept.append(PaneRows(pane.start_ms, pane.rows - rows, pane.first))
                left[pane.start_ms] = parts.open
        return Arrived(tuple(late), tuple(kept), left)

    def see(self, panes: Sequence[PaneRows], states: States) -> None:
        """The marks of their keys may have gone on."""
        for pane in panes:
            self._marks.see(states[pane.start_ms])
        self._due = None

    def _end(self, start_ms: int) -> int:
        """The end of the window that a pane is."""
        return self._panes.plan.window.last_end(start_ms)

    # ------------------------------------------------------------------------------- closing

    def level(self, head: Head, level_ms: int | None) -> int | None:
        """Whole windows close by the partitions."""
        return level_ms

    def held(self, closed_ms: int) -> int:
        """No further than X: C was held by the number of windows, and all were closed ahead."""
        ahead_ms = self._frontier.ahead_ms
        return closed_ms if ahead_ms is None else min(closed_ms, ahead_ms)

    def close_ahead(self, closed_ms: int | None) -> Ahead:
        """The groups that are due, of the oldest windows first.

        Where they are too many, X says how far they go; up to the X before, none may be left out.
        """
        windows: list[ClosedWindow] = []
        upto_ms, rows, groups = self._frontier.ahead_ms, 0, 0
        for window, due in self._due_after(closed_ms):
            further = upto_ms is None or window.end_ms > upto_ms
            if further and (len(windows) >= turns.WINDOWS_AT_ONCE or groups > turns.ROWS_AT_ONCE):
                break
            upto_ms = window.end_ms if upto_ms is None else max(window.end_ms, upto_ms)
            counted = _rows_in(due)
            closed = self._panes.closed(window, finish(self._panes.plan, due, window))
            windows.append(replace(closed, rows=counted))
            rows += counted
            groups += due.height
        return Ahead(upto_ms, tuple(windows), rows)

    def _due_after(self, closed_ms: int | None) -> Iterator[tuple[Window, pl.DataFrame]]:
        """Windows that end after `closed_ms`, in order, with those of their groups that are due."""
        for window in self._due_windows():
            after = closed_ms is None or window.end_ms > closed_ms
            due = self._due_groups(window) if after else None
            if due is not None:
                yield window, due

    def _due_windows(self) -> Mapping[Window, int]:
        """The windows after C that have groups that are due, in order, and how many these are."""
        if self._due is None:
            shape = self._panes.plan.window
            windows = (shape.last_window(start) for start in self._reached())
            groups = ((window, self._due_groups(window)) for window in windows)
            self._due = {window: due.height for window, due in groups if due is not None}
        return self._due

    def _reached(self) -> Iterator[int]:
        """The panes after C whose end the mark of some key has come to, in order."""
        closed_ms = self._frontier.closed_ms
        reached_ms = self._marks.reached_ms if self.settled else None
        for start in self._panes.open:
            end_ms = self._end(start)
            if reached_ms is None or end_ms > reached_ms:
                return
            if closed_ms is None or end_ms > closed_ms:
                yield start

    def _due_groups(self, window: Window) -> pl.DataFrame | None:
        """The states of those groups of a window that are due; None if there are none."""
        states = self._panes.states(window)
        due = None if states is None else self._marks.due(states, window.end_ms)
        return None if due is None or due.is_empty() else due

    def size_ahead(self) -> Size:
        """The groups that are due by their keys, and their windows."""
        due = self._due_windows()
        return Size(len(due), len(due), sum(due.values()))

    def has_ahead(self) -> bool:
        """Asked after each entry. What is due stays so until a commit, and what is not can become
        so only by rows of its key: so all keys are looked at once after each commit.
        """
        if not self._some_due:
            touched = self._marks.touched()
            self._some_due = (
                bool(self._due_windows()) if touched is None else self._any_due(touched)
            )
        return self._some_due

    def _any_due(self, marks: pl.DataFrame) -> bool:
        """Whether any group of these keys is due."""
        return any(
            not self._marks.passed(pl.concat(parts), self._end(start), marks).is_empty()
            for start in self._reached()
            if (parts := self._panes.open[start].parts)
        )

    def committed(self, frontier: Frontier) -> bool:
        """What the record says is closed is durable: it is forgotten."""
        self._frontier = frontier
        if not self.settled:
            return False
        self._marks.committed(frontier.ahead_ms, frontier.closed_ms)
        self._due, self._some_due = None, False
        return self._drop_closed()

    def _drop_closed(self) -> bool:
        """Forget the groups that are closed; True if there were any."""
        dropped = False
        empty: list[int] = []
        panes = self._panes.open
        for start in panes:
            states = panes[start].states(self._panes.plan)
            if states is None:
                continue
            parts = self._marks.split(states, self._end(start))
            if not parts.closed.height:
                continue
            dropped = True
            if parts.open.height:
                panes.at(start).keep(parts.open, _rows_in(parts.open))
            else:
                empty.append(start)
        panes.drop(empty)
        return dropped


def _rows_in(states: pl.DataFrame) -> int:
    return int(states.get_column(COUNTED).sum())


_GONE = (
    "rows that its open windows need are gone from Kafka, and windows close key by key by what was "
    "read before: which of its results were emitted cannot be known any more. Register it again "
    "under another name, and let Kafka keep rows for longer"
)
