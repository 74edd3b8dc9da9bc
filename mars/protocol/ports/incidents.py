"""What happened that a person should hear of later, too: kept where it outlives every process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from mars.core.types import Bucket, Lane, TaskName


class IncidentKind(StrEnum):
    """What kind of thing happened."""

    REWOUND = "rewound"
    """The store was lost or went back, and was filled again from Kafka."""
    INCOMPLETE = "incomplete"
    """Rows were gone from Kafka before they were read, or when they were to be read again."""
    UNDECODABLE = "undecodable"
    """Messages lie in a batch that Kafka's client cannot unpack; `mars.dead` names them."""
    FENCED = "fenced"
    """A reducer wrote for a bucket that had another owner by then."""
    FAILED = "failed"
    """A task stopped, because it could not go on."""
    AUDIT_MISMATCH = "audit_mismatch"
    """Rows of the last emission are not in the output as they were written (R4)."""
    RESTORED = "restored"
    """Kafka had lost the end of a transaction; what it hid was written again."""
    WITHHELD = "withheld"
    """Results were larger than Kafka takes, and not sent; `mars.dead` names each of them."""
    RESTARTING = "restarting"
    """A process begins again and again."""
    SOURCE_GONE = "source_gone"
    """The topic that a task reads is not in Kafka any more."""
    PARTIAL_LOST = "partial_lost"
    """The store lost part of a batch before it was counted: the tuple tracker has noticed it."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One happening. `task` is None where it concerns all tasks.

    `id` is the same whenever the same happening is told again. `first` and `next` are offsets of
    `lane`. The three sentences are for people: `what` happened, what it `means` for results, and
    what to `do`.
    """

    id: str
    time_ms: int
    kind: IncidentKind
    what: str
    means: str
    do: str
    task: TaskName | None = None
    bucket: Bucket | None = None
    lane: Lane | None = None
    first: int | None = None
    next: int | None = None

    def concerns(self, task: TaskName | None) -> bool:
        """Whether it has to do with a task; with None, all have."""
        return task is None or self.task is None or self.task == task


class IncidentLog(Protocol):
    """The topic `mars.incidents`."""

    def put(self, incident: Incident) -> None:
        """Keep it; returns once the broker has it. One that is there already stays as it was."""

    def recent(self, task: TaskName | None, since_ms: int | None, limit: int) -> list[Incident]:
        """The newest that concern a task (None: all) and are not older than a time."""
