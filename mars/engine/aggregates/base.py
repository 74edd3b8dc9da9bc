"""What every aggregate offers.

An aggregate is a commutative monoid of states. With `lift` of rows, `merge` and `finish`:

    merge(lift(rows a), lift(rows b)) = lift(rows a and b)      any cut into batches will do
    merge(x, merge(y, z)) = merge(merge(x, y), z)               so will any order of merging
    merge(x, y) = merge(y, x)
    merge(x, lift(no rows)) = x

exactly, except for floating-point sums, which agree to rounding.

States are held in columns, one row per group, so `lift` and `merge` are polars expressions that
are evaluated in a group-by, and `finish` is one over the columns of merged states.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import polars as pl

from mars.engine.aggregates.runs import Runs


class Aggregator(Protocol):
    """One aggregate of a plan; its state columns are named after its slot, `a0_sum` and so on."""

    @property
    def exact(self) -> bool:
        """True where states merge to the same bits in any order."""

    @property
    def state(self) -> pl.Schema:
        """Names and types of the state columns."""

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """The state of each group of rows.

        `argument` is the column of the rows that the expressions read: the aggregate's argument,
        NULL where its FILTER is not true. Its content is only looked at to choose the cheapest
        expression that is exact for it.
        """

    def lift_runs(self, argument: pl.Series, runs: Runs) -> list[pl.Series] | None:
        """The same for rows in runs, to the last bit: the columns of the state, by their places.

        None: there is no cheaper way than `lift`.
        """

    def prepare(self, states: pl.DataFrame, groups: list[str]) -> pl.DataFrame:
        """Add what `merge` needs besides the states themselves; most need nothing."""

    def merge(self) -> list[pl.Expr]:
        """The state of each group of states."""

    def check(self, states: pl.DataFrame) -> None:
        """Raise TaskLimit where a state has outgrown its limit."""

    def finish(self) -> pl.Expr:
        """The value of each state, named by the slot."""


class Plain:
    """The parts that most aggregates leave empty."""

    __slots__ = ()

    def lift_runs(self, argument: pl.Series, runs: Runs) -> list[pl.Series] | None:
        """As `lift` does it."""
        return None

    @property
    def exact(self) -> bool:
        """All are but those that add up floats."""
        return True

    def prepare(self, states: pl.DataFrame, groups: list[str]) -> pl.DataFrame:
        """Nothing to add."""
        return states

    def check(self, states: pl.DataFrame) -> None:
        """Nothing can outgrow."""


def not_null_counts(argument: pl.Series, runs: Runs) -> pl.Series:
    """How many values of a run are not NULL."""
    if not argument.null_count():
        return runs.counts
    return runs.reduced(np.add, argument.is_not_null().cast(pl.Int64))


def not_null_count(argument: pl.Series) -> pl.Expr:
    """How many values of a group are not NULL; cheap where none of all rows is."""
    column = pl.col(argument.name)
    count = column.count() if argument.null_count() else pl.len()
    return count.cast(pl.Int64)


def without_minus_zero(column: pl.Expr) -> pl.Expr:
    """The same floats with -0.0 made 0.0, so that equal values are the same bits.

    Not by adding 0.0: the optimiser takes that away.
    """
    return pl.when(column == 0.0).then(0.0).otherwise(column)
