"""What a mapper makes of a buffer (M2): decoded once for all tasks, mapped once for each."""

from __future__ import annotations

from mars.kernel import map_batch, map_gone
from mars.machines.lane_buffer import LaneBuffer
from mars.machines.task_view import TaskView
from mars.plan import Plan
from mars.types import (
    Mapped,
    Range,
)


class Batches:
    """Makes batches for B buckets. Pure: equal buffers give equal batches."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def make(
        self, view: TaskView, buffer: LaneBuffer, takers: list[TaskView]
    ) -> tuple[int, Mapped]:
        """The version and the rows from the task's next offset on, up to the next boundary.

        What was made before is used again. `takers` are all tasks that are offered the buffer.
        Raises TaskLimit.
        """
        offset = view.offsets[buffer.lane]
        version, boundary = view.task.definition.version_at(buffer.lane, offset)
        known, mapped = buffer.offers.get(view.name, (None, None))
        if mapped is None or known != version or mapped.ranges[0].first != offset:
            ends = [end for end in (boundary, view.cuts.get(buffer.lane)) if end is not None]
            end = min([end for end in ends if offset < end] + [buffer.next])
            mapped = self._map(view.task.plans[version], buffer, takers, offset, end)
        return version, mapped

    def _map(
        self, plan: Plan, buffer: LaneBuffer, takers: list[TaskView], offset: int, end: int
    ) -> Mapped:
        """What the rows `[offset, end)` of the buffer add to a task."""
        if buffer.gone:
            return map_gone(plan, self._buckets, Range(buffer.lane, offset, end))
        plans = (each for view in takers for each in view.task.plans.values())
        rows = buffer.decoded.of(plan, plans, buffer.joined())
        if offset != buffer.first:
            rows = rows.from_offset(offset)
        if end < buffer.next:
            rows = rows.until(end)
        return map_batch(plan, self._buckets, rows)
