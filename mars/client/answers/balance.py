"""What the leader makes of the loads."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, says


class Wanted(Answer, frozen=True):
    """How many members of a role the load asks for."""

    role: str
    present: int
    wanted: int
    reason: str
    kind: Annotated[str, says("the load is above, capped, within, lull, below or unknown")] = (
        "unknown"
    )


class Move(Answer, frozen=True):
    """A bucket changed hands."""

    bucket: int
    source: str | None
    target: str
    reason: str
    at: int
    kind: Annotated[str, says("because of members, use, pressure, or return after that")] = (
        "members"
    )


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
    moves_total: Annotated[int, says("since this leader began")] = 0
    moves_by_kind: dict[str, int] = {}
    strategy: Annotated[str, says("how buckets are spread: hash, greedy, weighted, split")] = ""
    strategy_reason: str = ""
    strategy_kind: Annotated[str, says("set, unknown, hot, uneven, even or between")] = ""
    rows_ratio: Annotated[float, says("max/min of the reducers' rows, by capacity")] = 1.0
    assisted: list[Assisted] = []
    lent: Annotated[list[Lent], says("64 at the most")] = []
    lent_total: int = 0
    assistant_changes: list[AssistantChange] = []
    strategy_changes: list[StrategyChange] = []
