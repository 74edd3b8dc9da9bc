"""Slices of time by the clock and the calendar of a zone: hours, days, weeks, months.

They tile time, and differ in length where a clock jumps. They are kept as pieces, in each of which
slices are of one length but for the last one, which ends where the next piece begins:

    begin      |        piece 0        |  piece 1 ...
    slices     |-----|-----|-----|-----------|-----|
    number     0     1     2     3           4          a day of 25 hours ends piece 0
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from mars.core.windows.moments import DAY_MS, HOUR_MS, MINUTE_MS, span
from mars.core.windows.zones import FOREVER_MS, Stretch, Zone

YEARS: Final = range(1900, 2201)
"""Those whose months are known; before and after them all months are equally long."""
MONTH_MS: Final = 146_097 * DAY_MS // 4_800
"""How long a month is on average of 400 years."""
CALENDARS_KEPT: Final = 64
"""Calendars whose pieces are remembered: some 30 kB each, of months 400 kB."""


class Unit(StrEnum):
    """What a calendar counts."""

    PART = "ms"
    """Parts of a day, in milliseconds."""
    DAY = "d"
    WEEK = "week"
    """From Monday, as in ISO 8601."""
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


MONTHS: Final = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}
CLOCK_MS: Final = {Unit.PART: 1, Unit.DAY: DAY_MS, Unit.WEEK: 7 * DAY_MS}
LEAST_MS: Final = {
    **CLOCK_MS,
    Unit.MONTH: 28 * DAY_MS,
    Unit.QUARTER: 90 * DAY_MS,
    Unit.YEAR: 365 * DAY_MS,
}
LONGEST_MS: Final = {
    **CLOCK_MS,
    Unit.MONTH: 31 * DAY_MS,
    Unit.QUARTER: 92 * DAY_MS,
    Unit.YEAR: 366 * DAY_MS,
}
MONDAY_MS: Final = -3 * DAY_MS
"""The Monday before 1970-01-01."""


class Pieces(NamedTuple):
    """See above: where each begins, the number of its first slice, and how many it has."""

    begins: list[int]
    numbers: list[int]
    counts: list[int]
    length_ms: int


class _Piece(NamedTuple):
    begin_ms: int
    slices: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """Slices of `count` units in a zone, each `offset_ms` later by its clock than the unit begins.

    Parts of a day up to an hour are real lengths of time, cut anew where the clock jumps: a day of
    25 hours has 25 hours. All else is from when the clock first shows a time to when it first shows
    the next: days have 23 or 25 hours then, and a day that the clock leaves out has no slice.
    """

    count: int
    unit: Unit
    zone: Zone
    offset_ms: int = 0

    def __str__(self) -> str:
        """As people say it."""
        return self.times(1)

    def times(self, slices: int) -> str:
        """The same of so many slices."""
        count = slices * self.count
        return span(count) if self.unit is Unit.PART else f"{count} {self.unit.value}"

    @property
    def least_ms(self) -> int:
        """No slice is shorter, but by what a clock takes that is put forward."""
        return self.count * LEAST_MS[self.unit]

    @property
    def longest_ms(self) -> int:
        """No slice is longer, but by what a clock gives that is put back."""
        return self.count * LONGEST_MS[self.unit]

    def number(self, time_ms: int) -> int:
        """The number of the slice that a time falls into; one more for each that follows."""
        begins, numbers, counts, length_ms = pieces_of(self)
        at = max(bisect_right(begins, time_ms) - 1, 0)
        return numbers[at] + min((time_ms - begins[at]) // length_ms, counts[at] - 1)

    def start(self, number: int) -> int:
        """Where the slice begins that has this number."""
        begins, numbers, _counts, length_ms = pieces_of(self)
        at = max(bisect_right(numbers, number) - 1, 0)
        return begins[at] + (number - numbers[at]) * length_ms

    def floor(self, time_ms: int) -> int:
        """Where the slice begins that a time falls into."""
        return self.start(self.number(time_ms))

    def after(self, time_ms: int, slices: int = 1) -> int:
        """Where the next slice begins, or one so many behind that which a time falls into."""
        return self.start(self.number(time_ms) + slices)

    def local(self, time_ms: int) -> str | None:
        """When a slice begins by the clock; the day alone where all of them begin with one."""
        shown = self.zone.clock(time_ms)
        if shown is None:
            return None
        if self.unit is Unit.PART or self.offset_ms:
            exact = time_ms % MINUTE_MS != 0
            return shown.isoformat(timespec="milliseconds" if exact else "minutes")
        return shown.date().isoformat()


@lru_cache(maxsize=CALENDARS_KEPT)
def pieces_of(calendar: Calendar) -> Pieces:
    """The pieces of a calendar, in order of time; slices before the first are as long as in it."""
    count, unit, stretches = calendar.count, calendar.unit, list(calendar.zone.stretches())
    if unit in MONTHS:
        months = count * MONTHS[unit]
        return _numbered(_of_months(stretches, months, calendar.offset_ms), months * MONTH_MS)
    length_ms = count * CLOCK_MS[unit]
    begin_ms = calendar.offset_ms + (MONDAY_MS if unit is Unit.WEEK else 0)
    cut = _of_lengths if length_ms <= HOUR_MS else _by_clock
    return _numbered(cut(stretches, length_ms, begin_ms), length_ms)


def _of_lengths(stretches: Sequence[Stretch], length_ms: int, begin_ms: int) -> Iterator[_Piece]:
    """Real lengths of time, cut anew where the clock jumps."""
    for from_ms, until_ms, offset_ms in stretches:
        phase_ms = begin_ms - offset_ms
        begin = from_ms if from_ms > 0 else phase_ms % length_ms - length_ms
        aligned = begin + (phase_ms - begin) % length_ms
        if begin < aligned:
            yield _Piece(begin, 1)
        if aligned < until_ms:
            yield _Piece(aligned, -(-(until_ms - aligned) // length_ms))


def _by_clock(stretches: Sequence[Stretch], length_ms: int, begin_ms: int) -> Iterator[_Piece]:
    """From when the clock first shows a time to when it first shows the next."""
    shown = (stretches[0].offset_ms - begin_ms) // length_ms - 1
    for from_ms, until_ms, offset_ms in stretches:
        ahead_ms = offset_ms - begin_ms
        now, last = (from_ms + ahead_ms) // length_ms, (until_ms + ahead_ms - 1) // length_ms
        if now > shown:  # the clock leaves out a time at which one would have begun
            shown = now
            yield _Piece(from_ms, 1)
        if last > shown:
            yield _Piece((shown + 1) * length_ms - ahead_ms, last - shown)
            shown = last


def _of_months(stretches: Sequence[Stretch], months: int, offset_ms: int) -> Iterator[_Piece]:
    """The same, of months of the calendar."""
    at, before = 0, None
    for month in range((YEARS[0] - 1970) * 12, (YEARS[-1] - 1970) * 12):
        if month % months:
            continue
        first = datetime(1970 + month // 12, month % 12 + 1, 1, tzinfo=UTC)
        shown_ms = int(first.timestamp()) * 1000 + offset_ms
        while stretches[at].until_ms + stretches[at].offset_ms <= shown_ms:
            at += 1
        begin_ms = max(shown_ms - stretches[at].offset_ms, stretches[at].from_ms)
        if begin_ms != before:
            yield _Piece(begin_ms, 1)
        before = begin_ms


def _numbered(found: Iterable[_Piece], length_ms: int) -> Pieces:
    begins, counts = map(list, zip(*found, strict=True))
    numbers = list(accumulate(counts[:-1], initial=0))
    counts[-1] = FOREVER_MS // length_ms
    return Pieces(begins, numbers, counts, length_ms)
