"""What a mapper makes of a buffer (M2): decoded once for all tasks, mapped once for each."""

from __future__ import annotations

from mars.core.plan import Plan
from mars.core.types import Mapped, Range
from mars.engine.decode.limits import ROWS_MAX, TooManyRows
from mars.engine.decode.parts import Part
from mars.engine.kernel import map_batch, map_gone
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.slicing import CutBuffer
from mars.protocol.mapper.task_view import TaskView


class Batches:
    """Makes batches for B buckets. Pure: equal buffers give batches that add the same."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def turn(self, buffer: LaneBuffer) -> None:
        """Go on with what takes several turns; before each round of `make`."""
        for cut in buffer.cut.values():
            cut.turn()

    def made(self, view: TaskView, buffer: LaneBuffer) -> tuple[int, Mapped] | None:
        """What was made for a task before, if that is from where it is now, and as it counts there.

        Such a task, which refused it and is offered it again, holds up no section of the others.
        """
        known = buffer.offers.get(view.name)
        if known is None:
            return None
        version, mapped = known
        offset = view.offsets[buffer.lane]
        current, _boundary = view.task.definition.version_at(buffer.lane, offset)
        return known if version == current and mapped.ranges[0].first == offset else None

    def make(
        self, view: TaskView, buffer: LaneBuffer, takers: list[TaskView]
    ) -> tuple[int, Mapped] | None:
        """The version and the rows from the task's next offset on, up to the next boundary.

        None: not in this turn. What was made before is used again. `takers` are all tasks that one
        is to be made for in this turn. Raises TaskLimit.
        """
        made = self.made(view, buffer)
        if made is not None:
            return made
        offset = view.offsets[buffer.lane]
        version, boundary = view.task.definition.version_at(buffer.lane, offset)
        ends = [end for end in (boundary, view.cuts.get(buffer.lane)) if end is not None]
        end = min([end for end in ends if offset < end] + [buffer.next])
        mapped = self._map(view.task.plans[version], buffer, takers, offset, end)
        return None if mapped is None else (version, mapped)

    def _map(
        self, plan: Plan, buffer: LaneBuffer, takers: list[TaskView], offset: int, end: int
    ) -> Mapped | None:
        """What the rows `[offset, end)` of the buffer, or the first of them, add to a task."""
        if buffer.gone:
            return map_gone(plan, self._buckets, Range(buffer.lane, offset, end))
        if plan.stream not in buffer.cut:
            plans = (each for view in takers for each in view.task.plans.values())
            whole = Part(buffer.joined())
            try:
                rows = buffer.decoded.of(plan, plans, whole, ROWS_MAX)
            except TooManyRows:
                buffer.cut[plan.stream] = CutBuffer(plan.stream, whole.records)
            else:
                if offset != buffer.first:
                    rows = rows.from_offset(offset)
                if end < buffer.next:
                    rows = rows.until(end)
                return map_batch(plan, self._buckets, rows)
        return self._map_section(plan, buffer, takers, offset, end)

    def _map_section(
        self, plan: Plan, buffer: LaneBuffer, takers: list[TaskView], offset: int, end: int
    ) -> Mapped | None:
        """The same for one section of a buffer, that of the tasks that are furthest behind."""
        cut = buffer.cut[plan.stream]
        lane = buffer.lane
        readers = {view: _plan_at(view, buffer) for view in takers}
        readers = {view: each for view, each in readers.items() if each.stream == plan.stream}
        section = cut.at(min(view.offsets[lane] for view in readers))
        if not section.holds(offset):
            return None
        if not section.large:
            rows = cut.decoded.of(plan, readers.values(), Part(section.records))
            rows = rows.from_offset(offset).until(min(end, section.records.next))
            return map_batch(plan, self._buckets, rows)
        plans = {
            view.name: each for view, each in readers.items() if section.holds(view.offsets[lane])
        }
        slicing = cut.slicing or cut.slice(section, plans, self._buckets)
        if not slicing.done or slicing.plans.get(plan.task) != plan:
            return None
        return slicing.result(plan.task)


def _plan_at(view: TaskView, buffer: LaneBuffer) -> Plan:
    version, _boundary = view.task.definition.version_at(buffer.lane, view.offsets[buffer.lane])
    return view.task.plans[version]
