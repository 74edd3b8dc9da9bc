"""The JSON of previews that comes in.

Times are epoch milliseconds. Requests refuse unknown members.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas import Request

SECONDS_DEFAULT = 10.0
"""How far back a preview looks unless told otherwise."""

SECONDS_MAX = 60.0
"""How far back a preview may look: enough for a rate, little enough to be read at once."""

ROWS_MAX = 10_000
"""Rows in one request; the limit on bodies is met earlier by wide rows."""

WINDOW_ROWS_MAX = 1_000
"""Result rows of one window in an answer."""

WINDOW_ROWS_DEFAULT = 100
"""Result rows of one window in the answer to a request that names no limit."""


class PreviewRequest(Request):
    """A query to try, over a topic's last seconds or over rows given here."""

    sql: str
    options: dict[str, Any] = Field(default_factory=dict)
    seconds: float = Field(
        default=SECONDS_DEFAULT,
        gt=0,
        le=SECONDS_MAX,
        description="of the topic, by Kafka's timestamps",
    )
    rows: list[Any] | None = Field(
        default=None,
        max_length=ROWS_MAX,
        description="instead of the topic: JSON objects, whatever the stream's format",
    )
    limit: int = Field(
        default=WINDOW_ROWS_DEFAULT, ge=1, le=WINDOW_ROWS_MAX, description="rows a window"
    )


PREVIEW_REQUESTS: tuple[type[Request], ...] = (PreviewRequest,)
