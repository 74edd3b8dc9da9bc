"""Which groups are closed ahead of the others, by the marks of their keys (decision 25).

    mark of a key     the highest event time of its counted rows
    closed (w, k)     end of w <= X, and end of w <= mark of k below M - delay

Late detection alone: what becomes of late rows, and of those in time, is the folding's. Nothing of
it is written anywhere but X: who has read all rows below M again knows the marks.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from mars.core.plan import Plan
from mars.engine.aggregates import MARK, key_names, state_schema

WAITING_MAX = 64
"""Frames of marks that wait to be merged; each merge touches every key."""


@dataclass(frozen=True, slots=True)
class Split:
    """The states of one window: of groups that are closed, and of the others."""

    closed: pl.DataFrame
    open: pl.DataFrame


class KeyMarks:
    """The marks of one bucket's keys, as seen so far and as of the last commit.

    `ahead_ms` is X of that commit; None: nothing was closed ahead.
    """

    def __init__(self, plan: Plan, ahead_ms: int | None) -> None:
        self.ahead_ms = ahead_ms
        self._delay_ms = plan.options.delay_ms
        self._names = key_names(plan)
        nothing = pl.DataFrame(schema=state_schema(plan))
        self._marks = self._committed = nothing.select(*self._names, MARK)
        self._waiting: list[pl.DataFrame] = []
        self._highest_ms: int | None = None
        self._fresh: list[pl.DataFrame] | None = None
        """Marks of the rows since the last `touched`; None: too many, or a commit lies between."""

    def see(self, states: pl.DataFrame) -> None:
        """Rows of these groups were read."""
        highest = states.get_column(MARK).max()
        if isinstance(highest, int):
            before = self._highest_ms
            self._highest_ms = highest if before is None else max(highest, before)
        marks = states.select(*self._names, MARK)
        self._waiting.append(marks)
        if self._fresh is not None:
            self._fresh = [*self._fresh, marks] if len(self._fresh) < WAITING_MAX else None
        if len(self._waiting) > WAITING_MAX:
            self._seen()

    def _seen(self) -> pl.DataFrame:
        if self._waiting:
            marks = pl.concat([self._marks, *self._waiting])
            self._marks = marks.group_by(self._names).agg(pl.col(MARK).max())
            self._waiting = []
        return self._marks

    def touched(self) -> pl.DataFrame | None:
        """The marks of the keys of which rows were read since the last call: of the others nothing
        is due that was not due then. None: of all keys.
        """
        fresh, self._fresh = self._fresh, []
        if fresh is None:
            return None
        if not fresh:
            return self._marks.clear()
        keys = pl.concat(fresh).select(self._names)
        known = pl.concat([self._marks, *self._waiting])
        known = known.join(keys, on=self._names, how="semi", nulls_equal=True)
        return known.group_by(self._names).agg(pl.col(MARK).max())

    @property
    def reached_ms(self) -> int | None:
        """No window that ends later is due for any key."""
        return None if self._highest_ms is None else self._highest_ms - self._delay_ms

    def due(self, states: pl.DataFrame, end_ms: int) -> pl.DataFrame:
        """The groups of a window that ends then whose marks have come to its end."""
        return self.passed(states, end_ms, self._seen())

    def split(self, states: pl.DataFrame, end_ms: int) -> Split:
        """The groups of a window that ends then, by whether the last commit has closed them."""
        if self.ahead_ms is None or end_ms > self.ahead_ms:
            return Split(states.clear(), states)
        closed = self.passed(states, end_ms, self._committed)
        if closed.is_empty():
            return Split(closed, states)
        return Split(closed, states.join(closed, on=self._names, how="anti", nulls_equal=True))

    def passed(self, states: pl.DataFrame, end_ms: int, marks: pl.DataFrame) -> pl.DataFrame:
        """Those of the groups whose marks have come to this time and the delay."""
        passed = marks.filter(marks.get_column(MARK) >= end_ms + self._delay_ms)
        if passed.is_empty():
            return states.clear()
        return states.join(passed, on=self._names, how="semi", nulls_equal=True)

    def committed(self, ahead_ms: int | None, closed_ms: int | None) -> None:
        """A record with X and C is durable that accounts for all rows seen so far.

        Marks that have not come beyond C close nothing that C does not.
        """
        self.ahead_ms, self._fresh = ahead_ms, None
        if closed_ms is not None:
            self._marks = self._seen().filter(pl.col(MARK) - self._delay_ms > closed_ms)
        self._committed = self._seen()
