"""Windows that were emitted and got late rows since: which groups are to be emitted again.

    C ──────── a late row comes ──────────────── D passes the window's end
    revision 0     revision 1, 2 ...             forgotten: later rows are dropped

Every commit that moves M over a late row emits the revisions of its groups, or says in its record
that it owes them. So a successor knows from the record alone what is still to be emitted; of a
window that is owed it does not know which groups were touched, and emits all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from mars.aggregates import key_names
from mars.plan import Plan


class Revising:
    """The revisions of the closed windows of one bucket of one task version.

    `numbers`: the newest revision of each window, by its start; one that is not named has none
    but the first emission. `owed`: windows whose last late rows no revision shows yet.
    """

    def __init__(self, plan: Plan, numbers: Mapping[int, int], owed: Iterable[int]) -> None:
        self._plan = plan
        self._numbers = dict(numbers)
        self._touched: dict[int, list[pl.DataFrame] | None] = dict.fromkeys(owed)

    def touch(self, starts: Iterable[int], states: pl.DataFrame | None) -> None:
        """Late rows came to these windows; None: to groups of them that are not known."""
        starts = list(starts)
        if not starts:
            return  # as nearly always, and the keys need not be looked at
        keys = None
        if states is not None and self._plan.keys:
            keys = [states.select(key_names(self._plan))]
        for start in starts:
            known = self._touched.setdefault(start, [])
            self._touched[start] = None if known is None or keys is None else [*known, *keys]

    @property
    def pending(self) -> list[int]:
        """The windows that are to be revised, in order."""
        return sorted(self._touched)

    def rows(self, start_ms: int) -> int | None:
        """An upper bound of the groups to be emitted again; None: all of the window."""
        touched = self._touched[start_ms]
        return None if touched is None else sum(keys.height for keys in touched)

    def chosen(self, start_ms: int, states: pl.DataFrame) -> pl.DataFrame:
        """The states of those groups of a window that are to be emitted again."""
        touched = self._touched[start_ms]
        if touched is None:
            return states
        names = key_names(self._plan)
        return states.join(pl.concat(touched).unique(), on=names, how="semi", nulls_equal=True)

    def next_number(self, start_ms: int) -> int:
        """The number of a window's next revision."""
        return self._numbers.get(start_ms, 0) + 1

    def numbers_with(self, revised: Sequence[int], after_ms: int | None) -> dict[int, int]:
        """The newest numbers once these windows are revised, of those that end after a time."""
        numbers = self._numbers | {start: self.next_number(start) for start in revised}
        size_ms = self._plan.window.size_ms
        return {
            start: number
            for start, number in sorted(numbers.items())
            if after_ms is None or start + size_ms > after_ms
        }

    def committed(self, numbers: Mapping[int, int], owed: Iterable[int]) -> None:
        """The record that says so is durable."""
        self._numbers = dict(numbers)
        self._touched = {start: self._touched.get(start) for start in owed}
