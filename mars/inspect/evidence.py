"""What an explanation rests on: one look at everything that has a say in when windows close."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mars.core.definitions import TaskDefinition
from mars.core.plan import Plan
from mars.core.types import Bucket, MemberId, RowCounts, StoreEpoch
from mars.inspect.history import History, history_of
from mars.protocol.ports import DeadLetter, Head, Ledger, Progress


class HoldReason(StrEnum):
    """Why a lane or a bucket keeps a window open."""

    BEHIND = "behind"
    SILENT = "silent"
    IDLE = "idle"
    PAUSED = "paused"
    BACKPRESSURE = "backpressure"
    RECOVERING = "recovering"
    STARTING = "starting"
    NO_OWNER = "no_owner"


@dataclass(frozen=True, slots=True)
class Reading:
    """Which mapper reads a partition, and what it says of it (see `PartitionReading.state`).

    `unheard_ms`: how long it has said nothing at all, as far as was seen. `lacks`: the servers that
    do not answer it.
    """

    member: MemberId
    state: str
    unheard_ms: int = 0
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownOwner:
    """Which live reducer owns a bucket; `state` as in `BucketStatus`, None: not reported yet.

    `lacks`: the servers that do not answer it.
    """

    member: MemberId
    state: str | None
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedRows:
    """What the partial log of one bucket holds of one task version.

    `panes`: rows by start of their pane. `pending`: rows that no progress record accounts yet.
    """

    version: int
    bucket: Bucket
    panes: Mapping[int, int]
    pending: RowCounts = field(default=RowCounts())


@dataclass(frozen=True, slots=True)
class Evidence:
    """One look at everything that has a say in when a task's windows close.

    `plans`: by version. `ends`: per partition, the offset behind the last committed record.
    `bulk` is the process that works on backfills. `store_epoch` is that of the assignment.
    `missing`: sentences, one for each server that did not
    answer; what would have come from it is empty. `now_ms` is the store's clock where it answered.
    Where it is not `settled`, rows may have left the log whose progress cannot be read yet.
    """

    definition: TaskDefinition
    plans: Mapping[int, Plan]
    buckets: int
    now_ms: int
    head: Head | None = None
    store_epoch: StoreEpoch | None = None
    ends: Mapping[int, int] = field(default_factory=dict)
    readings: Mapping[int, Reading] = field(default_factory=dict)
    owners: Mapping[Bucket, KnownOwner] = field(default_factory=dict)
    mappers: int = 0
    reducers: int = 0
    bulk: MemberId | None = None
    progress: tuple[Progress, ...] = ()
    logged: tuple[LoggedRows, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    missing: tuple[str, ...] = ()
    settled: bool = True

    @property
    def ledger(self) -> Ledger:
        """Where the task's rows went, as committed."""
        return total_ledger(self.progress)

    @property
    def history(self) -> History | None:
        """How far the task's history is mapped; None where it has none."""
        return history_of(self.definition, self.head)

    @property
    def pending(self) -> RowCounts:
        """Rows in the log that no progress record accounts yet."""
        return sum((rows.pending for rows in self.logged), RowCounts())


def total_ledger(records: tuple[Progress, ...]) -> Ledger:
    """The sum of the newest progress records of a task; it balances because each of them does."""
    return sum((record.ledger for record in records), Ledger())
