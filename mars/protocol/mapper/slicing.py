"""Rows of a buffer that are more than are to be decoded at once (M2).

Sections of whole messages become a batch each. A message that alone has too many rows is decoded
and mapped part by part, one at each turn, so that the process reads, answers and serves other
topics between them; what all of its parts add to a task is one batch, like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mars.core.plan import Plan, Stream
from mars.core.types import Mapped, Range, Records, TaskName
from mars.engine.combining import combine
from mars.engine.decode.parts import Part, Section, parts, sections
from mars.engine.decode.shared import SharedDecoding
from mars.engine.kernel import map_decoded


@dataclass(slots=True)
class Slicing:
    """A message that is decoded and mapped part by part for some tasks."""

    remaining: Iterator[Part]
    plans: Mapping[TaskName, Plan]
    buckets: int
    numbers: dict[TaskName, int]
    """How many rows of each task that counts them lie before the next part."""
    begun: Mapping[TaskName, int]
    """The same before the first one."""
    pieces: defaultdict[TaskName, list[Mapped]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[TaskName, Exception] = field(default_factory=dict)
    done: bool = False

    def step(self) -> None:
        """Decode and map the next part."""
        part = next(self.remaining)
        records = part.records
        plans = [plan for task, plan in self.plans.items() if task not in self.failed]
        rows = Range(records.lane, records.first, records.next)
        decoded = SharedDecoding().of(plans, (), part)
        for task, answer in map_decoded(decoded, rows, self.buckets, self.numbers).items():
            if isinstance(answer, Exception):
                self.failed[task] = answer
            else:
                self.pieces[task].append(answer)
                for counted in answer.numbered.values():
                    self.numbers[task] = counted.next
        last = records.first < records.next
        self.done = last or len(self.failed) == len(self.plans)

    def is_of(self, plan: Plan, number: int) -> bool:
        """Whether it is for a plan, and counts its rows from there on."""
        same = self.plans.get(plan.task) == plan
        return same and self.begun.get(plan.task, 0) == number

    def result(self, task: TaskName) -> Mapped:
        """What all parts add to a task. Raises what the decoding or mapping of one raised."""
        if task in self.failed:
            raise self.failed[task]
        return combine(self.plans[task], self.pieces[task])


class CutBuffer:
    """The messages of a buffer as one stream reads them, in sections."""

    def __init__(self, stream: Stream, records: Records) -> None:
        self._stream = stream
        self._records = records
        self.decoded = SharedDecoding()
        self.slicing: Slicing | None = None
        self._begin()

    def _begin(self) -> None:
        self._sections = sections(self._stream, self._records)
        self._section: Section | None = None

    def at(self, offset: int) -> Section:
        """The section that holds an offset of the buffer. It is the only one that is kept."""
        if self._section is not None and offset < self._section.records.first:
            self._begin()
        while self._section is None or not self._section.holds(offset):
            self._section = next(self._sections)
            self.decoded = SharedDecoding()
            self.slicing = None
        return self._section

    def slice(
        self,
        section: Section,
        plans: Mapping[TaskName, Plan],
        buckets: int,
        numbers: Mapping[TaskName, int],
    ) -> Slicing:
        """Begin with the parts of a section for these tasks, and do the first."""
        remaining = parts(self._stream, section)
        self.slicing = Slicing(remaining, plans, buckets, dict(numbers), numbers)
        self.slicing.step()
        return self.slicing

    def turn(self) -> None:
        """Go on with the parts of a section; what nobody took when it was done is forgotten."""
        if self.slicing is None:
            return
        if self.slicing.done:
            self.slicing = None
        else:
            self.slicing.step()
