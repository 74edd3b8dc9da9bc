"""What the groups of a task carry besides its own aggregates, where its windows count rows.

A window of so many rows lies between no two times that are known before: what a group's rows say of
it is the lowest and highest of their event times, and of their offsets. These are ordinary
aggregates, so they are merged, saved and read again like all others.
"""

from __future__ import annotations

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


def place_aggregates(event_time: str) -> tuple[Aggregate, ...]:
    """The aggregates, each under the name that results have; `event_time` names the stream's
    field.
    """
    time = Column(event_time, ValueType.TIMESTAMP)
    offset = Column(OFFSET_FIELD.name, ValueType.INT64)
    lowest, highest = AggregateFunction.MIN, AggregateFunction.MAX
    return (
        Aggregate(WINDOW_START, lowest, time, None, ValueType.TIMESTAMP),
        Aggregate(WINDOW_END, highest, time, None, ValueType.TIMESTAMP),
        Aggregate(WINDOW_FIRST_OFFSET, lowest, offset, None, ValueType.INT64),
        Aggregate(WINDOW_LAST_OFFSET, highest, offset, None, ValueType.INT64),
    )
