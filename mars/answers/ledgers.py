"""Where rows went, and how fast."""

from __future__ import annotations

from mars.answers.base import Answer


class Ledger(Answer, frozen=True):
    """Where rows went."""

    read: int
    filtered: int
    bad: int
    future: int
    late: int
    counted: int
    emitted: int
    open: int
    late_partly: int


class Rates(Answer, frozen=True):
    """How fast a task goes; None until there are two measurements."""

    rows_per_second: float | None
    messages_per_second: float | None


class Lag(Answer, frozen=True):
    """Messages not yet taken, in all and by partition."""

    rows: int
    partitions: dict[str, int]


class FigurePoint(Answer, frozen=True):
    """Figures at one moment; None: not known."""

    at: int
    rows_per_second: float | None
    lag: int | None
    watermark: int | None
    watermark_delay_ms: int | None
    close_latency_ms: int | None
    log_bytes: int | None


class FigureList(Answer, frozen=True):
    """The figures of one task over the last minutes, the oldest first."""

    points: list[FigurePoint]


class AllFigures(Answer, frozen=True):
    """The figures of all tasks together over the last minutes, and the newest of each task."""

    points: list[FigurePoint]
    tasks: dict[str, FigurePoint]
