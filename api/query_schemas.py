"""The JSON of ad-hoc queries that comes in; nothing outside `api` knows these classes.

Times are epoch milliseconds. Requests refuse unknown members.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas import HistoryRequest, Request

ROWS_DEFAULT = 10_000
"""Result rows of a query that names no limit."""

ROWS_MAX = 100_000
"""Result rows of a query: they pass through one process and one Kafka transaction."""

TIMEOUT_S_DEFAULT = 300
"""How long a query may take that names no time-out."""

TIMEOUT_S_MAX = 3_600
"""How long a query may take: whoever needs longer registers a task with a history."""

TIME_MAX = 2**53
"""Of a time: what a JSON number holds exactly."""


class NewQueryRequest(Request):
    """A query to run once, now."""

    sql: str
    options: dict[str, Any] = Field(
        default_factory=dict, description="future_limit; those about emitting have no effect"
    )
    from_ms: int | None = Field(
        default=None,
        alias="from",
        ge=-TIME_MAX,
        le=TIME_MAX,
        description="epoch ms: rows with earlier event times are left out",
    )
    until_ms: int | None = Field(
        default=None,
        alias="until",
        ge=-TIME_MAX,
        le=TIME_MAX,
        description="epoch ms: rows with this event time or a later one are left out",
    )
    files: HistoryRequest | None = Field(
        default=None, description="files to read instead of the stream's topic"
    )
    rows_max: int = Field(
        default=ROWS_DEFAULT,
        ge=1,
        le=ROWS_MAX,
        description="result rows; a query with more fails",
    )
    timeout: float = Field(default=TIMEOUT_S_DEFAULT, gt=0, le=TIMEOUT_S_MAX, description="seconds")
    output_topic: str | None = Field(
        default=None, description="a topic that the result rows are written to, too"
    )


QUERY_REQUESTS: tuple[type[Request], ...] = (NewQueryRequest,)
