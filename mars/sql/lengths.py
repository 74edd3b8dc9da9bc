"""Lengths of time as they are written in a query: how many of which unit, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from sqlglot import Token, TokenType, exp

from mars.core.windows import Unit, span
from mars.core.windows.calendars import CLOCK_MS, LONGEST_MS, MONTHS
from mars.sql.durations import duration_ms
from mars.sql.source import QueryText

WINDOW_MS_MIN: Final = 100
"""Shortest window, slide and step: results are committed a few times a second at most."""
WINDOW_MS_MAX: Final = 366 * 86_400_000
"""Longest window: its state is held until it closes, and Kafka must keep its rows for replay."""
PANES_MAX: Final = 10_000
"""Most panes of a window: an owner that takes it over merges all of them at once."""

CALENDAR_UNITS: Final[Mapping[str, Unit]] = {
    "week": Unit.WEEK,
    "month": Unit.MONTH,
    "quarter": Unit.QUARTER,
    "year": Unit.YEAR,
}
"""Those of which no length is known but by a calendar."""

_COUNT_DIGITS_MAX: Final = 6
"""Of a number of weeks, months, quarters or years: no window has as many."""

Place = Token | exp.Expr


class Length(NamedTuple):
    """A length of time: so many units, and where that is written."""

    number: int
    unit: Unit
    at: Place

    @property
    def ms(self) -> int:
        """How long it is; of months and years, at most."""
        return self.number * LONGEST_MS[self.unit]

    @property
    def months(self) -> int:
        """How many months it has; 0 for what is none."""
        return self.number * MONTHS.get(self.unit, 0)

    def __str__(self) -> str:
        """As people write it."""
        return span(self.number) if self.unit is Unit.PART else f"{self.number} {self.unit.value}"


class WrittenWindow(NamedTuple):
    """What a query says of its windows: their size, how far apart they end, and how much later than
    otherwise they begin.
    """

    size: Length
    apart: Length
    offset: Length | None = None

    @property
    def offset_ms(self) -> int:
        """How much later they begin."""
        return 0 if self.offset is None else self.offset.ms


def length_of(number: str, unit: str, at: Place) -> Length | None:
    """So many units; None where that is no length."""
    named = CALENDAR_UNITS.get(unit.lower().removesuffix("s"))
    if named is not None:
        whole = number.isdecimal() and len(number) <= _COUNT_DIGITS_MAX
        return Length(int(number), named, at) if whole else None
    found_ms = duration_ms(number, unit)
    if found_ms is None:
        return None
    if unit.lower() == "d" and Decimal(number) % 1 == 0:
        return Length(int(Decimal(number)), Unit.DAY, at)
    return Length(found_ms, Unit.PART, at)


def length_after(
    source: QueryText, word: Token, following: Sequence[Token], takes: str
) -> tuple[Length, Sequence[Token]]:
    """The length after a word, and what follows it; raises `SqlError`, `takes` says what belongs
    there.
    """
    where = following[0] if following else word
    kinds = [token.token_type for token in following[:2]]
    if kinds == [TokenType.NUMBER, TokenType.VAR]:
        found = length_of(following[0].text, following[1].text, where)
        if found is not None:
            return found, following[2:]
    raise source.error(where, f"{word.text.upper()} takes {takes}")


def check_lengths(source: QueryText, what: str, *lengths: Length) -> None:
    """Raise `SqlError` for one that is too short or too long."""
    for length in lengths:
        if not WINDOW_MS_MIN <= length.ms <= WINDOW_MS_MAX:
            days = WINDOW_MS_MAX // CLOCK_MS[Unit.DAY]
            raise source.error(length.at, f"a {what} lasts from {WINDOW_MS_MIN} ms to {days} d")


def check_steps(source: QueryText, step: Length, count: int) -> None:
    """Raise `SqlError` for a window that cumulates in too many steps."""
    if count > PANES_MAX:
        raise source.error(
            step.at,
            f"the window has {count} steps, and all its groups would be emitted at each; at most "
            f"{PANES_MAX} are possible; choose a longer step",
        )


def check_offset(source: QueryText, written: WrittenWindow, apart_ms: int) -> None:
    """Raise `SqlError` for an offset after which windows begin anyway."""
    offset = written.offset
    if offset is not None and offset.ms >= apart_ms:
        raise source.error(
            offset.at,
            f"the offset {offset} must be shorter than {span(apart_ms)}, the time from one window "
            "to the next; choose a shorter one",
        )
