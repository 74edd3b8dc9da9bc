"""Columns over the same rows of a batch, each made once for all plans that read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import copysign

import polars as pl

from mars.core.plan import Call, Column, Expression, Literal, ValueType
from mars.core.windows import WindowShape
from mars.engine.aggregates.base import without_minus_zero
from mars.engine.aggregates.runs import FEW_ROWS, Runs, StayingRows
from mars.engine.evaluate import to_polars

COMPUTED_MAX = 64
"""Computed columns that are remembered: 26 MB of numbers for 50,000 rows. What is merely a field of
the batch is not among them."""


GROUPS_MAX = 64
"""Groupings that are remembered: 16 MB for 8,192 rows."""


TEXT_BYTES_AT_ONCE = 128 * 1024 * 1024
"""Texts of fields that expressions read at once: what they make of them takes several times as
much. Beyond, rows are taken in slices. A batch has 64 MiB, but an expression may name a field
often."""


@dataclass(frozen=True, slots=True)
class FloatKey:
    """A key of floats: equal ones have equal bits; what JSON cannot hold is NULL, as in results."""

    expression: Expression


@dataclass(frozen=True, slots=True)
class PaneOf:
    """The pane into which each row falls, by the event time of this name; or by its number, where
    the first of them has the place `begin`.
    """

    event_time: str
    shape: WindowShape
    begin: int = 0


def key_of(expression: Expression) -> Expression | FloatKey:
    """What a key's column holds."""
    return FloatKey(expression) if expression.type is ValueType.FLOAT64 else expression


Wanted = Expression | FloatKey | PaneOf
"""What a column may hold; equal ones have equal values in the same rows."""


Exactly = tuple[Wanted, tuple[float, ...]]
"""What a column holds, and the signs of its constants."""


def exactly(wanted: Wanted) -> Exactly:
    """It in a way that equal ones mean the same."""
    return wanted, signs_of_zeros([wanted])


def signs_of_zeros(wanted: Iterable[Wanted]) -> tuple[float, ...]:
    """The signs of the constants that are floats: `==` takes 0.0 for -0.0, results do not."""
    return tuple(sign for one in wanted for sign in _signs(one))


def _signs(wanted: Wanted) -> Iterator[float]:
    match wanted:
        case Literal(float(value)):
            yield copysign(1.0, value)
        case FloatKey(expression):
            yield from _signs(expression)
        case Call(arguments=arguments):
            for argument in arguments:
                yield from _signs(argument)


