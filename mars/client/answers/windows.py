"""Windows, open and finished, and result rows as they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from mars.client.answers.base import Answer, Row, says

if TYPE_CHECKING:
    import polars as pl

# Frames are loaded by who wants them: it takes longer than most commands do.


class OpenWindow(Answer, frozen=True):
    """The rows of one window; each is the value of a result row."""

    window_start: Annotated[int | None, says("null for one that counts rows: its rows say it")]
    window_end: Annotated[int | None, says("null for one that counts rows")]
    version: int
    complete: bool
    groups: Annotated[int, says("rows of the window that match, shown or not")]
    folded: Annotated[bool, says("true if one row stands for all groups over `max_keys`")]
    rows: list[Row]
    partition: Annotated[int | None, says("of a window that counts rows: whose rows")] = None
    window_number: Annotated[int | None, says("of such a window: its number there")] = None


class OpenWindows(Answer, frozen=True):
    """Open windows with their values as of now, oldest first."""

    windows: list[OpenWindow]
    truncated: Annotated[bool, says("true if rows were left out because of the limit")]
    more: Annotated[int, says("open windows that are not listed")]

    def df(self) -> pl.DataFrame:
        """All rows as a polars frame."""
        from mars.engine.frames import frame_of_rows  # noqa: PLC0415

        return frame_of_rows(_rows_of(self.windows))


class WindowSource(Answer, frozen=True):
    """Where the source rows lie that one bucket of a window counts: `[first, next)` by lane."""

    bucket: int
    rows: Annotated[int, says("source rows that were counted")]
    ranges: dict[str, tuple[int, int]]
    revision: Annotated[int, says("0: emitted when the window closed, more: for late rows")] = 0
    deleted: Annotated[bool, says("true for groups that HAVING no longer lets pass")] = False


class FinishedWindow(Answer, frozen=True):
    """Committed rows of one window: of each group the newest revision."""

    window_start: Annotated[int, says("of one that counts rows: of these rows the lowest")]
    window_end: Annotated[int, says("of one that counts rows: of these rows the highest")]
    version: int
    complete: bool
    revision: Annotated[int, says("the highest of these rows; 0: no late row has come")]
    rows: list[Row]
    truncated: Annotated[bool, says("true if it has more rows than these")] = False
    sources: Annotated[list[WindowSource], says("of the buckets whose rows are shown")] = []
    partition: Annotated[int | None, says("of a window that counts rows: whose rows")] = None
    window_number: Annotated[int | None, says("of such a window: its number there")] = None


class RevisedWindow(Answer, frozen=True):
    """A window that is not shown, and whose rows are not what they were at first."""

    window_start: int
    version: int
    revision: Annotated[int, says("the highest of its rows")]
    window_end: int | None = None


class FinishedWindows(Answer, frozen=True):
    """The last finished windows, newest first."""

    windows: list[FinishedWindow]
    truncated: Annotated[
        bool,
        says(
            "true if older windows were left out because of the limit, or rows of the "
            "newest one, if it alone has more; any other is here with all its rows, as last revised"
        ),
    ]
    revised: Annotated[
        list[RevisedWindow],
        says(
            "windows that late rows have changed of late and that are left out: ask for "
            "each with window_start and window_end"
        ),
    ] = []

    def df(self) -> pl.DataFrame:
        """All rows as a polars frame: what holds, so without groups that a revision deleted."""
        from mars.engine.frames import frame_of_rows  # noqa: PLC0415

        return frame_of_rows(_rows_of(self.windows))


def _rows_of(windows: Sequence[OpenWindow | FinishedWindow]) -> list[Row]:
    return [
        {"window_start": window.window_start, "window_end": window.window_end, **row}
        for window in windows
        for row in window.rows
    ]


class MissedResults(Answer, frozen=True):
    """Offsets `[first, next)` of an output topic that Kafka had deleted before they were read."""

    partition: int
    first: int
    next: int


class ResultEvent(msgspec.Struct, frozen=True):
    """One result row as it was committed.

    `raw` is its JSON, `id` what `Client.tail` goes on by, `source` says where it was counted from.
    """

    partition: int
    offset: int
    raw: bytes
    id: str = ""
    source: WindowSource | None = None

    @property
    def row(self) -> Row:
        """The row by column."""
        decoded: Row = msgspec.json.decode(self.raw)
        return decoded
