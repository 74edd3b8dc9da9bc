"""One pane: the states of the rows of a slice of time, as far as they are merged.

Panes that lie side by side make a block, and blocks a larger one: what windows share is merged once
and not for each of them. A block is made of what it holds and says nothing else, so that it can be
thrown away at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import TypeAlias

import numpy as np
import polars as pl

from mars.core.plan import Plan
from mars.core.types import Lane, PaneRows, Partial
from mars.engine.aggregates import PANE, in_pane, limited, merge, merges_exactly
from mars.engine.codec.states import decode_states
from mars.engine.codec.streams import UnreadStates, read

MERGE_ROWS_MIN = 20_000
"""States waiting in a pane are merged once they are this many and outnumber the merged ones:
each state row is then merged about twice, whatever the number of entries."""

BLOCK_GAIN = 2
"""A block is merged where so many times fewer states are left, or more; else what it is made of is
merged by each window anew. So all blocks together, those of blocks too, hold no more states than
the panes do."""


@dataclass(slots=True)
class Pane:
    """One pane's states, not all merged, and the lowest offsets that hold rows of it."""

    rows: int = 0
    merged: pl.DataFrame | None = None
    waiting: list[pl.DataFrame | UnreadStates] = field(default_factory=list)
    waiting_rows: int = 0
    first: dict[Lane, int] = field(default_factory=dict)

    def add(self, plan: Plan, pane: PaneRows, states: pl.DataFrame | UnreadStates | None) -> None:
        """Take the rows of one entry; `states` is None where another pane carries them."""
        self._count(pane.rows, pane.first)
        if states is None or not states.height:
            return
        self.waiting.append(states)
        self.waiting_rows += states.height
        merged_rows = self.merged.height if self.merged is not None else 0
        if self.waiting_rows > max(MERGE_ROWS_MIN, merged_rows):
            self.states(plan)

    def carry(self, other: Pane, start_ms: int) -> None:
        """Take all that another pane has into this one, which starts then; nothing is merged yet,
        so that nothing can be over a limit.
        """
        self._count(other.rows, other.first)
        self.waiting += [in_pane(part, start_ms) for part in other.parts]
        self.waiting_rows += other.groups

    def _count(self, rows: int, firsts: Mapping[Lane, int]) -> None:
        self.rows += rows
        known = self.first
        if not firsts.keys() <= known.keys():
            known.update({lane: first for lane, first in firsts.items() if lane not in known})
        if any(map(lt, firsts.values(), map(known.__getitem__, firsts))):  # of hundreds of lanes
            known.update({lane: min(first, known[lane]) for lane, first in firsts.items()})

    @property
    def groups(self) -> int:
        """At most so many rows come of it: one of each state, whether they are merged or not."""
        return (0 if self.merged is None else self.merged.height) + self.waiting_rows

    @property
    def parts(self) -> list[pl.DataFrame]:
        """All states, not merged."""
        return [*([] if self.merged is None else [self.merged]), *read(self.waiting)]

    def states(self, plan: Plan) -> pl.DataFrame | None:
        """All states of the pane, one row per key. Raises TaskLimit for too many keys."""
        if self.waiting:
            # An entry has one row per pane and key: alone it is merged already.
            alone = self.merged is None and len(self.waiting) == 1
            whole = self.parts[0] if alone else merge(plan, self.parts)
            self.merged = limited(plan, whole)
            self.waiting, self.waiting_rows = [], 0
        return self.merged

    def frames(self, plan: Plan) -> list[pl.DataFrame]:
        """Its states, if it has any."""
        states = self.states(plan)
        return [] if states is None else [states]

    def keep(self, states: pl.DataFrame, rows: int) -> None:
        """Only these of the merged states are left, and so many rows."""
        self.merged, self.waiting, self.waiting_rows = states, [], 0
        self.rows = rows


class Block:
    """Some panes, or smaller blocks, that lie side by side, in order of time.

    Rows and offsets are those of the moment at which it is made: whoever changes a pane throws the
    blocks away that hold it.
    """

    __slots__ = ("_frames", "_parts", "first", "rows")

    def __init__(self, parts: Sequence[Piece]) -> None:
        self.rows: int = sum(part.rows for part in parts)
        self.first: dict[Lane, int] = lowest_firsts(parts)
        self._parts = parts
        self._frames: list[pl.DataFrame] | None = None

    def frames(self, plan: Plan) -> list[pl.DataFrame]:
        """Its states: one frame, or those of its parts where that is no use. Raises TaskLimit."""
        if self._frames is None:
            frames = [frame for part in self._parts for frame in part.frames(plan)]
            self._frames, self._parts = _fewer(plan, frames), ()
        return self._frames


Piece: TypeAlias = Pane | Block
"""What windows are made of."""


def lowest_firsts(pieces: Sequence[Piece]) -> dict[Lane, int]:
    """The lowest offsets that hold rows of any of these."""
    firsts: dict[Lane, int] = {}
    for piece in pieces:
        for lane, first in piece.first.items():
            firsts[lane] = min(first, firsts.get(lane, first))
    return firsts


def _fewer(plan: Plan, frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """The frames merged, if that is exact, and makes much less of them."""
    if len(frames) < BLOCK_GAIN or not merges_exactly(plan):
        return frames
    states = pl.concat(frames)
    merged = merge(plan, [in_pane(states, states.item(0, PANE))])
    return [merged] if _weight(merged) * BLOCK_GAIN <= _weight(states) else frames


def _weight(states: pl.DataFrame) -> int:
    """How many states, and values in them."""
    lists = [column for column in states if isinstance(column.dtype, pl.List)]
    return states.height + sum(int(column.list.len().sum()) for column in lists)


def states_by_pane(partial: Partial) -> Mapping[int, pl.DataFrame]:
    """The states of each pane of a partial, by the pane's start."""
    states = decode_states(partial.states)
    if len(partial.panes) == 1 or not states.width:
        return {pane.start_ms: states for pane in partial.panes}
    return dict(_cut_by_pane(states))


def _cut_by_pane(states: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """The states of each pane by its start, in their order. (To have polars partition them takes
    five times as long; to take them by an index hands each call to a thread of its own.)
    """
    states = states.sort(PANE, maintain_order=True)
    starts = states.get_column(PANE).to_numpy()
    ends = [*(np.flatnonzero(starts[1:] != starts[:-1]) + 1).tolist(), len(starts)]
    begin = 0
    for end in ends:
        yield int(starts[begin]), states.slice(begin, end - begin)
        begin = end