class SharedColumns:
    """The columns of some rows, without those for which `where` is not true.

    It lives as long as plans with this filter are evaluated for one batch, and remembers the fields
    that they read, COMPUTED_MAX columns and GROUPS_MAX groupings besides. `whole` has the same rows
    without a filter.
    """

    def __init__(
        self, rows: pl.DataFrame, where: Expression | None, whole: SharedColumns | None = None
    ) -> None:
        self._rows = rows
        self._where = where
        self._whole = whole
        self._groups: dict[tuple[Exactly, ...], Runs] = {}
        self._fields: dict[str, pl.Series] = {}
        self._known: dict[Exactly, pl.Series] = {}
        self._kept: pl.Series | None = None
        self._stay: StayingRows | None = None
        if where is not None:
            self._kept = self._computed([where])[0]
        self.height = rows.height if self._kept is None else int(self._kept.sum())

    def are_few(self, wanted: Iterable[Wanted]) -> bool:
        """Whether to group them in runs, for what reads these columns."""
        height = self._rows.height
        return height <= FEW_ROWS and self._rows_at_once(wanted, height) >= height

    @property
    def left_out(self) -> pl.Series | None:
        """For each row whether `where` is not true; None where there is no `where`."""
        return None if self._kept is None else ~self._kept.fill_null(False)

    def slices(self, wanted: Iterable[Wanted]) -> Iterator[SharedColumns]:
        """The same rows in as many parts as will do for the texts that these columns read."""
        rows = self._rows_at_once(wanted, self._rows.height)
        if rows >= self._rows.height:
            yield self
            return
        for piece in self._rows.iter_slices(rows):
            yield SharedColumns(piece, self._where)

    def _rows_at_once(self, wanted: Iterable[Wanted], height: int) -> int:
        texts = (name for one in wanted if isinstance(one, Call) for name in _texts(one))
        size = sum(int(self._field(name).estimated_size()) for name in texts)
        return height if size <= TEXT_BYTES_AT_ONCE else max(1, height * TEXT_BYTES_AT_ONCE // size)

    def groups(self, wanted: Sequence[Wanted]) -> Runs:
        """The rows that agree in these columns; found once for the rows of all filters."""
        keys = tuple(exactly(one) for one in wanted)
        found = self._groups.get(keys)
        if found is None:
            found = self._runs(wanted)
            if len(self._groups) >= GROUPS_MAX:
                self._groups.clear()
            self._groups[keys] = found
        return found

    def _runs(self, wanted: Sequence[Wanted]) -> Runs:
        if self._kept is None:
            return Runs.of(self.frame({str(at): one for at, one in enumerate(wanted)}))
        whole = self._whole or SharedColumns(self._rows, None)
        if self._stay is None:
            self._stay = StayingRows(self._kept)
        return whole.groups(wanted).where(self._stay)

    def frame(self, wanted: Mapping[str, Wanted]) -> pl.DataFrame:
        """Columns under these names; those that are not known yet are computed in one query."""
        keys = [exactly(one) for one in wanted.values()]
        self._compute([key for key in keys if not isinstance(key[0], Column)])
        return pl.DataFrame(
            [self._column(key).alias(name) for name, key in zip(wanted, keys, strict=True)]
        )

    def _column(self, key: Exactly) -> pl.Series:
        return self._field(key[0].name) if isinstance(key[0], Column) else self._known[key]

    def _field(self, name: str) -> pl.Series:
        if self._kept is None:
            return self._rows.get_column(name)
        if name not in self._fields:
            self._fields[name] = self._rows.get_column(name).filter(self._kept)
        return self._fields[name]

    def _compute(self, keys: Sequence[Exactly]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if len(self._known) + len(missing) > COMPUTED_MAX:
            self._known, missing = {}, list(dict.fromkeys(keys))
        if missing:
            computed = self._computed([one for one, _signs in missing])
            self._known.update(zip(missing, computed, strict=True))

    def _computed(self, wanted: Sequence[Wanted]) -> list[pl.Series]:
        fields = {name for one in wanted for name in _names(one)} or self._rows.columns[:1]
        names = [f"\0{at}" for at in range(len(wanted))]  # no field has such a name
        columns = [to_column(one).alias(name) for name, one in zip(names, wanted, strict=True)]
        read = pl.DataFrame([self._field(name) for name in fields])
        rows = self._rows_at_once(wanted, read.height)
        if rows >= read.height:
            wide = read.with_columns_seq(columns)
            return [wide.get_column(name) for name in names]
        pieces = [piece.with_columns_seq(columns) for piece in read.iter_slices(rows)]
        return [pl.concat([piece.get_column(name) for piece in pieces]) for name in names]


def to_column(wanted: Wanted) -> pl.Expr:
    """The same for polars."""
    match wanted:
        case PaneOf(event_time, shape, begin):
            return shape.panes(pl.col(event_time) + begin if begin else pl.col(event_time))
        case FloatKey(expression):
            value = to_polars(expression)
            return pl.when(value.is_finite()).then(without_minus_zero(value))
        case _:
            return to_polars(wanted)


def _names(wanted: Wanted) -> Iterator[str]:
    """The fields of which it is made."""
    match wanted:
        case Column(name) | PaneOf(name):
            yield name
        case FloatKey(expression):
            yield from _names(expression)
        case Call(arguments=arguments):
            for argument in arguments:
                yield from _names(argument)


def _texts(expression: Expression) -> Iterator[str]:
    """The fields of texts that it reads, as often as it names them."""
    match expression:
        case Column(name, ValueType.STRING):
            yield name
        case Call(arguments=arguments):
            for argument in arguments:
                yield from _texts(argument)
