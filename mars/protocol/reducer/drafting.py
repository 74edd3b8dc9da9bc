"""Rows that are written to Kafka shortly before their window closes (decision 32).

    window ends ───────── delay ─────────▶ the watermark passes it
                          │                │
                          draft            commit: progress, and the marker that shows all of it
                          rows are finished
                          and written

A draft is a guess at the next transaction. It stands as long as no row has come since for its
windows; otherwise it is taken back, and the windows close as if there had been none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mars.core.plan import Plan
from mars.core.types import TaskName
from mars.core.windows import Window
from mars.protocol.ports import ResultBatch
from mars.protocol.reducer.emission import Emitted
from mars.protocol.windows.closing import Contents
from mars.protocol.windows.window_panes import WindowPanes

DRAFT_MS = 500
"""So long before the watermark reaches its end a window is drafted: as long as a mapper lets rows
rest at the most, and about what it takes to hand some ten thousand rows of each bucket to Kafka."""

DRAFT_DELAY_SHARE = 0.5
"""Of a task's delay, the most that it may be: without a delay rows come until a window closes."""

DRAFT_TOGETHER_MS = 50
"""How long the first task of a bucket whose window is about to close waits for others, so that they
are drafted with it, and how long the drafted ones wait for each other when some are due: they hear
of their rows one after the other."""

DRAFT_MS_MAX = 2_000
"""How long a draft is kept whose windows do not close, because a partition falls behind, say."""

DRAFT_PAUSE_MS = 60_000
DRAFT_PAUSE_MS_MAX = 3_600_000
"""After a draft that was of no use, twice as long after each further one, and half as long after
one that was: where rows come until the very end, drafts cost more than they save, a second writing
of the rows and a new producer, which takes half a second at times."""


def early_ms(plan: Plan) -> int:
    """How long before its windows close a task is drafted, in milliseconds of event time."""
    return min(DRAFT_MS, int(plan.options.delay_ms * DRAFT_DELAY_SHARE))


@dataclass(frozen=True, slots=True)
class Draft:
    """What one task version would emit, under which number, and of which windows."""

    emit: int
    contents: tuple[Contents, ...]
    rows: Emitted

    def stands(self, panes: WindowPanes) -> bool:
        """True if no row has come since for its windows."""
        return self.fits(panes, [one.window for one in self.contents], self.emit)

    def fits(self, panes: WindowPanes, due: Iterable[Window], emit: int) -> bool:
        """True if this is what the version has to emit, with these windows due."""
        return emit == self.emit and panes.contents(due) == self.contents


class Drafted(Protocol):
    """A task, as far as the draft of its bucket is concerned."""

    def closes_soon(self) -> bool:
        """True if a window is about to close; asked again without news from the store: False."""

    def draft_rows(self, buckets: int) -> int | None:
        """An upper bound of the rows that its draft would have; None: there is to be none."""

    def draft_stands(self) -> bool:
        """True if it has a draft, and no row came since for its windows."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What the sink was given to write."""

    at_ms: int
    tasks: tuple[TaskName, ...]
    results: tuple[ResultBatch, ...]


@dataclass(frozen=True, slots=True)
class DraftFigures:
    """What became of drafts since the start, those aside that somebody else had to end."""

    committed: int = 0
    taken_back: int = 0

    def __add__(self, other: DraftFigures) -> DraftFigures:
        """Of both together."""
        return DraftFigures(self.committed + other.committed, self.taken_back + other.taken_back)


class Drafting:
    """Whether a bucket has a draft, and when it makes one; all its tasks are in one.

    `rows_min`: fewer rows are not worth one; 0: none are. A task with more than `large_rows` has a
    transaction of its own, and so it has a draft alone. There are `buckets` buckets.
    """

    def __init__(self, rows_min: int, large_rows: int, buckets: int) -> None:
        self._rows_min = rows_min
        self._large_rows = large_rows
        self._buckets = buckets
        self._soon_ms: dict[TaskName, int] = {}
        """Since when it is known of tasks that a window is about to close."""
        self._due_ms: int | None = None
        """Since when some tasks of the draft are due and others are not."""
        self._written: _Written | None = None
        self._not_before_ms = 0
        self._pause_ms = DRAFT_PAUSE_MS
        self.figures = DraftFigures()

    def forget(self) -> None:
        """The bucket starts over: whoever claims it next ends the open transaction."""
        self._written = self._due_ms = None
        self._soon_ms = {}

    @property
    def under_way(self) -> bool:
        """True between a draft and the commit that takes it."""
        return self._written is not None

    def wanted(self, now_ms: int, tasks: Mapping[TaskName, Drafted]) -> list[TaskName]:
        """The tasks to be drafted now."""
        if not self._rows_min or now_ms < self._not_before_ms:
            return []
        for name, task in tasks.items():
            if task.closes_soon():
                self._soon_ms.setdefault(name, now_ms)
        waited_ms = now_ms - min(self._soon_ms.values(), default=now_ms)
        if not self._soon_ms or (len(tasks) > 1 and waited_ms < DRAFT_TOGETHER_MS):
            return []
        rows = {
            name: tasks[name].draft_rows(self._buckets) for name in self._soon_ms if name in tasks
        }
        self._soon_ms = {}
        counts = {name: count for name, count in rows.items() if count}
        large = len(counts) > 1 and max(counts.values()) > self._large_rows
        if large or None in rows.values() or sum(counts.values()) < self._rows_min:
            return []
        return [name for name in tasks if name in counts]

    def begin(self, now_ms: int, tasks: Iterable[TaskName], results: Sequence[ResultBatch]) -> None:
        """These rows are to be written."""
        self._written = _Written(now_ms, tuple(tasks), tuple(results))

    def stands(self, now_ms: int, tasks: Mapping[TaskName, Drafted]) -> bool:
        """True as long as it seems that the next commit will be of just these rows."""
        written = self._written
        if written is None or now_ms - written.at_ms >= DRAFT_MS_MAX:
            return False
        found = [tasks.get(name) for name in written.tasks]
        return all(task is not None and task.draft_stands() for task in found)

    def first(
        self, now_ms: int, due: Collection[TaskName], tasks: Mapping[TaskName, Drafted]
    ) -> tuple[TaskName, ...] | None:
        """Which of the due tasks to commit before the others: those of the draft, alone.

        None: it makes no difference. Without any: none yet, they will all be due in a moment.
        """
        written = self._written
        if written is None or not self.stands(now_ms, tasks) or not set(written.tasks) & set(due):
            return None
        if set(written.tasks) <= set(due):
            return written.tasks
        self._due_ms = now_ms if self._due_ms is None else self._due_ms
        return () if now_ms - self._due_ms < DRAFT_TOGETHER_MS else None

    def end(self, now_ms: int, results: Sequence[ResultBatch]) -> None:
        """The sink is to write these rows: it keeps the draft if they are the same."""
        written, self._written = self._written, None
        self._due_ms = None
        if written is None:
            return
        if written.results == tuple(results):
            self.figures = self.figures + DraftFigures(committed=1)
            self._pause_ms = max(self._pause_ms // 2, DRAFT_PAUSE_MS)
        else:
            self.figures = self.figures + DraftFigures(taken_back=1)
            self._not_before_ms = now_ms + self._pause_ms
            self._pause_ms = min(self._pause_ms * 2, DRAFT_PAUSE_MS_MAX)
