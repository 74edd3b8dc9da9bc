"""What the groups of a task carry besides its own aggregates, where its watermark has a scope.

`MARK` is the highest event time of a group's rows, `COUNTED` how many they are. Both are states of
ordinary aggregates, so they are merged, saved and read again like all others; no output shows them.
"""

from __future__ import annotations

from typing import Final

from mars.core.plan import Aggregate, AggregateFunction, Column, ValueType

_MARK_SLOT: Final = "__mark"
LAST_TIME: Final = _MARK_SLOT
"""The column of finished groups with the same as `MARK`."""
_COUNTED_SLOT: Final = "__counted"

MARK: Final = f"{_MARK_SLOT}_value"
"""The state column with the highest event time (Int64, epoch ms)."""

COUNTED: Final = f"{_COUNTED_SLOT}_n"
"""The state column with the number of rows (Int64)."""


def scope_aggregates(event_time: str) -> tuple[Aggregate, ...]:
    """The aggregates whose states these are; `event_time` names the stream's field."""
    time = Column(event_time, ValueType.TIMESTAMP)
    return (
        Aggregate(_MARK_SLOT, AggregateFunction.MAX, time, None, ValueType.TIMESTAMP),
        Aggregate(_COUNTED_SLOT, AggregateFunction.COUNT_ALL, None, None, ValueType.INT64),
    )
