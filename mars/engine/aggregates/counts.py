"""count(*), count(x), count_if(x): how many rows.

State: `n` (Int64). Merge: addition; the state of no rows is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from mars.engine.aggregates.base import Plain, not_null_count, not_null_counts
from mars.engine.aggregates.runs import Runs


@dataclass(frozen=True, slots=True)
class _Counting(Plain):
    slot: str

    @property
    def _n(self) -> str:
        return f"{self.slot}_n"

    @property
    def state(self) -> pl.Schema:
        """One count."""
        return pl.Schema({self._n: pl.Int64()})

    def merge(self) -> list[pl.Expr]:
        """The sum of the counts."""
        return [pl.col(self._n).sum()]

    def finish(self) -> pl.Expr:
        """The count."""
        return pl.col(self._n).alias(self.slot)


@dataclass(frozen=True, slots=True)
class CountNotNull(_Counting):
    """count(x)."""

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """Values that are not NULL."""
        return [not_null_count(argument).alias(self._n)]

    def lift_runs(self, argument: pl.Series, runs: Runs) -> list[pl.Series]:
        """The same of runs."""
        return [not_null_counts(argument, runs)]


@dataclass(frozen=True, slots=True)
class CountTrue(_Counting):
    """count_if(x), and count(*) of the rows for which x is true."""

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """Values that are true."""
        return [pl.col(argument.name).sum().cast(pl.Int64).alias(self._n)]

    def lift_runs(self, argument: pl.Series, runs: Runs) -> list[pl.Series]:
        """The same of runs."""
        true = argument.fill_null(value=False) if argument.null_count() else argument
        return [runs.reduced(np.add, true.cast(pl.Int64))]


@dataclass(frozen=True, slots=True)
class CountRows(_Counting):
    """count(*); any column will do as its argument."""

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """All rows."""
        return [pl.len().cast(pl.Int64).alias(self._n)]

    def lift_runs(self, argument: pl.Series, runs: Runs) -> list[pl.Series]:
        """The same of runs."""
        return [runs.counts]
