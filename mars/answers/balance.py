"""What the leader makes of the loads."""

from __future__ import annotations

from mars.answers.base import Answer


class Wanted(Answer, frozen=True):
    """How many members of a role the load asks for."""

    role: str
    present: int
    wanted: int
    reason: str
    kind: str = "unknown"


class Move(Answer, frozen=True):
    """A bucket changed hands."""

    bucket: int
    source: str | None
    target: str
    reason: str
    at: int
    kind: str = "members"


class Assisted(Answer, frozen=True):
    """A bucket whose log others help to merge, and why."""

    bucket: int
    assistants: list[str]
    reason: str


class AssistantChange(Answer, frozen=True):
    """Who merged a bucket's log from then on, perhaps nobody, and why."""

    bucket: int
    assistants: list[str]
    reason: str
    at: int


class StrategyChange(Answer, frozen=True):
    """How buckets were spread from then on, and why."""

    strategy: str
    reason: str
    at: int


class Lent(Answer, frozen=True):
    """A bucket that was moved to relieve its home, to which it goes back."""

    bucket: int
    home: str
    borrower: str


class Balance(Answer, frozen=True):
    """What the leader makes of the loads; moves and changes are the last ones, oldest first."""

    mean_use: float
    deviation: float
    pressure: dict[str, float]
    wanted: list[Wanted]
    moves: list[Move]
    strategy: str = ""
    strategy_reason: str = ""
    rows_ratio: float = 1.0
    assisted: list[Assisted] = []
    moves_total: int = 0
    moves_by_kind: dict[str, int] = {}
    strategy_kind: str = ""
    lent: list[Lent] = []
    lent_total: int = 0
    assistant_changes: list[AssistantChange] = []
    strategy_changes: list[StrategyChange] = []
