"""Ad-hoc queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from mars.answers.base import Answer, Row

if TYPE_CHECKING:
    import polars as pl

# Frames are loaded by who wants them: it takes longer than most commands do.


class QueryCounts(Answer, frozen=True):
    """Where the rows of a query went; those outside of its range of time are filtered."""

    read: int
    counted: int
    filtered: int
    bad: int
    future: int


class QueryProgress(Answer, frozen=True):
    """How far a query is: how much it reads, and for how long it has run."""

    input: int | None
    elapsed_ms: int | None


class Query(Answer, frozen=True):
    """An ad-hoc query; `state` is waiting, running, done, failed or cancelled."""

    id: str
    state: str
    detail: str
    error: str | None
    sql: str
    options: dict[str, Any]
    stream: str
    files: str | None
    rows_max: int
    timeout: float
    output_topic: str | None
    created: int
    started: int | None
    ended: int | None
    attempt: int
    member: str | None
    rows: int | None
    counts: QueryCounts | None
    progress: QueryProgress
    from_ms: int | None = msgspec.field(name="from", default=None)
    until_ms: int | None = msgspec.field(name="until", default=None)

    @property
    def ended_well(self) -> bool:
        """Whether its rows are there."""
        return self.state == "done"

    @property
    def goes_on(self) -> bool:
        """Whether there is something to wait for."""
        return self.state in {"waiting", "running"}


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """A query that is done, and its rows (`arrow`: as an Arrow IPC stream)."""

    query: Query
    arrow: bytes = field(repr=False)

    @property
    def rows(self) -> list[Row]:
        """The rows by column; windows begin and end at times in UTC."""
        return self.df().to_dicts()

    def df(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        from mars.frames import frame_of_arrow  # noqa: PLC0415

        return frame_of_arrow(self.arrow)

    def pandas(self) -> Any:
        """The rows as a pandas frame. Raises MarsError where pandas is not installed."""
        from mars.frames import to_pandas  # noqa: PLC0415

        return to_pandas(self.df())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.df()._repr_html_()


class Queries(Answer, frozen=True):
    """Ad-hoc queries, newest first."""

    queries: list[Query]
