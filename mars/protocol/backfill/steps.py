"""A batch to come of a bulk process, and how far it lets event time go on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mars.core.definitions import Backfill, FileHistory
from mars.core.types import Mapped, Range
from mars.protocol.runnable import RunnableTask

Ranges = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One batch to come: ranges of one version, all read in the same way."""

    version: int
    ranges: Ranges
    backfill: Backfill | None

    @property
    def files(self) -> FileHistory | None:
        """The files that hold the rows; None: the topic does."""
        return self.backfill.files if self.backfill is not None else None


def marked(mapped: Mapped, step: Step, task: RunnableTask) -> Mapped:
    """The batch with the mark of a lane of files, which need not be in order.

    It rises to what every file not yet read to its end is known to lie above, so that none of
    their rows is late; it stays away while one's times are not known. It never lies after
    `until`: rows behind that are filtered, and their times say nothing.
    """
    if step.files is None:
        return mapped
    (part,) = step.ranges
    left = [file for file in step.files.files if file.next > part.next]
    marks_ms = mapped.marks_ms
    if left:
        earliest = [file.earliest_ms for file in left]
        known = [time_ms for time_ms in earliest if time_ms is not None]
        if len(known) < len(earliest):
            return replace(mapped, marks_ms={})
        delay_ms = task.plans[step.version].options.delay_ms
        marks_ms = {part.lane: min(known) - 1 + delay_ms}
    if (until_ms := step.files.until_ms) is not None:
        marks_ms = {lane: min(at, until_ms) for lane, at in marks_ms.items()}
    return replace(mapped, marks_ms=marks_ms)
