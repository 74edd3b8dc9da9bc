"""Queries tried before they are registered."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, Row, one_of, says
from mars.client.answers.plans import Output


class PreviewProgress(Answer, frozen=True):
    """How much has been read so far."""

    messages: int
    messages_total: Annotated[int, says("about: offsets between first and last")]


class PreviewCounts(Answer, frozen=True):
    """Where the rows went: read = counted + filtered + bad + future."""

    read: int
    counted: int
    filtered: int
    bad: int
    future: int


class PreviewWindow(Answer, frozen=True):
    """One window as far as the rows of the preview fill it; or one session of a group."""

    window_start: Annotated[int, says("of one that counts rows: of these rows the lowest")]
    window_end: Annotated[int, says("of one that counts rows: of these rows the highest")]
    groups: Annotated[int, says("before HAVING and LIMIT")]
    rows: Annotated[list[Row], says("as they would be emitted; at most the limit")]
    complete: Annotated[
        bool | None,
        says("false: more rows may come, or were before; null for windows by time"),
    ] = None
    partition: Annotated[int | None, says("of a window that counts rows: whose rows")] = None
    window_number: Annotated[
        int | None, says("of such a window: its number there, in the preview")
    ] = None

    @property
    def counts_rows(self) -> bool:
        """True where it is named by a number."""
        return self.window_number is not None

    @property
    def is_session(self) -> bool:
        """True where it is of one group."""
        return self.complete is not None and not self.counts_rows


class PreviewRejected(Answer, frozen=True):
    """A row that would not be counted."""

    partition: int
    offset: Annotated[int, says("of its message; of rows given in the request, from 0")]
    reason: str
    detail: str
    sample: Annotated[str, says("its first bytes as text")]


class LateShare(Answer, frozen=True):
    """What part of the rows would be late with a delay."""

    delay_ms: int
    share: Annotated[float, says("0 to 1; an upper bound, see docs/guides/preview.md")]


class Predictions(Answer, frozen=True):
    """What the task would cost, and how its delay should be; null: this cannot be known here."""

    rows_per_second: float | None
    groups_per_window: Annotated[
        int | None, says("the most that a window of the preview has; null for sessions")
    ]
    groups_at_least: Annotated[bool, says("true: the preview is shorter than a window")]
    redis_bytes: Annotated[int | None, says("partials of one window and the delay, unmerged")]
    redis_bytes_merged: Annotated[int | None, says("the same after the reducers merged them")]
    redis_bytes_max: Annotated[int, says("what a task may hold")]
    late: list[LateShare]
    late_by_key: Annotated[
        list[LateShare],
        says("the same with the option watermark: key; empty where windows cannot close so"),
    ]
    disorder_max_ms: Annotated[int | None, says("behind the newest row of its partition")]
    suggested_delay_ms: int | None
    sentences: Annotated[list[str], says("the same in words")]
    windows_per_minute: Annotated[
        float | None, says("windows that count rows, of all partitions; sessions, of all groups")
    ] = None
    sessions_per_group: Annotated[
        float | None, says("on average, within the preview; null unless windows are sessions")
    ] = None


class Preview(Answer, frozen=True):
    """What a query gives over some rows, and what it would cost. Nothing was registered."""

    source: Annotated[
        str,
        says("newest: no message came in the last seconds"),
        one_of("last_seconds", "newest", "rows"),
    ]
    messages: int
    bytes: int
    truncated: Annotated[bool, says("true: a limit of the preview left messages out")]
    counts: PreviewCounts
    windows: Annotated[list[PreviewWindow], says("the newest, oldest first")]
    more_windows: bool
    rejected: list[PreviewRejected]
    predictions: Predictions
    notes: Annotated[list[str], says("what a person should know, a sentence each")]
    output: Output
    complete_windows: Annotated[
        int | None,
        says("of all windows of the preview, shown or not; null for windows by time"),
    ] = None
