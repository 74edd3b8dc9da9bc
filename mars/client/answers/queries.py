"""Ad-hoc queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from mars.client.answers.base import Answer, Object, Row, says

if TYPE_CHECKING:
    import polars as pl

# Frames are loaded by who wants them: it takes longer than most commands do.


class QueryCounts(Answer, frozen=True):
    """Where rows went: read = counted + filtered + bad + future.

    Rows outside of the range of time are among the filtered.
    """

    read: int
    counted: int
    filtered: int
    bad: int
    future: int


class QueryProgress(Answer, frozen=True):
    """How far a query is. `input` is how much it reads: messages, or bytes of text files."""

    input: Annotated[int | None, says("null until it is taken")]
    elapsed_ms: Annotated[int | None, says("since it was taken; null until then")]


class Query(Answer, frozen=True, kw_only=True):
    """An ad-hoc query."""

    id: str
    state: Annotated[str, says("waiting, running, done, failed or cancelled")]
    detail: Annotated[str, says("what it waits for, if that needs somebody")]
    error: Annotated[str | None, says("why it failed")]
    sql: str
    options: Object
    stream: str
    from_ms: int | None = msgspec.field(name="from", default=None)
    until_ms: int | None = msgspec.field(name="until", default=None)
    files: Annotated[str | None, says("how many files are read instead of the topic, and how")]
    rows_max: int
    timeout: float
    output_topic: str | None
    created: int
    started: int | None
    ended: int | None
    attempt: Annotated[int, says("how often a process has begun it")]
    member: Annotated[str | None, says("the process that runs it, or did")]
    rows: Annotated[int | None, says("result rows, when it is done")]
    counts: QueryCounts | None
    progress: QueryProgress

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
        from mars.engine.frames import frame_of_arrow  # noqa: PLC0415

        return frame_of_arrow(self.arrow)

    def pandas(self) -> Any:
        """The rows as a pandas frame. Raises MarsError where pandas is not installed."""
        from mars.engine.frames import to_pandas  # noqa: PLC0415

        return to_pandas(self.df())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.df()._repr_html_()


class Queries(Answer, frozen=True):
    """Ad-hoc queries, newest first."""

    queries: list[Query]
