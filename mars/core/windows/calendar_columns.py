"""The same as `calendars.py` for columns: one search in a table for all of its rows."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from mars.core.windows.calendars import CALENDARS_KEPT, Calendar, pieces_of
from mars.core.windows.zones import FOREVER_MS

Column = npt.NDArray[np.int64]


class _Arrays(NamedTuple):
    begins: Column
    numbers: Column
    last: Column
    """How many slices come behind the first one of each piece."""
    length_ms: int


@lru_cache(maxsize=CALENDARS_KEPT)
def _arrays(calendar: Calendar) -> _Arrays:
    begins, numbers, counts, length_ms = pieces_of(calendar)
    return _Arrays(
        np.array(begins, np.int64),
        np.array(numbers, np.int64),
        np.array(counts, np.int64) - 1,
        length_ms,
    )


def numbers_of(calendar: Calendar, times: Column) -> Column:
    """The numbers of the slices that times fall into (`Calendar.number`)."""
    at, within = _placed(calendar, times)
    return _arrays(calendar).numbers[at] + within


def floors(calendar: Calendar, times: pl.Expr) -> pl.Expr:
    """Where the slices begin that times fall into (`Calendar.floor`)."""

    def begun(column: pl.Series) -> pl.Series:
        found, (at, within) = _arrays(calendar), _placed(calendar, column.to_numpy())
        return pl.Series(column.name, found.begins[at] + within * found.length_ms)

    return times.map_batches(begun, return_dtype=pl.Int64, is_elementwise=True)


def _placed(calendar: Calendar, times: Column) -> tuple[Column | int, Column]:
    """In which piece each time lies, and which slice of it that is.

    A batch is searched for among the pieces that it comes to, most often a single one.
    """
    begins, _numbers, last, length_ms = _arrays(calendar)
    bounds = (times.min(initial=FOREVER_MS), times.max(initial=-FOREVER_MS))
    low, high = (max(int(np.searchsorted(begins, bound, "right")), 1) for bound in bounds)
    at: Column | int = low - 1
    if low != high:
        at = np.searchsorted(begins[low:high], times, "right") + at
    return at, np.minimum((times - begins[at]) // length_ms, last[at])
