"""Windows, open and finished, and result rows as they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mars.answers.base import Answer, Row

if TYPE_CHECKING:
    import polars as pl

# Frames are loaded by who wants them: it takes longer than most commands do.


class OpenWindow(Answer, frozen=True):
    """The rows of an open window as of now; `groups` counts those left out too."""

    window_start: int
    window_end: int
    version: int
    complete: bool
    groups: int
    folded: bool
    rows: list[Row]


class OpenWindows(Answer, frozen=True):
    """Open windows, oldest first."""

    windows: list[OpenWindow]
    truncated: bool
    more: int

    def df(self) -> pl.DataFrame:
        """All rows as a polars frame."""
        from mars.frames import frame_of_rows  # noqa: PLC0415

        return frame_of_rows(_rows_of(self.windows))


class WindowSource(Answer, frozen=True):
    """Where the source rows lie that one bucket of a window counts: `[first, next)` by lane."""

    bucket: int
    rows: int
    ranges: dict[str, tuple[int, int]]
    revision: int = 0
    deleted: bool = False


class FinishedWindow(Answer, frozen=True):
    """Committed rows of one window: of each group the newest revision, unless it is deleted.

    `truncated`: it has more rows than these.
    """

    window_start: int
    window_end: int
    version: int
    complete: bool
    revision: int
    rows: list[Row]
    sources: list[WindowSource] = []
    truncated: bool = False


class RevisedWindow(Answer, frozen=True):
    """A window that was left out, and whose rows are not what they were at first."""

    window_start: int
    version: int
    revision: int


class FinishedWindows(Answer, frozen=True):
    """The last finished windows, newest first: each with all its rows, as last revised.

    Only the newest may be `truncated`, if it alone is over the limit. `truncated` here says that
    older windows were left out, or rows of that one; `revised` names those left out that late rows
    have changed of late.
    """

    windows: list[FinishedWindow]
    truncated: bool
    revised: list[RevisedWindow] = []

    def df(self) -> pl.DataFrame:
        """All rows as a polars frame: what holds, so without groups that a revision deleted."""
        from mars.frames import frame_of_rows  # noqa: PLC0415

        return frame_of_rows(_rows_of(self.windows))


def _rows_of(windows: Sequence[OpenWindow | FinishedWindow]) -> list[Row]:
    return [
        {"window_start": window.window_start, "window_end": window.window_end, **row}
        for window in windows
        for row in window.rows
    ]


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
