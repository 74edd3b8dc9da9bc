"""The kernel: messages of one lane to the partials of a task. Pure: no clock, no chance.

    records ──decode──▶ columns ──▶ bad? future? filtered? ──▶ pane, keys, arguments
                                                                  │ group by pane and keys
        one Partial a bucket ◀── sort by bucket ◀── hash of key ◀──┘ states of the aggregates

`decode` runs once for all tasks that read a topic; `map_batch` once a task, on the same columns.
Each row has one fate, looked for in this order: bad, future, filtered, counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from mars.core.plan import Expression, Plan, ValueType
from mars.core.types import (
    Bucket,
    Lane,
    Mapped,
    PaneRows,
    Partial,
    Range,
    Reason,
    Records,
    RejectedRange,
    Rejections,
    RowCounts,
)
from mars.engine.aggregates import PANE, ROWS, columns, in_panes, key_names, lift, state_schema
from mars.engine.aggregates.base import without_minus_zero
from mars.engine.codec.canonical import bucket_of_lane, bucket_of_task, buckets_of_keys
from mars.engine.codec.states import encode_states
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.messages import decode
from mars.engine.decode.usable import Usable, usable_rows
from mars.engine.evaluate import to_polars

__all__ = ["Decoded", "decode", "key_columns", "map_batch", "map_gone"]

CELLS_MAX = 1_000_000
"""Buckets times panes up to which rows are added up in an array of all of them (8 MB)."""


@dataclass(frozen=True, slots=True)
class _Argument:
    """What an aggregate reads of a row; aggregates that read the same share a column."""

    value: Expression | None
    filter: Expression | None


_ALL_ROWS = _Argument(None, None)


def map_batch(plan: Plan, buckets: int, decoded: Decoded) -> Mapped:
    """What a batch adds to a task: partials by bucket, and the marks it leaves.

    `decoded` must hold all fields of the plan; what else it holds makes no difference. Equal input
    gives equal bytes. Raises TaskLimit where a state outgrows its limit.
    """
    records = decoded.records
    usable = usable_rows(plan, decoded)
    counted = usable.rows
    if plan.filter is not None:
        counted = counted.filter(to_polars(plan.filter))
    partials = list(_partials(plan, buckets, _grouped(plan, counted), records))
    rest = RowCounts(
        filtered=usable.rows.height - counted.height, bad=usable.bad, future=usable.future
    )
    if rest.read:
        home = _home(plan, buckets, records.lane)
        partials = _with_rest(partials, home, rest, usable)
    return Mapped(
        ranges=(Range(records.lane, records.first, records.next),),
        marks_ms={} if usable.mark_ms is None else {records.lane: usable.mark_ms},
        partials=tuple(partials),
    )


def map_gone(plan: Plan, buckets: int, part: Range) -> Mapped:
    """A batch of rows that are no longer there: a reference to them, and no counts.

    Every bucket is told, because a window of each may lack rows; one counts them.
    """
    home = _home(plan, buckets, part.lane)
    told = [home] if plan.single_bucket else [Bucket(number) for number in range(buckets)]

    def partial(bucket: Bucket) -> Partial:
        rows = part.next - part.first if bucket == home else 0
        gone = RejectedRange(part.lane, part.first, part.next, Reason.GONE, rows)
        return Partial(bucket, RowCounts(), (), b"", Rejections((), (gone,)))

    return Mapped((part,), {}, tuple(map(partial, told)))


def _home(plan: Plan, buckets: int, lane: Lane) -> Bucket:
    """The bucket that accounts for rows without a key."""
    if plan.single_bucket:
        return bucket_of_task(plan.task, buckets)
    return bucket_of_lane(lane, buckets)


def _with_rest(
    partials: list[Partial], home: Bucket, rest: RowCounts, usable: Usable
) -> list[Partial]:
    """The partials, that of `home` with the rows that were not counted, in order of buckets."""
    own = next((one for one in partials if one.bucket == home), None)
    if own is None:
        own = Partial(home, RowCounts(), (), b"")
    whole = replace(own, counts=own.counts + rest, rejections=usable.rejections)
    others = [one for one in partials if one.bucket != home]
    return sorted([*others, whole], key=lambda one: one.bucket)


# ------------------------------------------------------------------------------------ grouping


def _grouped(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """One row per (pane, key) of the counted rows: pane, keys, states and ROWS."""
    arguments = [_Argument(one.argument, one.filter) for one in plan.aggregates]
    distinct = [one for one in dict.fromkeys(arguments) if one != _ALL_ROWS]
    names = {one: f"v{at}" for at, one in enumerate(distinct)}
    wide = rows.with_columns_seq(
        plan.window.panes(pl.col(plan.stream.event_time)).alias(PANE),
        *key_columns(plan),
        *(_argument_column(one).alias(name) for one, name in names.items()),
    )
    read = [names.get(one, PANE) for one in arguments]
    keys = key_names(plan)
    narrow = columns(wide, dict.fromkeys([PANE, *keys, *read]))
    return in_panes(narrow, keys, lambda groups: lift(plan, narrow, read, groups))


def key_columns(plan: Plan) -> list[pl.Expr]:
    """The keys of usable rows, by their slots."""
    return [_key_column(key.expression).alias(key.slot) for key in plan.keys]


def _key_column(expression: Expression) -> pl.Expr:
    """A key's values, equal ones with equal bits; what JSON cannot hold is NULL, as in results."""
    value = to_polars(expression)
    if expression.type is ValueType.FLOAT64:
        return pl.when(value.is_finite()).then(without_minus_zero(value))
    return value


