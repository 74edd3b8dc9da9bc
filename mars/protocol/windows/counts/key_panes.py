"""The rows of each key that wait for their windows: one frame, of all lanes and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

from mars.core.plan import Plan
from mars.core.types import (
    Bucket,
    Entry,
    Lane,
    PaneRows,
    Partial,
    Range,
    RowCounts,
    Sequence64,
    live_lane,
)
from mars.core.windows import Window
from mars.core.windows.counting import LANE_PLACES, first_place, partition_of
from mars.engine.aggregates import (
    COUNTED,
    FIRST_OFFSET,
    PANE,
    KeyWindows,
    key_windows,
    state_schema,
)
from mars.engine.codec.states import encode_states
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.window_panes import WindowPanes

SEEN_MAX: Final = 2**60
"""More than is ever seen: no key has rows any more."""

Seen = tuple[tuple[int, int], ...]
"""How far the event time of partitions had come."""


class KeyPanes(WindowPanes):
    """The rows of one version in one bucket. Which windows they make is found out where it is
    asked: no pane is open.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, lambda _window: True)
        self._parts: list[pl.DataFrame] = []
        self._found: dict[Seen, KeyWindows] = {}

    def take(self, rows: pl.DataFrame) -> None:
        """Take rows, or slices of them."""
        if rows.height:
            self._parts.append(rows)
            self._found = {}

    def keep(self, rows: pl.DataFrame) -> None:
        """Only these are left."""
        self._parts, self._found = [rows], {}

    @property
    def rows_held(self) -> pl.DataFrame:
        """All that are there."""
        if len(self._parts) != 1:
            parts = self._parts or [pl.DataFrame(schema=state_schema(self.plan))]
            self._parts = [pl.concat(parts)]
        return self._parts[0]

    def windows(self, seen: Mapping[int, int]) -> KeyWindows:
        """What they make once the event time of partitions has come so far."""
        asked = tuple(sorted(seen.items()))
        if asked not in self._found:
            self._found = {asked: key_windows(self.plan, self.rows_held, seen)}
        return self._found[asked]

    def rows_of(self, states: pl.DataFrame) -> int:
        """How many rows of the stream some states count."""
        return int(states.get_column(COUNTED).sum())

    def size(self, windows: Iterable[Window]) -> Size:
        """See `WindowPanes`: all are looked at, whichever are closed."""
        count = sum(1 for _window in windows)
        return Size(count, len(self._parts), self.rows_held.height) if count else Size()

    def rows(self, window: Window) -> int:
        """See `WindowPanes`: so many wait in a partition."""
        return self.rows_of(self._of(window))

    def states(self, window: Window) -> pl.DataFrame | None:
        """See `WindowPanes`: of all windows of keys of a partition that are not full."""
        partition = partition_of(window.start_ms)
        found = key_windows(self.plan, self._of(window), {partition: SEEN_MAX}).unfilled
        return found if found.height else None

    def _of(self, window: Window) -> pl.DataFrame:
        begin = first_place(partition_of(window.start_ms))
        return self.rows_held.filter(pl.col(PANE).is_between(begin, begin + LANE_PLACES - 1))

    def entry_with(
        self,
        bucket: Bucket,
        seq: Sequence64,
        through: Mapping[Lane, int],
        needed: Mapping[Lane, int],
        rows: pl.DataFrame,
    ) -> Entry:
        """One entry that stands for all rows below `through`, with what is left of them."""
        partitions = rows.group_by(pl.col(PANE) // LANE_PLACES).agg(
            pl.col(COUNTED).sum(), first=pl.col(FIRST_OFFSET).min()
        )
        panes = tuple(
            PaneRows(first_place(partition), count, {live_lane(partition): first})
            for partition, count, first in sorted(partitions.rows())
        )
        ranges = tuple(Range(lane, min(needed[lane], at), at) for lane, at in through.items())
        encoded = encode_states(rows) if rows.height else b""
        return Entry(seq, self.plan.version, ranges, Partial(bucket, RowCounts(), panes, encoded))
