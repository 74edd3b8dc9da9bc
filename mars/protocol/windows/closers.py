"""Whose watermark closes a task's windows: that of its partitions, of the bucket, or of each key.

PARTITION   one level for all: what the marks of the lanes say
BUCKET      the marks of the bucket's own rows, where they are further
KEY         groups close ahead of the others, by the marks of their keys (`key_closer.py`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import polars as pl

from mars.core.plan import Plan
from mars.core.types import Lane, PaneRows
from mars.core.windows import find_watermark
from mars.engine.aggregates import MARK
from mars.engine.codec.streams import UnreadStates
from mars.protocol.ports import Frontier, Head
from mars.protocol.windows.closing import Ahead
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.window_panes import States


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows of one entry, pane by pane: those that come too late, and the others with states.

    Those of a single pane may be `unread`.
    """

    late: tuple[PaneRows, ...]
    panes: tuple[PaneRows, ...]
    states: States
    unread: UnreadStates | None = None


class Closer(Protocol):
    """What the watermark of a task adds to its windows."""

    @property
    def reads_states(self) -> bool:
        """True if it looks into the states of rows as they come."""

    @property
    def is_steady(self) -> bool:
        """True if windows close as a whole."""

    @property
    def waits(self) -> bool:
        """True if rows above M cannot be judged until all below it are back."""

    @property
    def settled(self) -> bool:
        """True once all that has to be back is; before, a commit can say nothing new."""

    def settle(self) -> None:
        """All rows below M have been read again."""

    def lacks_rows(self) -> None:
        """Rows below M are gone. Raises TaskLimit where the task cannot go on without them."""

    def late_apart(self, panes: tuple[PaneRows, ...], states: States) -> Arrived:
        """Of new rows, those that come too late although their windows are open."""

    def see(self, panes: Sequence[PaneRows], states: States) -> None:
        """Rows came into these panes."""

    def level(self, head: Head, level_ms: int | None) -> int | None:
        """The watermark of this bucket, given that of the partitions."""

    def held(self, closed_ms: int) -> int:
        """How far C can go without a window, where it could go as far as `closed_ms`."""

    def close_ahead(self, closed_ms: int | None) -> Ahead:
        """What is to be closed group by group of the windows that end after `closed_ms`."""

    def has_ahead(self) -> bool:
        """Whether `close_ahead` would close anything now."""

    def size_ahead(self) -> Size:
        """What `close_ahead` would close now, all of it."""

    def committed(self, frontier: Frontier) -> bool:
        """A record is durable. True if groups that it closed were forgotten."""


class PartitionCloser:
    """The lanes' watermark closes whole windows."""

    reads_states: ClassVar[bool] = False

    is_steady: ClassVar[bool] = True
    waits: ClassVar[bool] = False
    settled: bool = True

    def settle(self) -> None:
        """See `Closer`."""

    def lacks_rows(self) -> None:
        """See `Closer`: its windows say that they are incomplete."""

    def late_apart(self, panes: tuple[PaneRows, ...], states: States) -> Arrived:
        """See `Closer`."""
        return Arrived((), panes, states)

    def see(self, panes: Sequence[PaneRows], states: States) -> None:
        """See `Closer`."""

    def level(self, head: Head, level_ms: int | None) -> int | None:
        """See `Closer`."""
        return level_ms

    def held(self, closed_ms: int) -> int:
        """See `Closer`."""
        return closed_ms

    def close_ahead(self, closed_ms: int | None) -> Ahead:
        """See `Closer`."""
        return Ahead()

    def has_ahead(self) -> bool:
        """See `Closer`."""
        return False

    def size_ahead(self) -> Size:
        """See `Closer`."""
        return Size()

    def committed(self, frontier: Frontier) -> bool:
        """See `Closer`."""
        return False


class BucketCloser(PartitionCloser):
    """The marks of the bucket's own rows close whole windows.

    They start closing, and nothing more: a successor that knows them less well closes later.
    """

    reads_states: ClassVar[bool] = True

    def __init__(self, plan: Plan) -> None:
        self._options = plan.options
        self._marks_ms: dict[Lane, int] = {}

    def see(self, panes: Sequence[PaneRows], states: States) -> None:
        """See `Closer`."""
        for pane in panes:
            mark_ms = pane.start_ms  # as much is known of each lane where several are merged
            if len(pane.first) == 1:
                mark_ms = states[pane.start_ms].select(pl.col(MARK).max()).item()
            for lane in pane.first:
                self._marks_ms[lane] = max(mark_ms, self._marks_ms.get(lane, mark_ms))

    def level(self, head: Head, level_ms: int | None) -> int | None:
        """The lowest mark of the bucket's rows, lane by lane; `level_ms` where that is further."""
        own = find_watermark(
            lanes=head.offsets.keys(),
            marks_ms=self._marks_ms,
            taken_ms={},
            idle=head.idle,
            delay_ms=self._options.delay_ms,
            idle_after_ms=self._options.idle_after_ms,
            now_ms=head.now_ms,
            finished=head.finished,
        )
        known = [] if own.held_by is None or own.time_ms is None else [own.time_ms]
        return max([*known, *([] if level_ms is None else [level_ms])], default=None)
