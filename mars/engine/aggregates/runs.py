"""Rows of one group side by side: how the groups of few rows are found once, and lifted often.

    rows      0  1  2  3  4  5         rows in runs   0 2 5 | 1 4 | 3
    groups    a  b  a  c  b  a    ──▶  begins         0       3     5
                                                        a      b    c

To group some thousand rows by polars takes as long as to plan that, for each filter and each task
anew. Runs are found once for all that group by the same keys; what a filter leaves of them, and
what an aggregate makes of them, are a few operations on arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

Places = npt.NDArray[np.intp]

FEW_ROWS = 8_192
"""Rows up to which groups are found so; of more, polars is faster by what it saves in each row."""

_ROW = "\0row"
"""The column with the number of each row; no other has such a name."""


class StayingRows:
    """Some rows, and the numbers that they have once the others are left out."""

    def __init__(self, rows: pl.Series) -> None:
        kept = rows.fill_null(value=False).to_numpy()
        self.numbers: Places = np.where(kept, np.cumsum(kept) - 1, -1)


@dataclass(frozen=True)
class Runs:
    """Groups of rows: of each its `rows`, in order, beside each other, as many as `sizes` says.

    They agree in `columns`. `groups` and `firsts` are the numbers that the groups, and the first
    row of each, had before some of the rows were left out. `order` names the runs in the order in
    which keys and states are made of them.
    """

    rows: Places
    sizes: Places
    groups: Places
    firsts: Places
    order: Places
    columns: pl.DataFrame

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Runs:
        """The runs of rows that agree in all columns, in order of first appearance."""
        rows = pl.DataFrame([*frame.get_columns(), pl.Series(_ROW, np.arange(frame.height))])
        found = rows.group_by(frame.columns, maintain_order=True).agg(pl.col(_ROW)).get_column(_ROW)
        sizes = found.list.len().to_numpy().astype(np.intp)
        every, runs = np.arange(len(sizes)), found.explode().to_numpy()
        return cls(runs, sizes, every, runs[np.cumsum(sizes) - sizes], every, frame)

    @cached_property
    def begins(self) -> Places:
        """Where in `rows` each run begins."""
        return np.cumsum(self.sizes) - self.sizes

    def keys(self, names: Iterable[str]) -> list[pl.Series]:
        """What the rows of each agree in, under these names."""
        first = _numbers(self.firsts[self.order])
        columns = self.columns.get_columns()
        return [column[first].alias(name) for column, name in zip(columns, names, strict=True)]

    @cached_property
    def numbers(self) -> Places:
        """For each row in runs the number of its run."""
        return np.arange(len(self.sizes)).repeat(self.sizes)

    def where(self, kept: StayingRows) -> Runs:
        """The same without some rows."""
        rows = kept.numbers[self.rows]
        stay = rows >= 0
        rows = rows[stay]
        sizes = np.bincount(self.numbers[stay], minlength=len(self.sizes))
        left = sizes.nonzero()[0]
        sizes = sizes[left]
        firsts = self.rows[stay][np.cumsum(sizes) - sizes]
        return Runs(rows, sizes, self.groups[left], firsts, np.argsort(firsts), self.columns)

    def sorted_by(self, owners: npt.NDArray[np.integer]) -> Runs:
        """The same in order of the `owners`, one of each run, and there of first appearance."""
        return replace(self, order=np.lexsort((self.firsts, owners)))

    # ------------------------------------------------------------------------------ states

    @cached_property
    def counts(self) -> pl.Series:
        """How many rows each has (Int64)."""
        return pl.Series(self.sizes[self.order])

    def reduced(self, how: np.ufunc, values: pl.Series) -> pl.Series:
        """The values of each, which are not NULL, made one: their minimum, say.

        Floats may become infinite, or NaN.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            made = how.reduceat(values.to_numpy()[self.rows], self.begins)
        return pl.Series(made[self.order])

    def aggregated(self, values: pl.Series, states: list[pl.Expr]) -> list[pl.Series]:
        """What expressions over the values make of each."""
        rows = pl.DataFrame([values[_numbers(self.rows)], pl.Series(_ROW, self.numbers)])
        made = rows.group_by(_ROW, maintain_order=True).agg(states)
        order = _numbers(self.order)
        return [column[order] for column in made.get_columns()[1:]]


def _numbers(places: Places) -> pl.Series:
    """By which columns are picked: an array would be checked number by number."""
    return pl.Series(places.astype(np.uint32))
