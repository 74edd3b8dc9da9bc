"""Result rows as data frames: polars, or pandas from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from mars.core.errors import MarsError
from mars.core.extras import not_installed

try:
    import polars as pl
except ModuleNotFoundError as error:
    raise MarsError(not_installed("polars", "frames")) from error

TIMES = ("window_start", "window_end")
"""Columns of epoch milliseconds that every result row has."""

KEY, VERSION, REVISION = "mars_key", "mars_version", "mars_revision"
COMPLETE, DELETED = "mars_complete", "mars_deleted"
"""What `frame_of_stream` adds to the columns of the query, named after the headers."""

_INT64 = range(-(2**63), 2**63)


def frame_of_rows(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows as a frame: windows as times in UTC, sums that 64 bits cannot hold as 128."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [_column(name, [row.get(name) for row in rows]) for name in names]
    return _with_times(pl.DataFrame(columns))


class StreamRow(Protocol):
    """A result row as it came, with what its headers say (see `ConsumedRow`)."""

    @property
    def key(self) -> list[Any]: ...
    @property
    def row(self) -> dict[str, Any]: ...
    @property
    def version(self) -> int: ...
    @property
    def revision(self) -> int: ...
    @property
    def complete(self) -> bool: ...
    @property
    def deleted(self) -> bool: ...


def frame_of_stream(rows: Iterable[StreamRow]) -> pl.DataFrame:
    """Rows as they came, revisions and all, with five columns more.

    `mars_key` (JSON) and `mars_version` name a group of a window, `mars_revision` counts how often
    late rows have changed it, `mars_deleted` says that it is no result any more, `mars_complete`
    that its window has all rows. `holding` leaves what holds.
    """
    taken = list(rows)
    added = {
        KEY: pl.Series(KEY, [msgspec.json.encode(one.key).decode() for one in taken], pl.String),
        VERSION: pl.Series(VERSION, [one.version for one in taken], pl.Int64),
        REVISION: pl.Series(REVISION, [one.revision for one in taken], pl.Int64),
        COMPLETE: pl.Series(COMPLETE, [one.complete for one in taken], pl.Boolean),
        DELETED: pl.Series(DELETED, [one.deleted for one in taken], pl.Boolean),
    }
    return frame_of_rows([one.row for one in taken]).with_columns(*added.values())


def holding(frame: pl.DataFrame) -> pl.DataFrame:
    """Of a frame of `frame_of_stream`, or several one below the other, the rows that hold.

    Of each group the newest revision, unless that is deleted; in the order in which they came.
    """
    newest = pl.col(REVISION) == pl.col(REVISION).max().over(KEY, VERSION)
    return frame.filter(newest & ~pl.col(DELETED)).unique(
        subset=[KEY, VERSION], keep="first", maintain_order=True
    )


def frame_of_arrow(raw: bytes) -> pl.DataFrame:
    """An Arrow IPC stream as a frame; exact sums are integers of 64 bits, or of 128."""
    frame = pl.read_ipc_stream(raw, use_pyarrow=False)
    for name, kind in frame.schema.items():
        if isinstance(kind, pl.Decimal) and kind.scale == 0:
            frame = frame.with_columns(_integers(frame[name]))
    return frame


def to_pandas(frame: pl.DataFrame) -> Any:
    """The same for pandas, which has no integers of 128 bits: those are Python's.

    Raises MarsError where pandas is not installed.
    """
    wide = [name for name, kind in frame.schema.items() if kind == pl.Int128]
    try:
        made = frame.drop(wide).to_pandas()
    except ModuleNotFoundError as error:
        raise MarsError(not_installed(str(error.name), "frames")) from error
    for name in wide:
        made.insert(frame.columns.index(name), name, frame[name].to_list())
    return made


def _integers(exact: pl.Series) -> pl.Series:
    """Decimals without fractions as integers; 128 bits hold all 38 digits."""
    narrow = exact.cast(pl.Int64, strict=False)
    return narrow if narrow.null_count() == exact.null_count() else exact.cast(pl.Int128)


def _column(name: str, values: list[Any]) -> pl.Series:
    integers = [value for value in values if type(value) is int]
    if any(value not in _INT64 for value in integers):
        return pl.Series(name, values, pl.Int128)
    if integers and any(type(value) is float for value in values):
        return pl.Series(name, values, pl.Float64)
    return pl.Series(name, values)


def _with_times(frame: pl.DataFrame) -> pl.DataFrame:
    there = [name for name in TIMES if name in frame.columns]
    return frame.with_columns(pl.col(there).cast(pl.Datetime("ms", "UTC"))) if there else frame
