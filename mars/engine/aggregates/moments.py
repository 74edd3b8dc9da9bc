"""var_samp(x), var_pop(x), stddev_samp(x), stddev_pop(x).

State: `n` (Int64), `mean`, `m2` (Float64): the number of values, their mean, and the sum of the
squared differences from it. It stays exact to rounding where the mean is much larger than the
spread, which a sum of squares does not.

Merge (Chan, Golub, LeVeque: "Updating formulae and a pairwise algorithm for computing sample
variances", 1979), of any number of states at once:

    N = sum n     MEAN = sum n * mean / N     M2 = sum m2 + sum n * (mean - MEAN)^2

The state of no rows is zeros. Associative and commutative to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from mars.engine.aggregates.base import Plain, not_null_count


@dataclass(frozen=True, slots=True)
class Moments(Plain):
    """Variance, or its square root, of a sample (`freedom` 1) or of everything (0)."""

    slot: str
    freedom: int
    root: bool

    @property
    def exact(self) -> bool:
        """Each addition is rounded."""
        return False

    def _column(self, part: str) -> str:
        return f"{self.slot}_{part}"

    @property
    def state(self) -> pl.Schema:
        """Number, mean, and squared differences."""
        return pl.Schema(
            {
                self._column("n"): pl.Int64(),
                self._column("mean"): pl.Float64(),
                self._column("m2"): pl.Float64(),
            }
        )

    def lift(self, argument: pl.Series) -> list[pl.Expr]:
        """The moments of the rows; polars updates mean and m2 value by value (Welford)."""
        column = pl.col(argument.name).cast(pl.Float64)
        count = not_null_count(argument)
        return [
            count.alias(self._column("n")),
            column.mean().fill_null(0.0).alias(self._column("mean")),
            (column.var(ddof=0) * count).fill_null(0.0).alias(self._column("m2")),
        ]

    def prepare(self, states: pl.DataFrame, groups: list[str]) -> pl.DataFrame:
        """Replace each mean by the group's, and add to m2 what the difference amounts to.

        The mean of means is taken relative to the largest of them, so that no precision is lost
        to their common part. Window expressions, because the same inside an aggregation is
        evaluated group by group, six times slower.
        """
        n, mean, m2 = (pl.col(self._column(part)) for part in ("n", "mean", "m2"))
        reference, total, shift = "__reference", "__total", "__shift"
        with_reference = states.with_columns_seq(
            pl.when(n > 0).then(mean).max().over(groups).fill_null(0.0).alias(reference),
            n.sum().over(groups).alias(total),
        )
        from_reference = mean - pl.col(reference)
        weighted = pl.when(n > 0).then(from_reference * n).otherwise(0.0)
        with_shift = with_reference.with_columns_seq(
            pl.when(pl.col(total) > 0)
            .then(weighted.sum().over(groups) / pl.col(total))
            .otherwise(0.0)
            .alias(shift)
        )
        between = pl.when(n > 0).then(n * (from_reference - pl.col(shift)) ** 2).otherwise(0.0)
        return with_shift.with_columns_seq(
            (pl.col(reference) + pl.col(shift)).alias(self._column("mean")),
            (m2 + between).alias(self._column("m2")),
        ).drop(reference, total, shift)

    def merge(self) -> list[pl.Expr]:
        """Sums, after `prepare`."""
        mean = self._column("mean")
        return [
            pl.col(self._column("n")).sum(),
            pl.col(mean).first(),
            pl.col(self._column("m2")).sum(),
        ]

    def finish(self) -> pl.Expr:
        """NULL where there are not more values than degrees of freedom taken away."""
        n = pl.col(self._column("n"))
        variance = pl.col(self._column("m2")) / (n - self.freedom)
        value = variance.sqrt() if self.root else variance
        return pl.when(n > self.freedom).then(value).alias(self.slot)
