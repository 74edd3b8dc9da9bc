"""Which groups of panes make a session: those of a key that follow each other by less than the gap.

    pane, key, first, last ──sort by key and pane──▶ a gap, or another cell: a new session

Panes are shorter than the gap, so that rows of one group are never of two sessions. Whichever rows
of a session are there, they make parts of it: what is missing between can part it, but no row of it
comes to another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import polars as pl

from mars.core.plan import Plan
from mars.core.windows import Session
from mars.engine.aggregates.placed import FIRST
from mars.engine.aggregates.scoped import COUNTED, MARK
from mars.engine.aggregates.states import PANE, key_names, merge, state_schema

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sessions:
    """States, one row for each pane and key, and for each row when its session begins and ends.

    Both are epoch milliseconds; all have the same length.
    """

    states: pl.DataFrame
    starts: Times
    ends: Times

    def where(self, chosen: npt.NDArray[np.bool_]) -> Sessions:
        """Those of the rows that are chosen."""
        states = self.states.filter(pl.Series(chosen))
        return Sessions(states, self.starts[chosen], self.ends[chosen])

    def by_pane(self) -> dict[int, Sessions]:
        """Those of each pane, in order of time."""
        starts = self.states.get_column(PANE).to_numpy()
        order = np.argsort(starts, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(starts[order])) + 1)
        return {int(starts[part[0]]): self._at(part) for part in parts if len(part)}

    def _at(self, places: npt.NDArray[np.int64]) -> Sessions:
        states = self.states[pl.Series(places.astype(np.uint32))]
        return Sessions(states, self.starts[places], self.ends[places])

    @property
    def rows(self) -> int:
        """How many rows of the stream they count."""
        return int(self.states.get_column(COUNTED).sum())

    def merged(self, plan: Plan) -> pl.DataFrame:
        """The states of whole sessions, one row each; its pane is when the session begins.

        Raises TaskLimit where a state outgrows its limit.
        """
        return merge(plan, [self.states.with_columns(pl.Series(PANE, self.starts))])


def sessions_of(plan: Plan, panes: Sequence[pl.DataFrame]) -> Sessions:
    """The sessions that these panes hold, of which each has one row for each of its keys."""
    shape = plan.window
    if not isinstance(shape, Session):
        raise TypeError(f"{shape} has no sessions")
    keys = key_names(plan)
    if not panes:
        none = np.zeros(0, np.int64)
        return Sessions(pl.DataFrame(schema=state_schema(plan)), none, none)
    states = pl.concat(panes).sort([*keys, PANE], nulls_last=True)
    firsts, lasts = (states.get_column(name).to_numpy() for name in (FIRST, MARK))
    cells = firsts // shape.most_ms * shape.most_ms
    begins = np.ones(states.height, np.bool_)
    begins[1:] = (firsts[1:] - lasts[:-1] >= shape.gap_ms) | (cells[1:] != cells[:-1])
    begins[1:] |= _others(states, keys)
    at = np.flatnonzero(begins)
    sizes = np.diff(np.append(at, states.height))
    ends = np.minimum(lasts[at + sizes - 1] + shape.gap_ms, cells[at] + shape.most_ms)
    return Sessions(states, np.repeat(firsts[at], sizes), np.repeat(ends, sizes))


def _others(states: pl.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which rows but the first have other keys than the row before."""
    columns = (states.get_column(name) for name in keys)
    differ = (column[1:].ne_missing(column[:-1]).to_numpy() for column in columns)
    return reduce(np.logical_or, differ, np.zeros(states.height - 1, np.bool_))
