"""Windows that were emitted and got late rows since: which groups are to be emitted again.

    C ──────── a late row comes ──────────────── D passes the window's end
    revision 0     revision 1, 2 ...             forgotten: later rows are dropped

Every commit that moves M over a late row emits the revisions of its groups, or says in its record
that it owes them. So a successor knows from the record alone what is still to be emitted; of a
window that is owed it does not know which groups were touched, and emits all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from mars.core.plan import Plan
from mars.core.windows import Window
from mars.engine.aggregates import key_names
from mars.protocol.ports import Progress


class Revising:
    """The revisions of the closed windows of one bucket of one task version.

    `numbers`: the newest revision of each window; one that is not named has none but the first
    emission. `owed`: windows whose last late rows no revision shows yet.
    """

    def __init__(self, plan: Plan, numbers: Mapping[Window, int], owed: Iterable[Window]) -> None:
        self._plan = plan
        self._numbers = dict(numbers)
        self._touched: dict[Window, list[pl.DataFrame] | None] = dict.fromkeys(owed)

    def touch(self, windows: Iterable[Window], states: pl.DataFrame | None) -> None:
        """Late rows came to these windows; None: to groups of them that are not known."""
        windows = list(windows)
        if not windows:
            return  # as nearly always, and the keys need not be looked at
        keys = None
        if states is not None and self._plan.keys:
            keys = [states.select(key_names(self._plan))]
        for window in windows:
            known = self._touched.setdefault(window, [])
            self._touched[window] = None if known is None or keys is None else [*known, *keys]

    @property
    def pending(self) -> list[Window]:
        """The windows that are to be revised, in order."""
        return sorted(self._touched)

    def rows(self, window: Window) -> int | None:
        """An upper bound of the groups to be emitted again; None: all of the window."""
        touched = self._touched[window]
        return None if touched is None else sum(keys.height for keys in touched)

    def chosen(self, window: Window, states: pl.DataFrame) -> pl.DataFrame:
        """The states of those groups of a window that are to be emitted again."""
        touched = self._touched[window]
        if touched is None:
            return states
        names = key_names(self._plan)
        return states.join(pl.concat(touched).unique(), on=names, how="semi", nulls_equal=True)

    def next_number(self, window: Window) -> int:
        """The number of a window's next revision."""
        return self._numbers.get(window, 0) + 1

    def numbers_with(self, revised: Iterable[Window], after_ms: int | None) -> dict[Window, int]:
        """The newest numbers once these windows are revised, of those that end after a time."""
        numbers = self._numbers | {window: self.next_number(window) for window in revised}
        return {
            window: number
            for window, number in sorted(numbers.items())
            if after_ms is None or window.end_ms > after_ms
        }

    def committed(self, record: Progress) -> None:
        """The record is durable."""
        self._numbers = numbers_of(self._plan, record)
        self._touched = {
            window: self._touched.get(window) for window in owed_of(self._plan, record)
        }


def numbers_of(plan: Plan, record: Progress) -> dict[Window, int]:
    """The revisions that a record names."""
    window_named = plan.window.window_named
    return {window_named(name): number for name, number in record.revisions.items()}


def owed_of(plan: Plan, record: Progress) -> list[Window]:
    """The windows that a record owes a revision; where groups that changed are owed, none is."""
    if plan.emits_changed:
        return []
    return [plan.window.window_named(name) for name in record.owed]
