"""Buffers of several lanes that go to a task as one batch (M2, M3).

A batch costs about the same however few rows it has, in the mapper, the store and the reducers, and
a topic may have hundreds of partitions. What was read of them is decoded and grouped at once for
every task that takes the same buffers whole:

    lane 0   [ buffer ]──┐                     lane 1 lies ahead of a version's start, a cut or a
    lane 1   [ buffer ]──┼──▶ by itself        task's offset, or is held back: its task takes it by
    lane 2   [ buffer ]──┴──▶ one batch        itself, and all of them after a refusal of several
    lane 3   [ buffer ]──┘
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mars.core.plan import Plan, Stream
from mars.core.portions import portions
from mars.core.types import Mapped, Records, TaskName
from mars.engine.decode.lanes import side_by_side
from mars.engine.decode.limits import ROWS_MAX
from mars.engine.decode.parts import Part
from mars.engine.decode.shared import SharedDecoding
from mars.engine.decode.too_many import TooManyRows
from mars.engine.kernel import Answers, map_decoded
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.task_view import TaskView

BESIDE_MESSAGES_MAX = 20_000
BESIDE_BYTES_MAX = 8 * 1024 * 1024
"""Of a batch of several lanes. With so many rows it costs little more in two; and a mapper at full
speed needs no more memory than for the largest buffer."""


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
        self, views: Sequence[TaskView], buffers: Iterable[LaneBuffer], now_ms: int
    ) -> list[Beside]:
        """Batches for those of the tasks that take two or more of the buffers whole.

        A task for which something is raised has none: it is found out lane by lane.
        """
        return [
            batch
            for some in portions(
                sorted(buffers, key=_messages),
                (_messages, BESIDE_MESSAGES_MAX),
                (_bytes, BESIDE_BYTES_MAX),
            )
            for places, plans in _alike(views, some, now_ms).items()
            for batch in self._made(plans, [some[at] for at in places])
        ]

    def _made(
        self, plans: Iterable[tuple[int, Plan]], buffers: Iterable[LaneBuffer]
    ) -> Iterator[Beside]:
        records = side_by_side([buffer.joined() for buffer in buffers])
        by_stream: defaultdict[Stream, list[tuple[int, Plan]]] = defaultdict(list)
        for version, plan in plans:
            by_stream[plan.stream].append((version, plan))
        for same in by_stream.values():
            yield from self._of_stream(same, records)

    def _of_stream(self, plans: Sequence[tuple[int, Plan]], records: Records) -> Iterator[Beside]:
        versions = {plan.task: version for version, plan in plans}
        readers = [plan for _version, plan in plans]
        decoded = SharedDecoding().of(readers, (), Part(records), ROWS_MAX)
        answers: Answers = {}
        with suppress(TooManyRows):
            answers = map_decoded(decoded, None, self._buckets)
        for task, answer in answers.items():
            if isinstance(answer, Mapped):
                yield Beside(task, versions[task], answer)


def _messages(buffer: LaneBuffer) -> int:
    return buffer.rows


def _bytes(buffer: LaneBuffer) -> int:
    return buffer.bytes


def _alike(
    views: Iterable[TaskView], buffers: Sequence[LaneBuffer], now_ms: int
) -> dict[tuple[int, ...], list[tuple[int, Plan]]]:
    """By the places of some of the buffers, two or more, the plans of the tasks that take these."""
    alike: defaultdict[tuple[int, ...], list[tuple[int, Plan]]] = defaultdict(list)
    if len(buffers) > 1:
        for view in views:
            version, places = _taken(view, buffers, now_ms)
            if len(places) > 1:
                alike[places].append((version, view.task.plans[version]))
    return alike


def _taken(
    view: TaskView, buffers: Sequence[LaneBuffer], now_ms: int
) -> tuple[int, tuple[int, ...]]:
    """The newest version by which a task takes some of the buffers whole, and which these are."""
    versions = {
        at: version
        for at, buffer in enumerate(buffers)
        if (version := view.takes_beside(buffer.part, now_ms)) is not None
    }
    newest = max(versions.values(), default=0)
    return newest, tuple(at for at, version in versions.items() if version == newest)
