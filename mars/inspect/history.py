"""How far a task's history is mapped, as its definition and the store's head tell."""

from __future__ import annotations

from dataclasses import dataclass

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.types import Lane
from mars.protocol.ports import Head

BACKFILLING = "backfilling"
"""What a running task does while some of its history is not mapped."""


@dataclass(frozen=True, slots=True)
class HistoryLane:
    """One lane of a backfill: `[first, next)` is mapped, `[next, end)` is not.

    Offsets are messages of a topic, rows of Parquet files or bytes of text files.
    """

    lane: Lane
    first: int
    next: int
    end: int

    @property
    def finished(self) -> bool:
        """True once nothing is left."""
        return self.next >= self.end

    @property
    def percent(self) -> float:
        """How much is mapped, rounded down to a tenth: 100 means finished."""
        return _percent(self.next - self.first, self.end - self.first)


@dataclass(frozen=True, slots=True)
class History:
    """All lanes of all backfills of a task, in the order of the definition."""

    lanes: tuple[HistoryLane, ...]

    @property
    def done(self) -> int:
        """Offsets that are mapped."""
        return sum(one.next - one.first for one in self.lanes)

    @property
    def total(self) -> int:
        """All offsets."""
        return sum(one.end - one.first for one in self.lanes)

    @property
    def finished(self) -> bool:
        """True once nothing is left in any lane."""
        return all(one.finished for one in self.lanes)

    @property
    def percent(self) -> float:
        """How much is mapped, rounded down to a tenth: 100 means finished."""
        return _percent(self.done, self.total)


def history_of(definition: TaskDefinition, head: Head | None) -> History | None:
    """How far the history is; None for a task that has none. Without a head nothing is mapped."""
    if not definition.backfills:
        return None
    offsets = head.offsets if head is not None else {}
    return History(
        tuple(
            HistoryLane(
                lane=lane,
                first=span.first,
                next=min(max(offsets.get(lane, span.first), span.first), span.end),
                end=span.end,
            )
            for backfill in definition.backfills
            for lane, span in backfill.lanes.items()
        )
    )


def state_for_people(definition: TaskDefinition, history: History | None) -> str:
    """The state of a task as it is shown: `backfilling` as long as it runs with history to map."""
    running = definition.state is TaskState.RUNNING
    unfinished = history is not None and not history.finished
    return BACKFILLING if running and unfinished else definition.state.value


def _percent(done: int, total: int) -> float:
    return done * 1_000 // total / 10 if total > 0 else 100.0
