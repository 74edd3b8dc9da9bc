"""One pane: the states of the rows of a slice of time, as far as they are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from mars.aggregates import PANE, limited, merge
from mars.codec.states import decode_states
from mars.plan import Plan
from mars.types import Lane, PaneRows, Partial

MERGE_ROWS_MIN = 20_000
"""States waiting in a pane are merged once they are this many and outnumber the merged ones:
each state row is then merged about twice, whatever the number of entries."""


@dataclass(slots=True)
class Pane:
    """One pane's states, not all merged, and the lowest offsets that hold rows of it."""

    rows: int = 0
    merged: pl.DataFrame | None = None
    waiting: list[pl.DataFrame] = field(default_factory=list)
    waiting_rows: int = 0
    first: dict[Lane, int] = field(default_factory=dict)

    def add(self, plan: Plan, pane: PaneRows, states: pl.DataFrame | None) -> None:
        """Take the rows of one entry; `states` is None where another pane carries them."""
        self.rows += pane.rows
        for lane, first in pane.first.items():
            self.first[lane] = min(first, self.first.get(lane, first))
        if states is None or not states.height:
            return
        self.waiting.append(states)
        self.waiting_rows += states.height
        merged_rows = self.merged.height if self.merged is not None else 0
        if self.waiting_rows > max(MERGE_ROWS_MIN, merged_rows):
            self.states(plan)

    @property
    def groups(self) -> int:
        """At most so many rows come of it: one of each state, whether they are merged or not."""
        return (0 if self.merged is None else self.merged.height) + self.waiting_rows

    @property
    def parts(self) -> list[pl.DataFrame]:
        """All states, not merged."""
        return [*([] if self.merged is None else [self.merged]), *self.waiting]

    def states(self, plan: Plan) -> pl.DataFrame | None:
        """All states of the pane, one row per key. Raises TaskLimit for too many keys."""
        if self.waiting:
            parts = self.parts
            # An entry has one row per pane and key: alone it is merged already.
            whole = parts[0] if len(parts) == 1 else merge(plan, parts)
            self.merged = limited(plan, whole)
            self.waiting, self.waiting_rows = [], 0
        return self.merged

    def keep(self, states: pl.DataFrame, rows: int) -> None:
        """Only these of the merged states are left, and so many rows."""
        self.merged, self.waiting, self.waiting_rows = states, [], 0
        self.rows = rows


def states_by_pane(partial: Partial) -> Mapping[int, pl.DataFrame]:
    """The states of each pane of a partial, by the pane's start."""
    states = decode_states(partial.states)
    if len(partial.panes) == 1 or not states.width:
        return {pane.start_ms: states for pane in partial.panes}
    return {
        int(part.item(0, PANE)): part for part in states.partition_by(PANE, maintain_order=True)
    }
