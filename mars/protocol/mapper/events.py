"""What the mapping machine is told, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NewType

from mars.core.types import Mapped, StoreEpoch, TaskName, Topic
from mars.protocol.ports import AppendOutcome, IdleLease, SourceEvent
from mars.protocol.reducer.events import FailTask, HeadsRead, Report, TasksChanged

ReaderName = NewType("ReaderName", str)
LIVE: Final = ReaderName("live")
CATCH_UP: Final = ReaderName("catch_up")

ReaderLane = tuple[ReaderName, Topic, int]
"""A partition as one of the readers reads it."""

# ------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Read these topics as a member of the group."""

    topics: tuple[Topic, ...]


@dataclass(frozen=True, slots=True)
class ReadHeads:
    """Read the heads of these tasks."""

    tasks: tuple[TaskName, ...]


@dataclass(frozen=True, slots=True)
class SeekLane:
    """Let a reader go on from `offset`."""

    reader: ReaderName
    topic: Topic
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DropLane:
    """Let a reader stop to read a partition."""

    reader: ReaderName
    topic: Topic
    partition: int


@dataclass(frozen=True, slots=True)
class PauseLane:
    """Let a reader deliver nothing of a partition, and stay in the group."""

    reader: ReaderName
    topic: Topic
    partition: int


@dataclass(frozen=True, slots=True)
class ResumeLane:
    """Let a reader deliver a paused partition again, from `offset`."""

    reader: ReaderName
    topic: Topic
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Offer:
    """Append a batch of one lane or more to a task's log (M3); the answer is an `Offered`."""

    reader: ReaderName
    topic: Topic
    task: TaskName
    epoch: StoreEpoch
    version: int
    mapped: Mapped


@dataclass(frozen=True, slots=True)
class ConfirmEnds:
    """Ask the brokers where nothing committed lies at or after these offsets."""

    ends: Mapping[tuple[Topic, int], int]


@dataclass(frozen=True, slots=True)
class RenewIdle:
    """Lease lanes as idle, for each task that has seen all of them."""

    leases: tuple[IdleLease, ...]


@dataclass(frozen=True, slots=True)
class Hint:
    """Commit group offsets, best effort."""

    positions: tuple[tuple[tuple[Topic, int], int], ...]


Steering = Subscribe | SeekLane | DropLane | PauseLane | ResumeLane | ConfirmEnds | Hint
"""What is carried out on the source."""

Alone = Steering | ReadHeads | RenewIdle | FailTask | Report
"""What is carried out by itself; offers that follow each other go together."""

Instruction = Alone | Offer

# ------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Sourced:
    """A reader delivered something."""

    reader: ReaderName
    event: SourceEvent


@dataclass(frozen=True, slots=True)
class Offered:
    """The answer to an offer; None: it is not known whether the batch was appended."""

    offer: Offer
    outcome: AppendOutcome | None


@dataclass(frozen=True, slots=True)
class EndsConfirmed:
    """The answer to `ConfirmEnds`: where it is so."""

    ends: Mapping[tuple[Topic, int], int]


@dataclass(frozen=True, slots=True)
class Ticked:
    """The process's monotonic clock; `drained` are the readers that are near the end of what is."""

    now_ms: int
    drained: frozenset[ReaderName]


Event = TasksChanged | HeadsRead | Sourced | Offered | EndsConfirmed | Ticked

__all__ = [
    "CATCH_UP",
    "LIVE",
    "ConfirmEnds",
    "DropLane",
    "EndsConfirmed",
    "Event",
    "FailTask",
    "HeadsRead",
    "Hint",
    "Instruction",
    "Offer",
    "Offered",
    "PauseLane",
    "ReadHeads",
    "ReaderName",
    "RenewIdle",
    "Report",
    "ResumeLane",
    "SeekLane",
    "Sourced",
    "Steering",
    "Subscribe",
    "TasksChanged",
    "Ticked",
]
