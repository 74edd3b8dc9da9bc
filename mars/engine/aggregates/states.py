"""Frames of states: all aggregates of a plan together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import polars as pl

from mars.core.plan import Aggregate, AggregateFunction, Plan, ValueType
from mars.core.windows import Window
from mars.engine.aggregates.base import Aggregator
from mars.engine.aggregates.counts import CountNotNull, CountRows, CountTrue
from mars.engine.aggregates.distinct import CountDistinct
from mars.engine.aggregates.extremes import Extreme
from mars.engine.aggregates.moments import Moments
from mars.engine.aggregates.runs import Runs
from mars.engine.aggregates.sums import SumFloat64, SumInt64, SumInteger
from mars.engine.evaluate.values import dtype_of

PANE = "pane"
"""The column that holds the start of a row's pane (Int64, epoch ms)."""

ROWS = "__rows"
"""The column in which `lift` says how many rows are in a group (Int64)."""

OTHERS = "__others"
"""The column that is true for the group of all groups over `max_keys` (Boolean), where the task
folds them: what lies in the key columns could be a key of its own."""

PLANS_REMEMBERED = 1_024
"""Plans whose aggregators, and expressions of polars, are kept: making these takes longer than what
they do to a few groups. A task has one, and few processes run more tasks."""


@lru_cache(maxsize=PLANS_REMEMBERED)
def aggregators(aggregates: tuple[Aggregate, ...]) -> tuple[Aggregator, ...]:
    """The aggregators of a plan's aggregates, in their order."""
    return tuple(_aggregator(aggregate) for aggregate in aggregates)


def _aggregator(aggregate: Aggregate) -> Aggregator:
    kind = aggregate.argument.type if aggregate.argument is not None else ValueType.BOOL
    return _BUILDERS[aggregate.function](aggregate, kind)


def _count_rows(aggregate: Aggregate, _kind: ValueType) -> Aggregator:
    if aggregate.filter is not None:
        return CountTrue(aggregate.slot)
    return CountRows(aggregate.slot)


def _sum(aggregate: Aggregate, kind: ValueType) -> Aggregator:
    average = aggregate.function is AggregateFunction.AVG
    if kind is ValueType.FLOAT64:
        return SumFloat64(aggregate.slot, average)
    if kind is ValueType.INTEGER:
        return SumInteger(aggregate.slot, average)
    return SumInt64(aggregate.slot, average)


def _extreme(aggregate: Aggregate, kind: ValueType) -> Aggregator:
    largest = aggregate.function in {AggregateFunction.MAX, AggregateFunction.BOOL_OR}
    return Extreme(aggregate.slot, kind, largest)


def _moments(aggregate: Aggregate, _kind: ValueType) -> Aggregator:
    function = aggregate.function
    sample = function in {AggregateFunction.VAR_SAMP, AggregateFunction.STDDEV_SAMP}
    root = function in {AggregateFunction.STDDEV_SAMP, AggregateFunction.STDDEV_POP}
    return Moments(aggregate.slot, freedom=1 if sample else 0, root=root)


_BUILDERS: Mapping[AggregateFunction, Callable[[Aggregate, ValueType], Aggregator]] = (
    MappingProxyType(
        {
            AggregateFunction.COUNT_ALL: _count_rows,
            AggregateFunction.COUNT: lambda aggregate, _: CountNotNull(aggregate.slot),
            AggregateFunction.COUNT_DISTINCT: lambda aggregate, kind: CountDistinct(
                aggregate.slot, kind
            ),
            AggregateFunction.COUNT_IF: lambda aggregate, _: CountTrue(aggregate.slot),
            AggregateFunction.SUM: _sum,
            AggregateFunction.AVG: _sum,
            AggregateFunction.MIN: _extreme,
            AggregateFunction.MAX: _extreme,
            AggregateFunction.ANY_VALUE: _extreme,
            AggregateFunction.BOOL_AND: _extreme,
            AggregateFunction.BOOL_OR: _extreme,
            AggregateFunction.VAR_SAMP: _moments,
            AggregateFunction.VAR_POP: _moments,
            AggregateFunction.STDDEV_SAMP: _moments,
            AggregateFunction.STDDEV_POP: _moments,
        }
    )
)


def merges_exactly(plan: Plan) -> bool:
    """True where states may be merged in any order, and some of them before the others."""
    return not plan.folds and all(part.exact for part in aggregators(plan.aggregates))


