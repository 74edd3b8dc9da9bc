"""What a version does with its rows in a bucket: the kinds of windows behind one interface.

    PaneState     windows by time, closed by watermarks
    CountState    windows of so many rows of a lane, closed once these are there
    KeyState      windows of so many rows of each key of a lane, or of one that has fallen silent
    SessionState  sessions of each group, closed once a gap has passed behind their last row

A *level* says how far the input has come, and *closed* is C: a time for the one, for the other a
number of rows for each lane. Nobody else looks into either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from mars.core.definitions import TaskVersion
from mars.core.plan import Plan
from mars.core.types import Bucket, Entry, Lane, PaneRows, Partial, Sequence64
from mars.core.windows import Window
from mars.protocol.ports import Frontier, Head, Progress
from mars.protocol.windows.closers import Arrived, Closer
from mars.protocol.windows.closing import Ahead, ClosedWindow
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.window_panes import WindowPanes

Level: TypeAlias = Any
"""How far the input has come, as the state says it; None: nothing may be closed."""

Closed: TypeAlias = Any
"""Up to where windows are closed, as the state says it."""


@dataclass(frozen=True, slots=True)
class ClosingCommit:
    """What a commit at some level does besides the windows that are due there, and where it leads.

    `revised` are new revisions of closed windows, and `owed` those that it leaves to the next one.
    """

    frontier: Frontier
    revised: tuple[ClosedWindow, ...] = ()
    ahead: Ahead = field(default_factory=Ahead)
    owed: tuple[Window, ...] = ()


class StateCommits(Protocol):
    """What a commit says of the windows of a version in a bucket."""

    def closing(
        self, level: Level, merged: Mapping[Lane, int], *, caught_up: bool, none_to_come: bool
    ) -> ClosingCommit:
        """What a commit does at a level, with M as it will be. Before all is `caught_up` it emits
        nothing; `none_to_come`: no further row of this version will be read.
        """

    def closed_in(self, frontier: Frontier) -> Closed:
        """C of a frontier."""

    def rows_after(self, closed: Closed) -> int:
        """The rows of panes that windows need which are closed after that."""

    def needed(self, through: Mapping[Lane, int], frontier: Frontier) -> dict[Lane, int]:
        """Below these offsets nothing is needed once a frontier is committed."""

    def merged_entry(
        self, bucket: Bucket, seq: Sequence64, through: Mapping[Lane, int], frontier: Frontier
    ) -> Entry:
        """One entry that stands for all rows below `through` that are needed then."""

    def told(
        self, record: Progress, closing: ClosingCommit, level: Level, last: Progress | None
    ) -> Progress:
        """A record with all that it says of windows."""

    def recorded(self, record: Progress) -> None:
        """A record of this version is durable."""


class WindowState(Protocol):
    """The windows of one version in one bucket; `frontier` is that of the last commit."""

    plan: Plan
    panes: WindowPanes
    closer: Closer
    frontier: Frontier

    @property
    def needs_anchor(self) -> bool:
        """True if rows were judged by C alone: the next commit saves what stays, for its owners to
        begin with.
        """

    @property
    def commits(self) -> StateCommits:
        """What its commits say."""

    def update(self, version: TaskVersion, after: TaskVersion | None) -> None:
        """Take a newer definition; `after` is the version that follows, if it has begun."""

    @property
    def is_steady(self) -> bool:
        """True if windows close as a whole, none is revised, and it is known when they will."""

    # ------------------------------------------------------------------------------- absorb

    def judge(self, partial: Partial, *, accounted: bool) -> Arrived:
        """Which rows of an entry come too late. Those below M were judged by who counted them."""

    def late_partly(self, panes: Iterable[PaneRows]) -> int:
        """How many rows of these panes miss windows that are never revised."""

    def keep(self, arrived: Arrived, *, accounted: bool) -> None:
        """Take rows that are not late. Raises TaskLimit for too many panes, or groups."""

    def reached(self, head: Head) -> None:
        """All that the store held at a look is absorbed."""

    # -------------------------------------------------------------------------------- close

    def level(self, head: Head) -> Level:
        """How far the input has come, by one look at the store."""

    def reach(self, level: Level) -> Level:
        """The level, or an earlier one up to which one commit can close windows."""

    def due(self, level: Level) -> list[Window]:
        """The windows with rows that are closed by then, in order."""

    def soon(self, level: Level, span_ms: int) -> list[Window]:
        """The same once the watermark has gone on by so much."""

    def behind(self, level: Level) -> bool:
        """True if C could go on although no window is due, and nothing else may say so."""

    def open_windows(self) -> list[Window]:
        """All windows with rows that are not closed, in order."""

    def close(self, windows: Iterable[Window]) -> list[ClosedWindow]:
        """The finished rows of these windows; the panes stay until `committed` is called."""

    @property
    def has_waiting(self) -> bool:
        """True if something is to be emitted that comes with any commit."""

    @property
    def owes(self) -> bool:
        """True if a closed window is to be revised."""

    @property
    def shows_all(self) -> bool:
        """False while groups have got rows that no window shows yet."""

    def size_waiting(self) -> Size:
        """What all that waits takes."""

    # ------------------------------------------------------------------------------- commit

    def committed(self, frontier: Frontier) -> bool:
        """A record with this frontier is durable: forget what it closed for good.

        True if that was anything.
        """
