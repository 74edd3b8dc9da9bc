"""Rows of several lanes in one batch: decoded and mapped at once, and still told apart by lane.

    lane 0   ── a ── b ──▶          messages  a  b  c  d  e
    lane 1   ── c ──▶         ──▶   LANE      0  0  1  2  2
    lane 2   ── d ── e ──▶

What a row adds to groups does not depend on its lane. Its mark does, and so does the bucket that
accounts for it where it has no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt
import polars as pl

from mars.core.types import Lane, Lanes, Range, Records
from mars.engine.decode.decoded import Decoded

LANE = "\0lane"
"""The column with the number of each row's lane; no field has such a name."""


def side_by_side(pieces: Sequence[Records]) -> Records:
    """Records of one lane each, no two of the same, as one; the order of lanes is by their names.

    They have keys if all of the pieces have.
    """
    ordered = sorted(pieces, key=lambda piece: piece.lane)
    if len(ordered) == 1:
        return ordered[0]
    first = ordered[0]
    keys = [piece.keys for piece in ordered if piece.keys is not None]
    return Records(
        first.lane,
        first.first,
        first.next,
        list(chain.from_iterable(piece.values for piece in ordered)),
        list(chain.from_iterable(piece.offsets for piece in ordered)),
        list(chain.from_iterable(piece.timestamps_ms for piece in ordered)),
        list(chain.from_iterable(keys)) if len(keys) == len(ordered) else None,
        Lanes(
            tuple(Range(piece.lane, piece.first, piece.next) for piece in ordered),
            tuple(accumulate(len(piece.values) for piece in ordered)),
        ),
    )


def counts_by_lane(records: Records, messages: npt.NDArray[np.integer]) -> dict[Lane, int]:
    """How many of these messages, named by number and as often as they have rows, each lane has."""
    if records.several is None:
        return {records.lane: len(messages)} if len(messages) else {}
    return _named(records, np.searchsorted(records.several.ends, messages, side="right"))


def lane_numbers(records: Records) -> pl.Series:
    """The number of each message's lane (UInt32)."""
    if records.several is None:
        return pl.repeat(0, len(records.values), dtype=pl.UInt32, eager=True)
    sizes = np.diff(records.several.ends, prepend=0)
    return pl.Series(np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes))


def with_lanes(decoded: Decoded) -> pl.DataFrame:
    """The decoded rows; with the column LANE where they are of several lanes."""
    if decoded.records.several is None:
        return decoded.frame
    numbers = lane_numbers(decoded.records)
    if decoded.messages is not None:
        numbers = numbers.gather(decoded.messages)
    return decoded.frame.with_columns(numbers.alias(LANE))


def rows_by_lane(records: Records, rows: pl.DataFrame, where: pl.Series | None) -> dict[Lane, int]:
    """How many of some rows, which `with_lanes` gave, each lane has. `where`: of those only."""
    if records.several is None:
        height = rows.height if where is None else int(where.sum())
        return {records.lane: height} if height else {}
    numbers = rows.get_column(LANE)
    return _named(records, (numbers if where is None else numbers.filter(where)).to_numpy())


def marks_by_lane(records: Records, rows: pl.DataFrame, event_time: str) -> dict[Lane, int]:
    """The highest event time in the rows of each lane that has any."""
    if records.several is None:
        mark = rows.get_column(event_time).max()
        return {records.lane: mark} if isinstance(mark, int) else {}
    numbers, begins = np.unique(rows.get_column(LANE).to_numpy(), return_index=True)
    if not begins.size:
        return {}
    marks = np.maximum.reduceat(rows.get_column(event_time).to_numpy(), begins)
    named = zip(numbers.tolist(), marks.tolist(), strict=True)
    return {records.ranges[number].lane: mark for number, mark in named}


def _named(records: Records, numbers: npt.NDArray[np.integer]) -> dict[Lane, int]:
    counts = np.bincount(numbers).tolist()
    return {records.ranges[number].lane: count for number, count in enumerate(counts) if count}
