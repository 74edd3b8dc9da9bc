"""The rows of each key that wait for their windows: one frame, of all lanes and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
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
    columns,
    key_windows,
    quiet,
    split,
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
        self._quiet = quiet(plan, pl.DataFrame(schema=state_schema(plan)))
        """What waited when it was looked at last."""
        self._came: list[pl.DataFrame] = []
        self._found: dict[Seen, KeyWindows] = {}

    def take(self, rows: pl.DataFrame) -> None:
        """Take rows, or slices of them."""
        if rows.height:
            self._came.append(rows)
            self._found = {}

    def forget(self, seen: Mapping[int, int]) -> pl.DataFrame:
        """Only what waits then is left."""
        self.close(seen)
        return self.rows_held

    def close(self, seen: Mapping[int, int]) -> KeyWindows:
        """What they make by then goes, and is told once; only what waits is left."""
        found, others = self._look(seen)
        self._quiet = pl.concat([others, quiet(self.plan, found.open)])
        self._came, self._found = [], {}
        return found

    @property
    def rows_held(self) -> pl.DataFrame:
        """All that are there."""
        return pl.concat([columns(self._quiet, state_schema(self.plan)), *self._came])

    def windows(self, seen: Mapping[int, int]) -> KeyWindows:
        """What they make once the event time of partitions has come so far."""
        asked = tuple(sorted(seen.items()))
        if asked not in self._found:
            found, others = self._look(seen)
            waiting = pl.concat([columns(others, state_schema(self.plan)), found.open])
            self._found = {asked: replace(found, open=waiting)}
        return self._found[asked]

    def _look(self, seen: Mapping[int, int]) -> tuple[KeyWindows, pl.DataFrame]:
        """What the keys make to which something happens, and what waits of all others."""
        came = pl.concat([pl.DataFrame(schema=state_schema(self.plan)), *self._came])
        again, others = split(self.plan, self._quiet, came, seen)
        return key_windows(self.plan, pl.concat([again, came]), seen), others

    def rows_of(self, states: pl.DataFrame) -> int:
        """How many rows of the stream some states count."""
        return int(states.get_column(COUNTED).sum())

    def size(self, windows: Iterable[Window]) -> Size:
        """See `WindowPanes`: all are looked at, whichever are closed."""
        count = sum(1 for _window in windows)
        return Size(count, 1 + len(self._came), self.rows_held.height) if count else Size()

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
