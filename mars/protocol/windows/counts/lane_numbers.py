"""How many rows that count lie below the offsets of lanes, as far as one version has to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mars.core.definitions import TaskVersion
from mars.core.types import NOT_KNOWN, Lane, Numbers
from mars.core.windows.counting import LANE_PLACES
from mars.protocol.ports import Head, Progress
from mars.protocol.windows.panes import Pane

Rows = Mapping[Lane, int]
"""How many rows of each lane; a lane that is not named has none."""

ALL_ROWS = LANE_PLACES - 1
"""More than any lane has."""


class LaneNumbers:
    """The numbers that a record may name, and where the version begins and ends.

    `starts` are the offsets at which it begins: no row lies below them.
    """

    def __init__(
        self, starts: Mapping[Lane, int], record: Progress | None, ended: int = ALL_ROWS
    ) -> None:
        self._starts = starts
        self._ended = ended
        """The level of a lane in which the version has ended."""
        self._after: TaskVersion | None = None
        self._below: dict[Lane, dict[int, int]] = {}
        self._reached: dict[Lane, dict[int, int]] = {}
        """Those of the offsets up to which all is absorbed."""
        if record is not None and record.rows is not None:
            self.learn(record.rows.below)

    def update(self, version: TaskVersion, after: TaskVersion | None) -> None:
        """Take a newer definition; `after` is the version that follows, if it has begun."""
        self._starts, self._after = version.starts or {}, after

    def learn(self, numbers: Numbers) -> None:
        """Take what an entry, a record or the store says."""
        for lane, below in numbers.items():
            self._below.setdefault(lane, {}).update(below)

    def reached(self, head: Head) -> None:
        """All that the store held at a look is absorbed."""
        self._reached = {
            lane: {offset: number}
            for lane, offset in head.offsets.items()
            if (number := head.rows.get(lane, 0)) != NOT_KNOWN and self._counts(lane, offset)
        }
        self.learn(self._reached)

    def level(self, head: Head) -> dict[Lane, int]:
        """The rows up to which lanes have come: all of one in which the version has ended."""
        level: dict[Lane, int] = {}
        for lane, offset in head.offsets.items():
            if self._has_ended(lane, offset):
                level[lane] = self._ended
            elif self._counts(lane, offset):
                level[lane] = max(0, head.rows.get(lane, 0))
        return level

    def ends_before(self, lane: Lane, number: int) -> bool:
        """Whether the version has ended with fewer rows of a lane."""
        return self._after is not None and number > self._after.rows_before.get(lane, 0)

    def _counts(self, lane: Lane, offset: int) -> bool:
        """Whether the row before an offset is of this version, and so is the one behind it."""
        return self._starts.get(lane, 0) < offset and not self._has_ended(lane, offset)

    def _has_ended(self, lane: Lane, offset: int) -> bool:
        after = self._after
        return after is not None and offset >= (after.starts or {}).get(lane, 0)

    def at(self, *places: Mapping[Lane, int], known: Numbers) -> dict[Lane, dict[int, int]]:
        """What is known below some offsets, here or otherwise."""
        found: dict[Lane, dict[int, int]] = {}
        for offsets in places:
            for lane, offset in offsets.items():
                number = self._below.get(lane, {}).get(offset, known.get(lane, {}).get(offset))
                if number is not None:
                    found.setdefault(lane, {})[offset] = number
        return found

    def keep(self, record: Progress, panes: Iterable[Pane]) -> None:
        """A record is durable: only those are kept that may be named again."""
        named = {} if record.rows is None else record.rows.below
        self._below = self.at(*(pane.first for pane in panes), known={})
        self.learn(named)
        self.learn(self._reached)
