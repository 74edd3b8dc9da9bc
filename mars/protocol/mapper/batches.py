"""What a mapper makes of a buffer (M2): decoded once for all tasks, mapped together for those that
take the same rows of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from mars.core.errors import StatesTooLarge
from mars.core.plan import Plan, Stream
from mars.core.types import NOT_KNOWN, Mapped, Range, TaskName
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.limits import ROWS_MAX, TooManyRows
from mars.engine.decode.parts import Part
from mars.engine.kernel import Answers, answering, map_decoded, map_gone
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.slicing import CutBuffer
from mars.protocol.mapper.task_view import TaskView


class _Decode(Protocol):
    """Decodes some rows for plans, and what others read besides: see `SharedDecoding.of`."""

    def __call__(
        self, plans: Sequence[Plan], others: Iterable[Plan]
    ) -> Iterable[tuple[Sequence[Plan], Decoded | Exception]]: ...


@dataclass(frozen=True, slots=True)
class _Turn:
    """The rows that a task takes next, and the version by whose plan it does."""

    version: int
    plan: Plan
    rows: Range
    number: int
    """How many rows the task has counted before, where its windows count rows."""


class Batches:
    """Makes batches for B buckets. Pure: equal buffers give batches that add the same."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def make(
        self, takers: Sequence[TaskView], buffer: LaneBuffer
    ) -> dict[TaskName, tuple[int, Mapped | Exception]]:
        """For each task the version, and its rows from its next offset on, up to the next boundary.

        An exception tells what was raised instead, and concerns this task only (I7). Of tasks that
        are left out nothing is made in this turn. What was made before is used again.
        """
        for cut in buffer.cut.values():
            cut.turn()
        made = {view.name: found for view in takers if (found := _made(view, buffer)) is not None}
        lacking = [view for view in takers if view.name not in made]
        readers = [plan for view in lacking for plan in view.task.plans.values()]
        turns = {view.name: _turn_of(view, buffer) for view in lacking}
        answers: Answers = {}
        for stream, same in _by_stream(turns.values()).items():
            with answering(answers, [turn.plan for turn in same]):
                answers |= self._map(stream, same, readers, buffer)
        return made | {name: (turns[name].version, answer) for name, answer in answers.items()}

    def _map(
        self, stream: Stream, turns: Sequence[_Turn], readers: Sequence[Plan], buffer: LaneBuffer
    ) -> Answers:
        """What the rows of each turn, or the first of them, add to tasks of a stream."""
        lost = turns if buffer.gone else [turn for turn in turns if turn.number == NOT_KNOWN]
        rest = [turn for turn in turns if turn not in lost]
        answers = self._map_gone(lost)
        return answers | self._map_rows(stream, rest, readers, buffer) if rest else answers

    def _map_rows(
        self, stream: Stream, turns: Sequence[_Turn], readers: Sequence[Plan], buffer: LaneBuffer
    ) -> Answers:
        """The same of rows that are there, and have their numbers where these count."""
        if stream not in buffer.cut:
            whole = Part(buffer.joined())
            answers: Answers = {}
            try:
                for rows, plans in _by_rows(turns).items():
                    decode = partial(buffer.decoded.of, part=whole, rows_max=ROWS_MAX)
                    answers |= self._map_fitting(plans, readers, decode, rows, _numbers(turns))
            except TooManyRows:
                buffer.cut[stream] = CutBuffer(stream, whole.records)
            else:
                return answers
        return self._map_section(turns, buffer.cut[stream])

    def _map_fitting(
        self,
        plans: Sequence[Plan],
        readers: Sequence[Plan],
        decode: _Decode,
        rows: Range,
        numbers: Mapping[TaskName, int],
    ) -> Answers:
        """The same for some rows; for a task to which they add too much, the first of them.

        Else it would hang on how many rows came at once whether a task can go on.
        """
        answers = map_decoded(decode(plans, readers), rows, self._buckets, numbers)
        for plan in plans:
            first = rows
            while isinstance(answers[plan.task], StatesTooLarge) and first.next > first.first + 1:
                first = Range(first.lane, first.first, (first.first + first.next) // 2)
                again = decode([plan], readers)
                answers |= map_decoded(again, first, self._buckets, numbers)
        return answers

    def _map_gone(self, turns: Iterable[_Turn]) -> Answers:
        """Rows that are not there; or have no numbers, as nobody knows how many are not."""
        answers: Answers = {}
        for turn in turns:
            with answering(answers, [turn.plan]):
                gone = map_gone(turn.plan, self._buckets, turn.rows, turn.number)
                answers[turn.plan.task] = gone
        return answers

    def _map_section(self, turns: Sequence[_Turn], cut: CutBuffer) -> Answers:
        """The same for one section of a buffer, that of the tasks that are furthest behind."""
        section = cut.at(min(turn.rows.first for turn in turns))
        held = [turn for turn in turns if section.holds(turn.rows.first)]
        answers: Answers = {}
        if not section.large:
            for rows, plans in _by_rows(held).items():
                decode = partial(cut.decoded.of, part=Part(section.records))
                own = Range(rows.lane, rows.first, min(rows.next, section.records.next))
                readers = [turn.plan for turn in turns]
                answers |= self._map_fitting(plans, readers, decode, own, _numbers(held))
            return answers
        takers = {turn.plan.task: turn.plan for turn in held}
        slicing = cut.slicing or cut.slice(section, takers, self._buckets, _numbers(held))
        for turn in held:
            plan, task = turn.plan, turn.plan.task
            if slicing.done and slicing.is_of(plan, turn.number):
                with answering(answers, [plan]):
                    answers[task] = slicing.result(task)
        return answers


def _made(view: TaskView, buffer: LaneBuffer) -> tuple[int, Mapped] | None:
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


def _turn_of(view: TaskView, buffer: LaneBuffer) -> _Turn:
    lane, offset = buffer.lane, view.offsets[buffer.lane]
    version, boundary = view.task.definition.version_at(lane, offset)
    ends = [end for end in (boundary, view.cuts.get(buffer.lane)) if end is not None]
    end = min([end for end in ends if offset < end] + [buffer.next])
    plan, number = view.task.plans[version], view.rows.get(lane, 0)
    return _Turn(version, plan, Range(lane, offset, end), number)


def _numbers(turns: Iterable[_Turn]) -> dict[TaskName, int]:
    """How many rows of the tasks that count them lie before."""
    return {turn.plan.task: turn.number for turn in turns if turn.plan.counts_rows}


def _by_stream(turns: Iterable[_Turn]) -> Mapping[Stream, list[_Turn]]:
    by_stream: defaultdict[Stream, list[_Turn]] = defaultdict(list)
    for turn in turns:
        by_stream[turn.plan.stream].append(turn)
    return by_stream


def _by_rows(turns: Iterable[_Turn]) -> Mapping[Range, list[Plan]]:
    by_rows: defaultdict[Range, list[Plan]] = defaultdict(list)
    for turn in turns:
        by_rows[turn.rows].append(turn.plan)
    return by_rows