def _argument_column(argument: _Argument) -> pl.Expr:
    """The values that an aggregate takes, NULL where its filter is not true."""
    if argument.filter is None and argument.value is not None:
        return to_polars(argument.value)
    if argument.value is None and argument.filter is not None:
        return to_polars(argument.filter)
    if argument.value is not None and argument.filter is not None:
        return pl.when(to_polars(argument.filter)).then(to_polars(argument.value))
    raise ValueError("an aggregate of all rows reads no column")


# ------------------------------------------------------------------------------------- buckets


def _partials(
    plan: Plan, buckets: int, grouped: pl.DataFrame, records: Records
) -> Iterator[Partial]:
    """The groups cut into one partial per bucket that has any: sorted once, then sliced."""
    if grouped.is_empty():
        return
    owners = _owners(plan, buckets, grouped)
    order = pl.Series(np.argsort(owners, kind="stable").astype(np.uint32))
    states = columns(grouped, state_schema(plan))[order]
    panes = _panes_by_bucket(plan, owners, grouped, records)
    begin = 0
    for bucket, size in enumerate(np.bincount(owners).tolist()):
        if size:
            yield Partial(
                bucket=Bucket(bucket),
                counts=RowCounts(counted=sum(pane.rows for pane in panes[bucket])),
                panes=tuple(panes[bucket]),
                states=encode_states(states.slice(begin, size)),
            )
        begin += size


def _owners(plan: Plan, buckets: int, groups: pl.DataFrame) -> npt.NDArray[np.unsignedinteger]:
    """The bucket of each group, in as few bytes as will do: these are sorted without comparing."""
    dtype = np.min_scalar_type(buckets - 1)
    if plan.single_bucket:
        return np.full(groups.height, bucket_of_task(plan.task, buckets), dtype)
    types = [key.expression.type for key in plan.keys]
    keys = columns(groups, key_names(plan))
    return buckets_of_keys(plan.task, keys, types, buckets).to_numpy().astype(dtype)


def _panes_by_bucket(
    plan: Plan, owners: npt.NDArray[np.unsignedinteger], groups: pl.DataFrame, records: Records
) -> dict[int, list[PaneRows]]:
    """How many rows fall into which pane; the batch's first offset is a safe bound for all."""
    shape, rows = plan.window, groups.get_column(ROWS).to_numpy()
    numbers = shape.pane_numbers(groups.get_column(PANE).to_numpy())
    low = int(numbers.min())
    count = int(numbers.max()) - low + 1
    cells = owners.astype(np.int64) * count + (numbers - low)
    # Sums are floats, exact below 2^53 rows.
    if int(cells.max()) < CELLS_MAX:
        sums = np.bincount(cells, weights=rows)
        found = np.flatnonzero(sums)
        sums = sums[found]
    else:
        found, at = np.unique(cells, return_inverse=True)
        sums = np.bincount(at, weights=rows)
    first = {records.lane: records.first}
    panes: dict[int, list[PaneRows]] = {}
    for cell, counted in zip(found.tolist(), sums.tolist(), strict=True):
        bucket, pane = divmod(cell, count)
        start_ms = shape.pane_numbered(low + pane)
        panes.setdefault(bucket, []).append(PaneRows(start_ms, int(counted), first))
    return panes
