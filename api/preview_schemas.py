"""The JSON of previews that goes in and out.

Times are epoch milliseconds. Requests refuse unknown members.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.schemas import Answer, OutputView, Request

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


class PreviewProgress(Answer):
    """How much has been read so far."""

    messages: int
    messages_total: int = Field(description="about: offsets between first and last")


class PreviewCounts(Answer):
    """Where the rows went: read = counted + filtered + bad + future."""

    read: int
    counted: int
    filtered: int
    bad: int
    future: int


class PreviewWindow(Answer):
    """One window as far as the rows of the preview fill it."""

    window_start: int
    window_end: int
    groups: int = Field(description="before HAVING and LIMIT")
    rows: list[dict[str, Any]] = Field(description="as they would be emitted; at most the limit")


class PreviewRejected(Answer):
    """A row that would not be counted."""

    partition: int
    offset: int = Field(description="of its message; of rows given in the request, from 0")
    reason: str
    detail: str
    sample: str = Field(description="its first bytes as text")


class LateShare(Answer):
    """What part of the rows would be late with a delay."""

    delay_ms: int
    share: float = Field(description="0 to 1; an upper bound, see docs/preview.md")


class Predictions(Answer):
    """What the task would cost, and how its delay should be; null: this cannot be known here."""

    rows_per_second: float | None
    groups_per_window: int | None = Field(description="the most that a window of the preview has")
    groups_at_least: bool = Field(description="true: the preview is shorter than a window")
    redis_bytes: int | None = Field(description="partials of one window and the delay, unmerged")
    redis_bytes_merged: int | None = Field(description="the same after the reducers merged them")
    redis_bytes_max: int = Field(description="what a task may hold")
    late: list[LateShare]
    late_by_key: list[LateShare] = Field(
        description="the same with the option watermark: key; empty where windows cannot close so"
    )
    disorder_max_ms: int | None = Field(description="behind the newest row of its partition")
    suggested_delay_ms: int | None
    sentences: list[str] = Field(description="the same in words")


class PreviewView(Answer):
    """What a query gives over some rows, and what it would cost. Nothing was registered."""

    source: Literal["last_seconds", "newest", "rows"] = Field(
        description="newest: no message came in the last seconds"
    )
    messages: int
    bytes: int
    truncated: bool = Field(description="true: a limit of the preview left messages out")
    counts: PreviewCounts
    windows: list[PreviewWindow] = Field(description="the newest, oldest first")
    more_windows: bool
    rejected: list[PreviewRejected]
    predictions: Predictions
    notes: list[str] = Field(description="what a person should know, a sentence each")
    output: OutputView
