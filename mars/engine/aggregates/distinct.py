"""count(DISTINCT x): exact, so the state holds every value.

State: `values`, the sorted list of the different values that are not NULL. Merge: the union; the
state of no rows is the empty list. 0.0 and -0.0 are one value, and so are all NaNs.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from mars.core.errors import TaskLimit
from mars.core.plan import ValueType
from mars.engine.aggregates.base import Plain, without_minus_zero
from mars.engine.evaluate.values import dtype_of

DISTINCT_VALUES_MAX = 100_000
"""Different values of one count(DISTINCT) in one group and window. 100,000 short texts are about
3 MB of state, which is merged again with every batch that touches the group."""


@dataclass(frozen=True, slots=True)
class CountDistinct(Plain):
    """The number of different values."""

    slot: str
    type: ValueType

    @property
    def _values(self) -> str:
        return f"{self.slot}_values"

    @property
    def state(self) -> pl.Schema:
        """One list."""
        return pl.Schema({self._values: pl.List(dtype_of(self.type))})

    def _union(self, column: pl.Expr) -> list[pl.Expr]:
        return [column.drop_nulls().unique().sort().alias(self._values)]

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """The different values of the rows."""
        column = pl.col(argument.name)
        if self.type is ValueType.FLOAT64:
            column = without_minus_zero(column).fill_nan(float("nan"))
        return self._union(column)

    def merge(self) -> list[pl.Expr]:
        """The union of the lists."""
        return self._union(pl.col(self._values).explode())

    def check(self, states: pl.DataFrame) -> None:
        """Raise TaskLimit if a group has more than DISTINCT_VALUES_MAX values."""
        longest = states.get_column(self._values).list.len().max()
        if isinstance(longest, int) and longest > DISTINCT_VALUES_MAX:
            raise TaskLimit(
                f"count(DISTINCT) {self.slot} has {longest} different values in one group and "
                f"window; at most {DISTINCT_VALUES_MAX} are kept. Group by more keys, use a "
                "shorter window, or count without DISTINCT."
            )

    def finish(self) -> pl.Expr:
        """How many."""
        return pl.col(self._values).list.len().cast(pl.Int64).alias(self.slot)
