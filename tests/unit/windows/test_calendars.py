"""Days, months and hours of zones whose clocks jump, as they were or will be."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from mars.core.windows import Calendar, Unit, Window, Zone, ZonedCumulating, ZonedSliding
from mars.core.windows.moments import HOUR_MS, MINUTE_MS
from mars.process.zones import zone_named


def zone(name: str) -> Zone:
    found = zone_named(name)
    assert found is not None
    return found


def slices(calendar: Calendar, first: str, count: int) -> list[tuple[str | None, float]]:
    """What the clock shows when slices begin, from that which a moment of UTC falls into on, and
    how many hours they have.
    """
    begin = calendar.number(ms(first))
    starts = [calendar.start(begin + at) for at in range(count + 1)]
    hours = [(end - start) / HOUR_MS for start, end in itertools.pairwise(starts)]
    return [(calendar.local(start), of) for start, of in zip(starts, hours, strict=False)]


def ms(moment: str) -> int:
    return int(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("name", "first", "wanted"),
    [
        ("Europe/Berlin", "2026-03-28T12:00", {"28": 24, "29": 23, "30": 24}),
        ("Europe/Berlin", "2026-10-24T12:00", {"24": 24, "25": 25, "26": 24}),
        ("Australia/Lord_Howe", "2026-04-03T18:00", {"04": 24, "05": 24.5, "06": 24}),
        ("Africa/Casablanca", "2026-02-14T12:00", {"14": 24, "15": 25, "16": 24}),
        # No clock of Apia has shown the 30th.
        ("Pacific/Apia", "2011-12-29T12:00", {"29": 24, "31": 24, "01": 24}),
        # Midnight was left out: the day begins at one o'clock.
        ("America/Sao_Paulo", "2017-10-14T12:00", {"14": 24, "15": 23, "16": 24}),
        # At a minute past midnight it was 23:01 again: the day had begun.
        ("America/St_Johns", "2006-10-28T12:00", {"28": 24, "29": 25, "30": 24}),
    ],
)
def test_days_are_as_long_as_the_clock_makes_them(
    name: str, first: str, wanted: dict[str, float]
) -> None:
    found = slices(Calendar(1, Unit.DAY, zone(name)), first, len(wanted))
    assert {str(day)[-2:]: hours for day, hours in found} == wanted


def test_months_begin_when_their_first_day_does() -> None:
    berlin = zone("Europe/Berlin")
    assert slices(Calendar(1, Unit.MONTH, berlin), "2026-02-28T23:00", 2) == [
        ("2026-03-01", 31 * 24 - 1),
        ("2026-04-01", 30 * 24),
    ]
    assert slices(Calendar(1, Unit.QUARTER, berlin), "2026-03-31T21:59", 2) == [
        ("2026-01-01", 90 * 24 - 1),
        ("2026-04-01", 91 * 24),
    ]
    assert slices(Calendar(1, Unit.YEAR, berlin), "2027-12-31T23:00", 1) == [
        ("2028-01-01", 366 * 24)
    ]
    assert slices(Calendar(1, Unit.WEEK, berlin), "2026-03-24T00:00", 2) == [
        ("2026-03-23", 7 * 24 - 1),
        ("2026-03-30", 7 * 24),
    ]


def test_six_hours_are_cut_by_what_the_clock_shows_and_an_hour_is_an_hour() -> None:
    berlin = zone("Europe/Berlin")
    assert slices(Calendar(6 * HOUR_MS, Unit.PART, berlin), "2026-10-24T22:00", 2) == [
        ("2026-10-25T00:00+02:00", 7),
        ("2026-10-25T06:00+01:00", 6),
    ]
    assert slices(Calendar(HOUR_MS, Unit.PART, berlin), "2026-10-24T23:30", 4) == [
        ("2026-10-25T01:00+02:00", 1),
        ("2026-10-25T02:00+02:00", 1),
        ("2026-10-25T02:00+01:00", 1),
        ("2026-10-25T03:00+01:00", 1),
    ]
    # The clock of Lord Howe goes back by half an hour at two: that is an hour's end, too.
    howe = Calendar(HOUR_MS, Unit.PART, zone("Australia/Lord_Howe"))
    assert [hours for _, hours in slices(howe, "2026-04-04T14:00", 3)] == [1, 0.5, 1]


def test_days_may_begin_at_six_by_the_clock() -> None:
    calendar = Calendar(1, Unit.DAY, zone("Europe/Berlin"), 6 * HOUR_MS)
    assert slices(calendar, "2026-03-28T12:00", 2) == [
        ("2026-03-28T06:00+01:00", 23),
        ("2026-03-29T06:00+02:00", 24),
    ]


def test_a_zone_is_the_table_in_its_definition() -> None:
    # Its clock goes forward by an hour at 10 h, and back at 20 h of the first day of 1970.
    made_up = Zone("Mars/Base", "none", 0, ((10 * HOUR_MS, HOUR_MS), (20 * HOUR_MS, 0)))
    noons = Calendar(12 * HOUR_MS, Unit.PART, made_up)
    assert [noons.start(noons.number(0) + at) / HOUR_MS for at in range(4)] == [0, 11, 24, 36]
    assert made_up.offset_at(20 * HOUR_MS - 1) == HOUR_MS
    assert made_up != Zone("Mars/Base", "none", 0)


def test_seven_days_that_slide_by_one_and_the_month_so_far() -> None:
    days = Calendar(1, Unit.DAY, zone("Europe/Berlin"))
    week = ZonedSliding(days, 7)
    at = ms("2026-03-29T12:00")
    begins = [days.local(window.start_ms) for window in week.windows_of([week.panes(at)])]
    assert begins == [f"2026-03-{day}" for day in range(23, 30)]
    assert (week.said, week.is_tumbling) == (("7 d", "1 d", 0), False)
    so_far = ZonedCumulating(days, Calendar(1, Unit.MONTH, days.zone))
    windows = list(so_far.windows_of([so_far.panes(at)]))
    assert windows[0] == Window(ms("2026-03-29T22:00"), ms("2026-02-28T23:00"))
    assert [so_far.local(one) for one in windows] == ["2026-03-01"] * 3
    assert so_far.said == ("1 month", "1 d", 0)


def test_nobody_has_a_zone_of_another_name() -> None:
    assert zone_named("Mars/Base") is None
    assert zone_named("../../etc/passwd") is None
    assert zone_named("europe/berlin") == zone("Europe/Berlin")


def test_times_that_no_calendar_has_are_in_windows_too() -> None:
    months = Calendar(1, Unit.MONTH, zone("UTC"))
    far = 10**17
    assert months.floor(far) <= far < months.after(far)
    assert months.local(months.floor(far)) is None


def test_parts_of_a_minute_are_shown_exactly() -> None:
    parts = Calendar(500, Unit.PART, zone("UTC"))
    assert parts.local(90_500) == "1970-01-01T00:01:30.500+00:00"
    assert parts.local(MINUTE_MS) == "1970-01-01T00:01+00:00"
