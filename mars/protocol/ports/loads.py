"""What processes measure of themselves, and what the leader makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mars.core.types import Bucket, MemberId


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


class MoveKind(StrEnum):
    """Why buckets move: who is there, an uneven use, a full backlog, or home after that."""

    MEMBERS = "members"
    USE = "use"
    PRESSURE = "pressure"
    RETURN = "return"


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
    kind: MoveKind = MoveKind.MEMBERS


@dataclass(frozen=True, slots=True)
class Lent:
    """A bucket that was moved to relieve `home`, to which it goes back."""

    bucket: Bucket
    home: MemberId
    borrower: MemberId


class WantedKind(StrEnum):
    """How the load compares with what is aimed at: above it (`CAPPED`: more members would be of no
    use), below it (`LULL`: not yet for long), within, or not known.
    """

    ABOVE = "above"
    CAPPED = "capped"
    WITHIN = "within"
    LULL = "lull"
    BELOW = "below"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many members of a role the load asks for, and why."""

    role: str
    present: int
    wanted: int
    reason: str
    kind: WantedKind = WantedKind.UNKNOWN


@dataclass(frozen=True, slots=True)
class Assisted:
    """A bucket whose log others help to merge, and why; or, as a change, who does so from now on,
    perhaps nobody. `at_ms` is the leader's wall clock when a change was published.
    """

    bucket: Bucket
    assistants: tuple[MemberId, ...]
    reason: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class StrategyChange:
    """From `at_ms` of the leader's wall clock buckets were spread in another way."""

    strategy: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Balance:
    """What the leader makes of the loads.

    `mean_use` and `deviation` are of the CPU use of those reducers whose figures are fresh.
    `pressure` is each one's pressure. `moves` are the last ones, oldest first, and `moves_total`
    how many there were since this leader began, by kind in `moves_by_kind`. `strategy` is how
    buckets are spread at the moment, and why, in one word in `strategy_kind`; `rows_ratio` is
    max/min of the reducers' rows. `assisted` are the buckets that have assistants, `lent` those
    that are to go home, as many as `lent_total`. The changes are the last ones, oldest first.
    `ages_s` says how long each reducer and mapper has said nothing new, by the leader's clock.
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
    moves_by_kind: Mapping[MoveKind, int] = field(default_factory=dict)
    strategy_kind: str = ""
    lent: tuple[Lent, ...] = ()
    lent_total: int = 0
    assistant_changes: tuple[Assisted, ...] = ()
    strategy_changes: tuple[StrategyChange, ...] = ()
    ages_s: Mapping[MemberId, float] = field(default_factory=dict)
