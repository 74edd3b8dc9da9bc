"""Columns, and what was wrong with them, to `Decoded`.

Rows are numbered through the batch, unreadable ones included: those have a place in the columns
(NULL in all of them) until they are taken out here.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from mars.core.plan import Field, Stream
from mars.core.types import Records
from mars.engine.decode.decoded import Decoded, header_lines
from mars.engine.decode.unreadable import NONE_UNREADABLE, Problem, UnreadableRows


@dataclass(slots=True)
class ColumnFaults:
    """What was wrong, by the number of the row: with the whole row, or with one of its fields.

    `invalid` is keyed by the place of the field among the decoded ones. `unreadable` are numbers of
    rows, `codes` says by its place in `problems` what is wrong with each: a few bytes a row.
    `longer` counts the rows with more cells than there are columns, which are no fault.
    """

    unreadable: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("q"))
    problems: dict[Problem, int] = field(default_factory=dict)
    invalid: dict[int, array[int]] = field(default_factory=dict)
    longer: int = 0

    def spoil(self, row: int, problem: Problem) -> None:
        """Note that a row is unreadable."""
        self.unreadable.append(row)
        self.codes.append(self.problems.setdefault(problem, len(self.problems)))

    def refuse(self, at: int, row: int) -> None:
        """Note that a field is invalid in a row."""
        self.invalid.setdefault(at, array("q")).append(row)

    def mark(self, at: int, invalid: pl.Series, first: int = 0) -> None:
        """Note that a field is invalid in the rows for which `invalid` is true."""
        if invalid.any():
            rows = np.flatnonzero(invalid.to_numpy()) + first
            self.invalid.setdefault(at, array("q")).frombytes(rows.astype(np.int64).tobytes())


def assemble(
    stream: Stream,
    fields: tuple[Field, ...],
    records: Records,
    lines: np.typing.NDArray[np.int64],
    columns: Sequence[pl.Series],
    faults: ColumnFaults,
) -> Decoded:
    """The decoded rows; `columns` have the final types, `lines` says how many each message has."""
    frame = pl.DataFrame(
        [column.alias(one.name) for column, one in zip(columns, fields, strict=True)]
    )
    marks = [_marks(fields[at].name, frame.height, rows) for at, rows in faults.invalid.items()]
    invalid = pl.DataFrame(marks)
    messages = None
    if faults.unreadable or bool((lines != 1).any()):
        origin = np.repeat(np.arange(len(lines), dtype=np.uint32), lines)
        messages = pl.Series("message", origin, dtype=pl.UInt32)
    if faults.unreadable and messages is not None:
        kept = np.ones(frame.height, dtype=bool)
        kept[_numbers(faults.unreadable)] = False
        readable = pl.Series(kept)
        frame, messages = frame.filter(readable), messages.filter(readable)
        invalid = invalid.filter(readable) if marks else invalid
    unreadable = _unreadable(lines, faults, header_lines(stream))
    longer = faults.longer
    return Decoded(stream, fields, records, frame, invalid, unreadable, messages, longer)


def _numbers(rows: array[int]) -> np.typing.NDArray[np.int64]:
    return np.frombuffer(rows, dtype=np.int64)


def _marks(name: str, height: int, rows: array[int]) -> pl.Series:
    marks = np.zeros(height, dtype=bool)
    marks[_numbers(rows)] = True
    return pl.Series(name, marks)


def _unreadable(
    lines: np.typing.NDArray[np.int64], faults: ColumnFaults, skipped: int
) -> UnreadableRows:
    """In the order of the rows; `skipped` lines of each message are no rows."""
    if not faults.unreadable:
        return NONE_UNREADABLE
    starts = np.cumsum(lines) - lines
    numbers = _numbers(faults.unreadable)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    origins = np.searchsorted(starts, numbers, side="right") - 1
    return UnreadableRows(
        origins.astype(np.uint32),
        (numbers - starts[origins] + skipped).astype(np.uint32),
        _numbers(faults.codes)[order].astype(np.uint32),
        tuple(faults.problems),
    )
