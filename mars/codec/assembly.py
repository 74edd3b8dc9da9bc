"""Columns, and what was wrong with them, to `Decoded`.

Rows are numbered through the batch, unreadable ones included: those have a place in the columns
(NULL in all of them) until they are taken out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from mars.codec.decoded import Decoded, Unreadable, header_lines
from mars.plan import Field, Stream
from mars.types import Reason, Records


@dataclass(slots=True)
class Faults:
    """What was wrong, by the number of the row: with the whole row, or with one of its fields.

    `invalid` is keyed by the place of the field among the decoded ones. `longer` counts the rows
    with more cells than there are columns, which are no fault.
    """

    unreadable: dict[int, tuple[Reason, str]] = field(default_factory=dict)
    invalid: dict[int, list[int]] = field(default_factory=dict)
    longer: int = 0

    def mark(self, at: int, invalid: pl.Series, first: int = 0) -> None:
        """Note that a field is invalid in the rows for which `invalid` is true."""
        if invalid.any():
            rows = np.flatnonzero(invalid.to_numpy()) + first
            self.invalid.setdefault(at, []).extend(rows.tolist())


def assemble(
    stream: Stream,
    fields: tuple[Field, ...],
    records: Records,
    lines: np.typing.NDArray[np.int64],
    columns: Sequence[pl.Series],
    faults: Faults,
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
        kept[list(faults.unreadable)] = False
        readable = pl.Series(kept)
        frame, messages = frame.filter(readable), messages.filter(readable)
        invalid = invalid.filter(readable) if marks else invalid
    unreadable = _unreadable(lines, faults, header_lines(stream))
    longer = faults.longer
    return Decoded(stream, fields, records, frame, invalid, unreadable, messages, longer)


def _marks(name: str, height: int, rows: list[int]) -> pl.Series:
    marks = np.zeros(height, dtype=bool)
    marks[rows] = True
    return pl.Series(name, marks)


def _unreadable(
    lines: np.typing.NDArray[np.int64], faults: Faults, skipped: int
) -> tuple[Unreadable, ...]:
    """In the order of the rows; `skipped` lines of each message are no rows."""
    if not faults.unreadable:
        return ()
    starts = np.cumsum(lines) - lines
    numbers = np.array(sorted(faults.unreadable), dtype=np.int64)
    origins = np.searchsorted(starts, numbers, side="right") - 1
    return tuple(
        Unreadable(message, skipped + line, *faults.unreadable[number])
        for number, message, line in zip(
            numbers.tolist(), origins.tolist(), (numbers - starts[origins]).tolist(), strict=True
        )
    )
