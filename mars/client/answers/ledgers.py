"""Where rows went, and how fast."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, says


class Ledger(Answer, frozen=True):
    """Where rows went: read = counted + filtered + bad + future + late; counted = emitted + open.

    Counted rows of which some windows had closed are also in late_partly.
    """

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
    """How fast a task goes, over the last seconds; null until there are two measurements."""

    rows_per_second: float | None
    messages_per_second: float | None


class Lag(Answer, frozen=True):
    """Messages between a task's next offsets and the ends of the partitions."""

    rows: int
    partitions: dict[str, int]


class FigurePoint(Answer, frozen=True):
    """Figures at one moment; null: not known at that moment, or of all tasks together."""

    at: Annotated[int, says("by the clock of the API")]
    rows_per_second: float | None
    lag: Annotated[int | None, says("messages not yet taken")]
    watermark: int | None
    watermark_delay_ms: Annotated[int | None, says("how far it is behind the store's clock")]
    close_latency_ms: Annotated[
        int | None,
        says(
            "from the end of the newest closed window until its rows were committed; null: "
            "none closed since the API started"
        ),
    ]
    log_bytes: int | None


class FigureList(Answer, frozen=True):
    """The figures of one task over the last minutes, the oldest first."""

    points: list[FigurePoint]


class AllFigures(Answer, frozen=True):
    """The figures of all tasks together over the last minutes, and the newest of each task."""

    points: list[FigurePoint]
    tasks: dict[str, FigurePoint]
