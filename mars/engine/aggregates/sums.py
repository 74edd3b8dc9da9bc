"""sum(x) and avg(x).

INT64 argument.    State: `sum` (Int128), `n` (Int64). 2^63 rows of 2^63 each fit, so it is exact.
INTEGER argument.  State: `high`, `low` (Int128), `n`: the sum of x div 2^64 and of x mod 2^64,
                   exact for 2^62 rows. A sum() beyond 128 bits finishes as NULL.
FLOAT64 argument.  State: `sum` (Float64), `n`. Agrees to rounding whatever the order.

Merge: addition of each; the state of no rows is all zeros. `n` counts values that are not NULL:
where it is 0, both finish as NULL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from mars.engine.aggregates.base import Plain, not_null_count, not_null_counts
from mars.engine.aggregates.runs import Runs

_WORD = 2**64
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Summing(Plain):
    slot: str
    average: bool

    def _column(self, part: str) -> str:
        return f"{self.slot}_{part}"

    def _finish(self, total: pl.Expr) -> pl.Expr:
        count = pl.col(self._column("n"))
        value = total.cast(pl.Float64) / count if self.average else total
        return pl.when(count > 0).then(value).alias(self.slot)


def _fits_int64(argument: pl.Series) -> bool:
    """True if no sum of any of these values can leave 64 bits."""
    low, high = argument.min(), argument.max()
    if not isinstance(low, int) or not isinstance(high, int):
        return True  # no values
    return max(-low, high) * argument.len() <= _INT64_MAX


@dataclass(frozen=True, slots=True)
class SumInt64(_Summing):
    """Over INT64 or TIMESTAMP."""

    @property
    def state(self) -> pl.Schema:
        """A 128-bit sum and a count."""
        return pl.Schema({self._column("sum"): pl.Int128(), self._column("n"): pl.Int64()})

    def merge(self) -> list[pl.Expr]:
        """The sums of the sums and of the counts."""
        return [pl.col(name).sum() for name in self.state]

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """Sums in 64 bits where that is certain to be enough, which is faster."""
        column = pl.col(argument.name)
        wide = column if _fits_int64(argument) else column.cast(pl.Int128)
        return [
            wide.sum().cast(pl.Int128).alias(self._column("sum")),
            not_null_count(argument).alias(self._column("n")),
        ]

    def lift_runs(self, argument: pl.Series, runs: Runs) -> list[pl.Series] | None:
        """The same of runs."""
        if not _fits_int64(argument):
            return None
        values = argument.fill_null(0) if argument.null_count() else argument
        sums = runs.reduced(np.add, values).cast(pl.Int128)
        return [sums, not_null_counts(argument, runs)]

    def finish(self) -> pl.Expr:
        """The exact sum, or its quotient."""
        return self._finish(pl.col(self._column("sum")))


@dataclass(frozen=True, slots=True)
class SumFloat64(_Summing):
    """Over FLOAT64."""

    @property
    def exact(self) -> bool:
        """Each addition is rounded."""
        return False

    @property
    def state(self) -> pl.Schema:
        """A floating-point sum and a count."""
        return pl.Schema({self._column("sum"): pl.Float64(), self._column("n"): pl.Int64()})

    def merge(self) -> list[pl.Expr]:
        """The sums of the sums and of the counts."""
        return [pl.col(name).sum() for name in self.state]

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """The sums."""
        return [
            pl.col(argument.name).sum().alias(self._column("sum")),
            not_null_count(argument).alias(self._column("n")),
        ]

    def lift_runs(self, argument: pl.Series, runs: Runs) -> list[pl.Series]:
        """The same of runs."""
        values = argument.fill_null(0.0) if argument.null_count() else argument
        sums = runs.reduced(np.add, values) + 0.0  # -0.0 + 0.0 is 0.0
        return [sums, not_null_counts(argument, runs)]

    def finish(self) -> pl.Expr:
        """The sum, or its quotient."""
        return self._finish(pl.col(self._column("sum")))


@dataclass(frozen=True, slots=True)
class SumInteger(_Summing):
    """Over INTEGER."""

    @property
    def state(self) -> pl.Schema:
        """The sums of both words, and a count."""
        return pl.Schema(
            {
                self._column("high"): pl.Int128(),
                self._column("low"): pl.Int128(),
                self._column("n"): pl.Int64(),
            }
        )

    def merge(self) -> list[pl.Expr]:
        """The sums of the sums and of the counts."""
        return [pl.col(name).sum() for name in self.state]

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """The sums of both words."""
        column, word = pl.col(argument.name), pl.lit(_WORD, pl.Int128)
        return [
            (column // word).sum().alias(self._column("high")),
            (column % word).sum().alias(self._column("low")),
            not_null_count(argument).alias(self._column("n")),
        ]

    def finish(self) -> pl.Expr:
        """The exact sum, NULL beyond 128 bits, or the quotient."""
        word = pl.lit(_WORD, pl.Int128)
        low = pl.col(self._column("low"))
        high = pl.col(self._column("high")) + low // word
        rest = low % word
        fits = (high >= -(2**63)) & (high < 2**63)
        exact = pl.when(fits).then(pl.when(fits).then(high) * word + rest)
        if not self.average:
            return self._finish(exact)
        # Of a negative sum the words are -1 and nearly 2**64: as floats nothing would be left.
        rounded = high.cast(pl.Float64) * float(_WORD) + rest.cast(pl.Float64)
        return self._finish(pl.when(fits).then(exact.cast(pl.Float64)).otherwise(rounded))
