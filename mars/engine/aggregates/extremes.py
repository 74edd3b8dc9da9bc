"""min and max; any_value and bool_and, which are the smallest; bool_or, which is the largest.

State: `value` (the type of x), NULL while no value was seen. Merge: the smaller or the larger; the
state of no rows is NULL. Texts compare by code point, false is less than true, NaN is greater than
any other number, and 0.0 stands for -0.0 too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from mars.core.plan import ValueType
from mars.engine.aggregates.base import Plain, without_minus_zero
from mars.engine.aggregates.runs import Runs
from mars.engine.evaluate.values import dtype_of

_IN_ARRAYS = {ValueType.INT64, ValueType.TIMESTAMP, ValueType.FLOAT64}


@dataclass(frozen=True, slots=True)
class Extreme(Plain):
    """The smallest or the largest value of a group."""

    slot: str
    type: ValueType
    largest: bool

    @property
    def _value(self) -> str:
        return f"{self.slot}_value"

    @property
    def state(self) -> pl.Schema:
        """One value."""
        return pl.Schema({self._value: dtype_of(self.type)})

    def _extreme(self, column: pl.Expr) -> pl.Expr:
        if self.type is not ValueType.FLOAT64:
            return column.max() if self.largest else column.min()
        # min() passes over NaN where there is any other value, which is just right here.
        return without_minus_zero(column.nan_max() if self.largest else column.min())

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """The extreme of the rows."""
        return [self._extreme(pl.col(argument.name)).alias(self._value)]

    def lift_runs(self, argument: pl.Series, runs: Runs) -> list[pl.Series] | None:
        """The same of runs, of numbers."""
        if argument.null_count() or self.type not in _IN_ARRAYS:
            return None
        found = runs.reduced(np.maximum if self.largest else np.fmin, argument)
        return [found + 0.0 if self.type is ValueType.FLOAT64 else found]  # -0.0 + 0.0 is 0.0

    def merge(self) -> list[pl.Expr]:
        """The extreme of the extremes."""
        return [self._extreme(pl.col(self._value)).alias(self._value)]

    def finish(self) -> pl.Expr:
        """The value."""
        return pl.col(self._value).alias(self.slot)
