"""Buffers of several lanes that go to a task as one batch (M2, M3).

A batch costs about the same however few rows it has, in the mapper, the store and the reducers, and
a topic may have hundreds of partitions. What was read of them is decoded and grouped at once for
every task that takes the same buffers whole. Whatever comes between, a boundary of versions, a cut,
a lane that is behind or held back, concerns its own lane and task only: that buffer is offered to
that task alone, as it is after a batch of several was refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mars.core.plan import Plan
from mars.core.types import Mapped, Records, TaskName
from mars.engine.decode.lanes import side_by_side
from mars.engine.decode.limits import ROWS_MAX
from mars.engine.decode.parts import Part
from mars.engine.decode.shared import SharedDecoding
from mars.engine.decode.too_many import TooManyRows
from mars.engine.kernel import map_many
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.task_view import TaskView


@dataclass(frozen=True, slots=True)
class Beside:
    """A batch of several lanes for a task, of one of its versions."""

    task: TaskName
    version: int
    mapped: Mapped


class SideBySide:
    """Makes batches of several lanes for B buckets. Pure: no clock, no chance."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def make(
        self, views: Iterable[TaskView], buffers: Sequence[LaneBuffer], now_ms: int
    ) -> list[Beside]:
        """Batches for those of the tasks that take two or more of the buffers whole.

        A task for which something is raised has none: it is found out lane by lane.
        """
        alike: defaultdict[tuple[int, ...], list[tuple[int, Plan]]] = defaultdict(list)
        for view in views:
            version, places = _taken(view, buffers, now_ms)
            if len(places) > 1:
                alike[places].append((version, view.task.plans[version]))
        return [
            one
            for places, plans in alike.items()
            for one in self._made(plans, [buffers[at] for at in places])
        ]

    def _made(
        self, plans: Sequence[tuple[int, Plan]], buffers: Iterable[LaneBuffer]
    ) -> Iterable[Beside]:
        records = side_by_side([buffer.joined() for buffer in buffers])
        by_stream: defaultdict[object, list[tuple[int, Plan]]] = defaultdict(list)
        for version, plan in plans:
            by_stream[plan.stream].append((version, plan))
        for same in by_stream.values():
            yield from self._of_stream(same, records)

    def _of_stream(self, plans: Sequence[tuple[int, Plan]], records: Records) -> Iterable[Beside]:
        versions = {plan.task: version for version, plan in plans}
        try:
            decoded = list(
                SharedDecoding().of([plan for _, plan in plans], (), Part(records), ROWS_MAX)
            )
        except TooManyRows:
            return
        for some, found in decoded:
            if isinstance(found, Exception):
                continue
            for task, answer in map_many(some, self._buckets, found).items():
                if isinstance(answer, Mapped):
                    yield Beside(task, versions[task], answer)


def _taken(
    view: TaskView, buffers: Sequence[LaneBuffer], now_ms: int
) -> tuple[int, tuple[int, ...]]:
    """The newest version by which a task takes some of the buffers whole, and which these are."""
    versions = {
        at: version
        for at, buffer in enumerate(buffers)
        if (version := view.takes_whole(buffer.lane, buffer.first, buffer.next, now_ms)) is not None
        and view.name not in buffer.failed
    }
    newest = max(versions.values(), default=0)
    return newest, tuple(at for at, version in versions.items() if version == newest)