def columns(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Some columns as they are. `select` plans a query, which is what a small batch costs.

    (Where several expressions are needed, `select_seq` and `with_columns_seq` compute them where
    they are asked for: the others hand them to polars' one thread, and wait.)
    """
    return pl.DataFrame([frame.get_column(name) for name in names])


def constant(name: str, value: int | str | None, rows: int) -> pl.Series:
    """A column that has one value in all rows: Int64, or text, or NULL in place of that."""
    dtype = pl.Int64 if isinstance(value, int) else pl.String
    return pl.Series(name, [value], dtype).new_from_index(0, rows)


def in_pane(states: pl.DataFrame, start_ms: int) -> pl.DataFrame:
    """The same states as those of a pane that starts then."""
    return states.with_columns(constant(PANE, start_ms, states.height))


def in_panes(
    rows: pl.DataFrame, keys: list[str], grouped: Callable[[list[str]], pl.DataFrame]
) -> pl.DataFrame:
    """`grouped` by pane and keys; rows of a single pane by their keys alone, which is faster."""
    panes = rows.get_column(PANE)
    only = panes.min()
    if not keys or not isinstance(only, int) or only != panes.max():
        return grouped([PANE, *keys])
    found = grouped(keys)
    return found.insert_column(0, constant(PANE, only, found.height))


def key_names(plan: Plan) -> list[str]:
    """The columns of the group keys, in the order of the result key."""
    return [key.slot for key in plan.keys]


def _group_names(plan: Plan) -> list[str]:
    """The columns that tell the groups of a pane or a window apart."""
    return [*key_names(plan), OTHERS] if plan.folds else key_names(plan)


@lru_cache(maxsize=PLANS_REMEMBERED)
def state_schema(plan: Plan) -> pl.Schema:
    """Columns of a frame of states: pane, keys, OTHERS where the task folds, states."""
    schema = pl.Schema({PANE: pl.Int64()})
    schema.update((key.slot, dtype_of(key.expression.type)) for key in plan.keys)
    if plan.folds:
        schema[OTHERS] = pl.Boolean()
    for aggregator in aggregators(plan.aggregates):
        schema.update(aggregator.state)
    return schema


def lift(
    plan: Plan,
    rows: pl.DataFrame,
    arguments: Sequence[str],
    groups: list[str],
    runs: Runs | None = None,
) -> pl.DataFrame:
    """The states of groups of rows, in order of first appearance, or in that of their `runs`.

    `arguments` names, per aggregate, the column of `rows` with its argument (see
    `Aggregator.lift`); those of `groups` need not be there where their `runs` are known. The result
    has the columns `groups`, OTHERS where the task folds, the states
    and `ROWS`. Raises TaskLimit where a state outgrows its limit.
    """
    parts = aggregators(plan.aggregates)
    pairs = [(part, rows.get_column(name)) for part, name in zip(parts, arguments, strict=True)]
    if runs is None:
        expressions = [one for part, argument in pairs for one in part.lift(argument)]
        counted = pl.len().cast(pl.Int64).alias(ROWS)
        states = rows.group_by(groups, maintain_order=True).agg(*expressions, counted)
    else:
        lifted = [one for part, argument in pairs for one in _lifted(part, argument, runs)]
        states = pl.DataFrame([*runs.keys(groups), *lifted, runs.counts.alias(ROWS)])
    for part in parts:
        part.check(states)
    if plan.folds:
        no_others = pl.Series(OTHERS, [False]).new_from_index(0, states.height)
        states.insert_column(len(groups), no_others)
    return states


def _lifted(part: Aggregator, argument: pl.Series, runs: Runs) -> Iterator[pl.Series]:
    """The state columns of runs."""
    found = part.lift_runs(argument, runs)
    if found is None:
        found = runs.aggregated(argument, part.lift(argument))
    return (column.alias(name) for column, name in zip(found, part.state, strict=True))


def merge(plan: Plan, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Merge frames of states: one row per (pane, key), in order of first appearance.

    Raises TaskLimit where a state outgrows its limit.
    """
    schema = state_schema(plan)
    if not frames:
        return pl.DataFrame(schema=schema)
    states = stacked(frames)
    merged = in_panes(states, _group_names(plan), lambda groups: _merged(plan, states, groups))
    return columns(merged, schema)


STACKED_MAX = 64
"""Frames: to hand so few to polars takes up to eight times as long as to put them together."""


def stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all frames, of which there is at least one: what `concat` makes of them."""
    if len(frames) > STACKED_MAX:
        return pl.concat(frames)
    whole = frames[0].clone()
    for frame in frames[1:]:
        whole.vstack(frame, in_place=True)
    return whole


def panes_of_window(frame: pl.DataFrame, window: Window) -> pl.DataFrame:
    """The states of the panes of a window."""
    return frame.filter(pl.col(PANE).is_between(window.start_ms, window.end_ms, closed="left"))


def merge_panes(plan: Plan, frame: pl.DataFrame, window: Window) -> pl.DataFrame:
    """The states of one window, one row per key: its panes picked out of a frame and merged.

    The column `pane` of the result is the window's start.
    """
    start = pl.lit(window.start_ms, pl.Int64).alias(PANE)
    return merge(plan, [panes_of_window(frame, window).with_columns(start)])


_NO_STREAM = pl.len().cast(pl.Int64).alias(ROWS)
"""What polars cannot aggregate as a stream. From 1,000 rows on it does so where it can, if there
are few groups, and that takes 0.3 ms to set up, four times as long as to group them."""


@lru_cache(maxsize=PLANS_REMEMBERED)
def _merging(aggregates: tuple[Aggregate, ...]) -> list[pl.Expr]:
    """The merged states of a group."""
    parts = aggregators(aggregates)
    return [*(expression for part in parts for expression in part.merge()), _NO_STREAM]


def _merged(plan: Plan, states: pl.DataFrame, groups: list[str]) -> pl.DataFrame:
    parts = aggregators(plan.aggregates)
    for aggregator in parts:
        states = aggregator.prepare(states, groups)
    merged = states.group_by(groups, maintain_order=True).agg(_merging(plan.aggregates))
    for aggregator in parts:
        aggregator.check(merged)
    return merged


def finish(plan: Plan, states: pl.DataFrame) -> pl.DataFrame:
    """The values of merged states, one row per row of `states`.

    The columns are `k*`, OTHERS where the task folds, and `a*`.
    """
    return states.select_seq(_finishing(plan))


@lru_cache(maxsize=PLANS_REMEMBERED)
def _finishing(plan: Plan) -> list[pl.Expr]:
    values = (part.finish() for part in aggregators(plan.aggregates))
    return [*map(pl.col, _group_names(plan)), *values]
