"""What the groups of a task carry besides its own aggregates, where rows say where windows lie.

A window of so many rows lies between no two times that are known before: what a group's rows say of
it is the lowest and highest of their event times, and of their offsets. A session begins with its
first row, and its last one and the gap tell where it ends. These are ordinary aggregates, so they
are merged, saved and read again like all others.
"""

from __future__ import annotations

from typing import Final

from mars.core.plan import (
    OFFSET_FIELD,
    WINDOW_END,
    WINDOW_FIRST_OFFSET,
    WINDOW_LAST_OFFSET,
    WINDOW_START,
    Aggregate,
    AggregateFunction,
    Column,
    ValueType,
)
from mars.engine.aggregates.scoped import scope_aggregates

FIRST: Final = f"{WINDOW_START}_value"
"""The state column with the lowest event time of a group's rows (Int64, epoch ms)."""


def place_aggregates(event_time: str) -> tuple[Aggregate, ...]:
    """The aggregates, each under the name that results have; `event_time` names the stream's
    field.
    """
    time = _time(event_time)
    offset = Column(OFFSET_FIELD.name, ValueType.INT64)
    lowest, highest = AggregateFunction.MIN, AggregateFunction.MAX
    return (
        first_time(event_time),
        Aggregate(WINDOW_END, highest, time, None, ValueType.TIMESTAMP),
        Aggregate(WINDOW_FIRST_OFFSET, lowest, offset, None, ValueType.INT64),
        Aggregate(WINDOW_LAST_OFFSET, highest, offset, None, ValueType.INT64),
    )


_SEEN_FIRST_SLOT: Final = "__seen_first"
_SEEN_LAST_SLOT: Final = "__seen_last"

SEEN: Final = "\0seen"
"""The column with how far the event time of its partition had come with each row, that included
(`seen_of`); no field has such a name."""

SEEN_FIRST: Final = f"{_SEEN_FIRST_SLOT}_value"
"""The state column with `SEEN` of a group's first row (Int64)."""

SEEN_LAST: Final = f"{_SEEN_LAST_SLOT}_value"
"""The same of its last one."""

FIRST_OFFSET: Final = f"{WINDOW_FIRST_OFFSET}_value"
"""The state column with the offset of a group's first row (Int64)."""

LAST_OFFSET: Final = f"{WINDOW_LAST_OFFSET}_value"
"""The same of its last one."""


def key_place_aggregates(event_time: str) -> tuple[Aggregate, ...]:
    """The same where the rows of each key are counted; and how many they are, and when they came
    by the event time of their partition.
    """
    lowest, highest = AggregateFunction.MIN, AggregateFunction.MAX
    seen = Column(SEEN, ValueType.INT64)
    _mark, counted = scope_aggregates(event_time)
    return (
        *place_aggregates(event_time),
        counted,
        Aggregate(_SEEN_FIRST_SLOT, lowest, seen, None, ValueType.INT64),
        Aggregate(_SEEN_LAST_SLOT, highest, seen, None, ValueType.INT64),
    )


def session_aggregates(event_time: str) -> tuple[Aggregate, ...]:
    """The first and the last event time of a group's rows, and how many there are."""
    return (first_time(event_time), *scope_aggregates(event_time))


def first_time(event_time: str) -> Aggregate:
    """The lowest event time of a group's rows."""
    lowest = AggregateFunction.MIN
    return Aggregate(WINDOW_START, lowest, _time(event_time), None, ValueType.TIMESTAMP)


def _time(event_time: str) -> Column:
    return Column(event_time, ValueType.TIMESTAMP)
