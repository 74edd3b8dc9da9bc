"""Result rows as both contestants write them, and whether they are right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import polars as pl

KEY_HASH_SEED = 20_260_101
"""Any number: the hash must only be the same where rows are made and where results are read."""


def key_hash(sip: pl.Expr, type_: pl.Expr) -> pl.Expr:
    """A 64-bit hash of a group. Sums of it, each weighted by a count, wrap: they are mod 2^64."""
    return pl.concat_str(sip, type_, separator="|").hash(KEY_HASH_SEED)


class ResultRow(msgspec.Struct, gc=False):
    """The value of a result message."""

    window_start: int
    window_end: int
    sip: str
    type: str
    count: int


class WindowOfRow(msgspec.Struct, gc=False):
    """What latency needs of it."""

    window_end: int


_rows = msgspec.json.Decoder(ResultRow)
_windows = msgspec.json.Decoder(WindowOfRow)


def window_ends(values: Iterable[bytes]) -> list[int]:
    """The window end of each result."""
    return [row.window_end for row in _windows.decode_lines(b"\n".join(values))]


def decode_results(values: Iterable[bytes]) -> pl.DataFrame:
    """Columns start, key, count, checksum of result values; one row a result.

    Raises msgspec.MsgspecError for a value that is no result row.
    """
    rows = _rows.decode_lines(b"\n".join(values))
    frame = pl.DataFrame(
        {
            "start": [row.window_start for row in rows],
            "sip": [row.sip for row in rows],
            "type": [row.type for row in rows],
            "count": [row.count for row in rows],
        },
        schema={"start": pl.Int64, "sip": pl.String, "type": pl.String, "count": pl.Int64},
    )
    key = key_hash(pl.col("sip"), pl.col("type"))
    weighted = pl.col("count").cast(pl.UInt64) * key
    return frame.select("start", key.alias("key"), "count", weighted.alias("checksum"))


@dataclass(frozen=True, slots=True)
class WindowResult:
    """What was found of one window. `groups`: rows; `doubled`: rows of a group that has others."""

    start_ms: int
    groups: int
    doubled: int
    rows: int
    checksum: int


def by_window(results: pl.DataFrame) -> dict[int, WindowResult]:
    """Results summed by window; columns as `decode_results` gives them."""
    summed = results.group_by("start").agg(
        pl.len().alias("groups"),
        (pl.len() - pl.col("key").n_unique()).alias("doubled"),
        pl.col("count").sum(),
        pl.col("checksum").sum(),
    )
    return {row[0]: WindowResult(*row) for row in summed.iter_rows()}
