"""Windows by the clock of a zone, out of what a query says: `WINDOWING 1 d TIMEZONE 'UTC'`."""

from __future__ import annotations

from typing import Final

from mars.core.windows import Calendar, Unit, Zone, ZonedCumulating, ZonedSliding
from mars.core.windows.moments import DAY_MS, HOUR_MS
from mars.sql.lengths import (
    PANES_MAX,
    Length,
    WrittenWindow,
    check_lengths,
    check_offset,
    check_steps,
)
from mars.sql.source import QueryText

_DAYS: Final = {Unit.DAY: 1, Unit.WEEK: 7}


def zoned_sliding(source: QueryText, zone: Zone, written: WrittenWindow) -> ZonedSliding:
    """`1 d`, `7 d SLIDE 1 d`, `1 quarter SLIDE 1 month`. Raises `SqlError`."""
    size, slide = written.size, written.apart
    check_lengths(source, "window or slide", size, slide)
    check_offset(source, written, min(slide.ms, DAY_MS))
    size_in_common, slide_in_common = _in_common(source, size, slide)
    count, left = divmod(size_in_common, slide_in_common)
    if count == 0:
        raise source.error(
            slide.at,
            "the slide is longer than the window, rows would fall between; choose a shorter one",
        )
    if left:
        raise source.error(
            slide.at,
            f"in a time zone a window must be a whole number of slides, and {size} is not a "
            f"multiple of {slide}; choose a slide that divides it",
        )
    _check_part(source, slide)
    if count > PANES_MAX:
        raise source.error(
            slide.at,
            f"the window has {count} slides, at most {PANES_MAX} are possible; choose a longer one",
        )
    return ZonedSliding(_calendar(zone, written, slide), count)


def zoned_cumulating(
    source: QueryText, zone: Zone, written: WrittenWindow
) -> ZonedCumulating | ZonedSliding:
    """`1 d EVERY 1 h`, `1 month EVERY 1 d`. Raises `SqlError`."""
    size, step = written.size, written.apart
    check_lengths(source, "window or step", size, step)
    check_offset(source, written, min(size.ms, DAY_MS))
    for length in (step, size):
        _check_part(source, length)
    if not _divides(step, size):
        raise source.error(
            step.at,
            f"in a time zone a window of {size} is not always a whole number of steps of {step}; "
            "choose a step that divides it",
        )
    steps, cycles = _calendar(zone, written, step), _calendar(zone, written, size)
    if steps == cycles or 0 < size.months == step.months:
        return ZonedSliding(cycles)
    check_steps(source, step, cycles.longest_ms // steps.least_ms)
    return ZonedCumulating(steps, cycles)


def _in_common(source: QueryText, size: Length, slide: Length) -> tuple[int, int]:
    """Both in a unit of which each always has the same number."""
    if size.months and slide.months:
        return size.months, slide.months
    if size.unit in _DAYS and slide.unit in _DAYS:
        return size.number * _DAYS[size.unit], slide.number * _DAYS[slide.unit]
    if not size.months and slide.unit is Unit.PART and (size.unit is slide.unit or _cut(slide)):
        return size.ms, slide.ms
    if size.months and not slide.months:
        raise source.error(
            slide.at,
            f"windows of {size} that end every {slide} are not supported, as months differ in "
            f"length; write EVERY {slide} for the {size.unit.value} so far, or count days: "
            f"{size.number * 30} d SLIDE 1 d",
        )
    if slide.unit is Unit.PART:
        raise source.error(
            slide.at,
            f"a day in a time zone does not always have the same number of {slide}; write "
            f"{size.ms // HOUR_MS} h SLIDE {slide} for so many real hours",
        )
    raise source.error(
        slide.at, f"{size} is not a multiple of {slide}; choose a slide that divides it"
    )


def _cut(part: Length) -> bool:
    """Whether every day has the same number of them, as they are cut by what the clock shows."""
    return part.ms > HOUR_MS


def _divides(step: Length, size: Length) -> bool:
    """Whether each window begins where a step does, whatever the clock and the calendar do."""
    if step.unit is size.unit:
        return size.number % step.number == 0
    if step.unit is Unit.PART or (step.unit is Unit.DAY and step.number == 1):
        return size.unit is not Unit.PART
    return step.months > 0 and size.months % step.months == 0 and size.months > 0


def _check_part(source: QueryText, length: Length) -> None:
    """Windows begin at the same times every day: 18 h would not."""
    if length.unit is Unit.PART and (DAY_MS % length.ms or length.ms == DAY_MS):
        raise source.error(
            length.at,
            f"in a time zone a length in hours or less must divide a day of 24 h, and {length} "
            "does not; choose another one, such as 1 d, 6 h or 15 min",
        )


def _calendar(zone: Zone, written: WrittenWindow, length: Length) -> Calendar:
    offset_ms = written.offset_ms
    if length.unit is Unit.PART:
        offset_ms %= length.ms
    return Calendar(length.number, length.unit, zone, offset_ms)
