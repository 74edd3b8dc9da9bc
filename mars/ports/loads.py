"""What processes measure of themselves, and what the leader makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mars.types import Bucket, MemberId


@dataclass(frozen=True, slots=True)
class BucketLoad:
    """What one bucket costs its owner: smoothed rates, and what lies unread at this moment.

    `use` is CPU seconds a second. `backlog_bytes` is an estimate: batches not yet read, at the
    size that those before had.
    """

    bucket: Bucket
    use: float
    rows_per_second: float
    bytes_per_second: float
    backlog_bytes: int


@dataclass(frozen=True, slots=True)
class Move:
    """A bucket changes hands; `source` is None where nobody had it.

    `at_ms` is the leader's wall clock when it was published, for people.
    """

    bucket: Bucket
    source: MemberId | None
    target: MemberId
    reason: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many members of a role the load asks for, and why."""

    role: str
    present: int
    wanted: int
    reason: str


@dataclass(frozen=True, slots=True)
class Assisted:
    """A bucket whose log others help to merge, and why."""

    bucket: Bucket
    assistants: tuple[MemberId, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Balance:
    """What the leader makes of the loads.

    `mean_use` and `deviation` are of the CPU use of those reducers whose figures are fresh.
    `pressure` is each one's pressure. `moves` are the last ones, oldest first, and `moves_total`
    how many there were since this leader began. `strategy` is how buckets are spread at the moment,
    and why; `rows_ratio` is max/min of the reducers' rows. `assisted` are the buckets that have
    assistants.
    """

    mean_use: float = 0.0
    deviation: float = 0.0
    pressure: Mapping[MemberId, float] = field(default_factory=dict)
    wanted: tuple[Wanted, ...] = ()
    moves: tuple[Move, ...] = ()
    moves_total: int = 0
    strategy: str = ""
    strategy_reason: str = ""
    rows_ratio: float = 1.0
    assisted: tuple[Assisted, ...] = ()
