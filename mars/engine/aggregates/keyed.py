"""Which rows of a key make a window of so many of them: those that follow each other in one life.

    place, key, rows, seen ──number them life by life──▶ slices ──▶ full windows
                                                           ├──────▶ what a life that is over left
                                                           └──────▶ what stays open

A life is over where the event time of the partition has gone on by more than EXPIRE from one row of
the key to the next, or since its last one. All of it is a function of the rows of a partition in
the order of their offsets: what is here is one row of the stream each, or some of one slice, and
whichever windows were full before are not here any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from mars.core.plan import Plan
from mars.core.windows import CountingByKey
from mars.core.windows.counting import LANE_PLACES
from mars.engine.aggregates.placed import SEEN_FIRST, SEEN_LAST
from mars.engine.aggregates.scoped import COUNTED
from mars.engine.aggregates.states import PANE, columns, key_names, merge, state_schema

_PARTITION: Final = "__partition"
_LIFE: Final = "__life"
_NUMBER: Final = "__number"
_LAST: Final = "__last"
_OVER: Final = "__over"
_FULL: Final = "__full"
_WINDOW: Final = "__window"


@dataclass(frozen=True, slots=True)
class KeyWindows:
    """States of the windows that are full, of those that will not be, and of what waits.

    Of windows there is one row for each of their keys; its pane is the place of its first row.
    """

    full: pl.DataFrame
    unfilled: pl.DataFrame
    open: pl.DataFrame


def key_windows(plan: Plan, rows: pl.DataFrame, seen: Mapping[int, int]) -> KeyWindows:
    """The windows of the rows of some keys; `seen` is how far the event time of partitions has
    come. Raises TaskLimit where a state outgrows its limit.
    """
    shape = plan.window
    if not isinstance(shape, CountingByKey):
        raise TypeError(f"{shape} does not count the rows of each key")
    if not rows.height:
        return KeyWindows(rows, rows, rows)
    keys, number = key_names(plan), pl.col(_NUMBER)
    pane = shape.size // shape.panes_in(shape.size)
    numbered = _numbered(rows.sort(PANE), keys, shape)
    slices = [_PARTITION, *keys, _LIFE, number // pane]
    whole = _merged(plan, numbered.with_columns(pl.col(PANE).min().over(slices)))
    found = _numbered(whole.sort(PANE), keys, shape).with_columns(
        _is_over(keys, shape, seen), _full_windows(keys, shape)
    )
    full, over = pl.col(_FULL), pl.col(_OVER)
    first = (-((shape.size - pane - number) // shape.slide)).clip(0)
    last = number // shape.slide
    return KeyWindows(
        _windows(plan, found, first, pl.min_horizontal(last, full - 1)),
        _windows(plan, found.filter(over), pl.max_horizontal(first, full), last),
        columns(found.filter(~over & (number >= full * shape.slide)), state_schema(plan)),
    )


def quiet(plan: Plan, waiting: pl.DataFrame) -> pl.DataFrame:
    """What waits, with all by which `split` finds those of it that something happens to."""
    own = [_PARTITION, *key_names(plan)]
    return waiting.with_columns((pl.col(PANE) // LANE_PLACES).alias(_PARTITION)).with_columns(
        pl.col(SEEN_LAST).max().over(own).alias(_LAST)
    )


def split(
    plan: Plan, waiting: pl.DataFrame, rows: pl.DataFrame, seen: Mapping[int, int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of what waits, as `quiet` gives it: the rows of keys that got some, or have fallen silent by
    now; and all others, of which no window is closed.
    """
    shape = plan.window
    if not isinstance(shape, CountingByKey):
        raise TypeError(f"{shape} does not count the rows of each key")
    is_silent = waiting.select((_come(seen) - pl.col(_LAST) > shape.expire_ms).alias(_OVER))
    silent = is_silent.get_column(_OVER)
    rest = waiting.filter(~silent)
    own = [_PARTITION, *key_names(plan)]
    came = rows.with_columns((pl.col(PANE) // LANE_PLACES).alias(_PARTITION)).select(own).unique()
    again = rest.join(came, on=own, how="semi", nulls_equal=True)
    others = rest.join(came, on=own, how="anti", nulls_equal=True)
    found = pl.concat([waiting.filter(silent), again])
    return columns(found, state_schema(plan)), others


def _come(seen: Mapping[int, int]) -> pl.Expr:
    """How far the event time of a row's partition has come."""
    known = list(seen)
    return pl.col(_PARTITION).replace_strict(
        known, [seen[one] for one in known], default=0, return_dtype=pl.Int64
    )


def _numbered(rows: pl.DataFrame, keys: list[str], shape: CountingByKey) -> pl.DataFrame:
    """Rows with their partition, the life of their key, and their number in it."""
    own = [_PARTITION, *keys]
    life = [*own, _LIFE]
    since = pl.col(SEEN_FIRST) - pl.col(SEEN_LAST).shift(1).over(own)
    return (
        rows.with_columns((pl.col(PANE) // LANE_PLACES).alias(_PARTITION))
        .with_columns((since > shape.expire_ms).fill_null(False).alias(_LIFE))
        .with_columns(pl.col(_LIFE).cast(pl.Int64).cum_sum().over(own))
        .with_columns((pl.col(COUNTED).cum_sum().over(life) - pl.col(COUNTED)).alias(_NUMBER))
    )


def _is_over(keys: list[str], shape: CountingByKey, seen: Mapping[int, int]) -> pl.Expr:
    """Whether the life of a row is over: another one follows, or too much has come since."""
    own = [_PARTITION, *keys]
    silent = _come(seen) - pl.col(SEEN_LAST).max().over(own)
    followed = pl.col(_LIFE) < pl.col(_LIFE).max().over(own)
    return (followed | (silent > shape.expire_ms)).alias(_OVER)


def _full_windows(keys: list[str], shape: CountingByKey) -> pl.Expr:
    """How many windows of the life of a row are full."""
    rows = pl.col(COUNTED).sum().over([_PARTITION, *keys, _LIFE])
    return ((rows - shape.size) // shape.slide + 1).clip(0).alias(_FULL)


def _windows(plan: Plan, found: pl.DataFrame, first: pl.Expr, last: pl.Expr) -> pl.DataFrame:
    """The states of windows; a slice is in those from the first to the last of these numbers."""
    held = found.filter(first <= last)
    numbers = pl.int_ranges(first, last + 1).alias(_WINDOW)
    each = held.with_columns(numbers).explode(_WINDOW)
    window = [_PARTITION, *key_names(plan), _LIFE, _WINDOW]
    return _merged(plan, each.with_columns(pl.col(PANE).min().over(window)))


def _merged(plan: Plan, states: pl.DataFrame) -> pl.DataFrame:
    return merge(plan, [columns(states, state_schema(plan))])
