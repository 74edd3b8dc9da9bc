"""Slices and windows by the clock of a zone against what a clock on the wall shows, minute by
minute, and against DuckDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import pairwise

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mars.core.windows import Calendar, Shape, Unit, Window, Zone, ZonedCumulating, ZonedSliding
from mars.core.windows.moments import DAY_MS, HOUR_MS, MINUTE_MS
from mars.process.zones import clock_of, zone_named
from tests.support.windows import panes_of

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- what a wall shows has no zone
FROM_MS, UNTIL_MS = 31 * DAY_MS, 47_000 * DAY_MS
LEAPING = (
    *("Europe/Berlin", "America/St_Johns", "America/Sao_Paulo", "Australia/Lord_Howe"),
    *("Pacific/Apia", "Africa/Casablanca", "Antarctica/Troll", "Asia/Kathmandu", "UTC"),
)
NAMES = sorted(resources.files("tzdata").joinpath("zones").read_text().split())


def zone(name: str) -> Zone:
    found = zone_named(name)
    assert found is not None
    return found


@st.composite
def places(draw: st.DrawFn) -> tuple[Zone, int]:
    """A zone, and a time that is most often near a jump of its clock."""
    found = zone(draw(st.sampled_from(LEAPING) | st.sampled_from(NAMES)))
    far = st.integers(FROM_MS, UNTIL_MS)
    if not found.jumps:
        return found, draw(far)
    near = st.sampled_from(found.jumps).map(lambda jump: jump[0])
    near_by = st.builds(int.__add__, near, st.integers(-2 * DAY_MS, 2 * DAY_MS))
    return found, draw(near_by | far)


def shown(name: str, time_ms: int) -> datetime:
    """What a clock on the wall shows."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    return moment.astimezone(clocks(name)).replace(tzinfo=None)


clocks = cache(clock_of)


def minutes(found: Zone, around_ms: int, hours: int) -> range:
    """Each minute; half a minute in Monrovia, whose clock was 44 min and 30 s behind until 1972."""
    step_ms = MINUTE_MS // 2 if found.offset_ms % MINUTE_MS else MINUTE_MS
    middle = around_ms // step_ms * step_ms
    return range(middle - hours * HOUR_MS, middle + hours * HOUR_MS, step_ms)


def first_shown(
    found: Zone, around_ms: int, hours: int, length_ms: int, later_ms: int
) -> list[int]:
    """When the clock first shows another one of the times at which slices begin."""
    begins, latest = [], None
    for time_ms in minutes(found, around_ms, hours):
        clock_ms = (shown(found.name, time_ms) - EPOCH) // timedelta(milliseconds=1)
        number = (clock_ms - later_ms) // length_ms
        if latest is not None and number > latest:
            begins.append(time_ms)
        latest = number if latest is None else max(latest, number)
    return begins


def cut_anew(found: Zone, around_ms: int, hours: int, length_ms: int, later_ms: int) -> list[int]:
    """When the clock shows a time at which slices begin, or jumps."""
    begins, before = [], None
    for time_ms in minutes(found, around_ms, hours):
        clock_ms = (shown(found.name, time_ms) - EPOCH) // timedelta(milliseconds=1)
        if (clock_ms - later_ms) % length_ms == 0 or before not in (None, time_ms - clock_ms):
            begins.append(time_ms)
        before = time_ms - clock_ms
    return begins


def slices(calendar: Calendar, low_ms: int, high_ms: int) -> list[int]:
    """Where slices begin between two times."""
    numbers = range(calendar.number(low_ms), calendar.number(high_ms) + 1)
    return [start for number in numbers if low_ms <= (start := calendar.start(number)) < high_ms]


@settings(max_examples=40)
@given(places(), st.sampled_from([2, 3, 4, 6, 8, 12, 24]), st.integers(0, 90))
def test_days_and_longer_parts_of_them_begin_when_the_clock_first_shows_it(
    place: tuple[Zone, int], hours: int, later: int
) -> None:
    # clock  22 23 | 0  1 (2) 3      the hour in brackets is shown twice, or never
    found, around_ms = place
    length_ms, later_ms = hours * HOUR_MS, later * MINUTE_MS
    calendar = Calendar(length_ms, Unit.PART, found, later_ms)
    if hours == 24:
        calendar = Calendar(1, Unit.DAY, found, later_ms)
    checked = minutes(found, around_ms, 27)
    wanted = first_shown(found, around_ms, 54, length_ms, later_ms)
    assert slices(calendar, checked[0], checked[-1]) == [
        start for start in wanted if checked[0] <= start < checked[-1]
    ]


@given(places(), st.sampled_from([1, 5, 15, 20, 30, 60]))
@example((zone("Africa/Monrovia"), 63_593_070_000), 1)
def test_parts_of_up_to_an_hour_are_real_lengths_cut_where_the_clock_jumps(
    place: tuple[Zone, int], length: int
) -> None:
    found, around_ms = place
    calendar = Calendar(length * MINUTE_MS, Unit.PART, found)
    checked = minutes(found, around_ms, 3)
    wanted = cut_anew(found, around_ms, 4, length * MINUTE_MS, 0)
    assert slices(calendar, checked[0], checked[-1]) == [
        start for start in wanted if checked[0] <= start < checked[-1]
    ]


@given(places(), st.sampled_from([Unit.WEEK, Unit.MONTH, Unit.QUARTER, Unit.YEAR]))
def test_weeks_months_and_years_begin_with_one_of_their_days(
    place: tuple[Zone, int], unit: Unit
) -> None:
    found, time_ms = place
    begin_ms = Calendar(1, unit, found).floor(time_ms)
    assert begin_ms == Calendar(1, Unit.DAY, found).floor(begin_ms)
    day = shown(found.name, begin_ms)
    before = shown(found.name, begin_ms - DAY_MS)
    assert {
        Unit.WEEK: (day.isocalendar()[1] != before.isocalendar()[1]),
        Unit.MONTH: day.month != before.month,
        Unit.QUARTER: (day.month - 1) // 3 != (before.month - 1) // 3,
        Unit.YEAR: day.year != before.year,
    }[unit]
    longest_ms = Calendar(1, unit, found).longest_ms + DAY_MS
    assert begin_ms <= time_ms < Calendar(1, unit, found).after(time_ms) <= begin_ms + longest_ms


ALL_UNITS = (
    *((1, unit) for unit in Unit if unit is not Unit.PART),
    *((hours * HOUR_MS, Unit.PART) for hours in (1, 2, 6, 12)),
    *((100, Unit.PART), (15 * MINUTE_MS, Unit.PART), (2, Unit.DAY), (2, Unit.MONTH)),
)


@given(places(), st.sampled_from(ALL_UNITS), st.integers(-(10**15), 10**15))
def test_slices_tile_time_and_are_numbered_without_a_gap(
    place: tuple[Zone, int], of: tuple[int, Unit], anywhere: int
) -> None:
    found, near_by = place
    calendar = Calendar(*of, found)
    for time_ms in (near_by, anywhere):
        number = calendar.number(time_ms)
        begin, end = calendar.start(number), calendar.start(number + 1)
        assert begin <= time_ms < end == calendar.after(time_ms)
        assert begin == calendar.floor(time_ms) == calendar.floor(end - 1)
        assert calendar.number(end) == number + 1


@given(places(), st.sampled_from(ALL_UNITS), st.lists(st.integers(-(10**13), 10**13)))
def test_columns_fall_into_the_slices_of_each(
    place: tuple[Zone, int], of: tuple[int, Unit], apart: list[int]
) -> None:
    found, around_ms = place
    shape = ZonedSliding(Calendar(*of, found))
    times = [around_ms, *(around_ms + one for one in apart)]
    column = pl.DataFrame({"at": times}).select(shape.panes(pl.col("at"))).to_series()
    assert column.to_list() == [shape.panes(time_ms) for time_ms in times]
    numbers = shape.pane_numbers(column.to_numpy()).tolist()
    assert numbers == [shape.pane_numbers(pane) for pane in column]
    assert [shape.pane_numbered(number) for number in numbers] == column.to_list()


# ---------------------------------------------------------------------------------- windows


@st.composite
def shapes(draw: st.DrawFn) -> tuple[ZonedSliding | ZonedCumulating, int]:
    found, around_ms = draw(places())
    later_ms = draw(st.sampled_from([0, 0, 30 * MINUTE_MS, 6 * HOUR_MS]))
    if draw(st.booleans()):
        count, unit = draw(st.sampled_from([(1, Unit.DAY), (6 * HOUR_MS, Unit.PART)]))
        steps = Calendar(count, unit, found, later_ms % (6 * HOUR_MS))
        return ZonedSliding(steps, draw(st.integers(1, 5))), around_ms
    cycle = draw(st.sampled_from([Unit.DAY, Unit.WEEK, Unit.MONTH]))
    length = draw(st.sampled_from([DAY_MS, 6 * HOUR_MS, HOUR_MS]))
    assume(length >= 6 * HOUR_MS or cycle is Unit.DAY)
    part = Calendar(length, Unit.PART, found, later_ms % length)
    steps = Calendar(1, Unit.DAY, found, later_ms) if length == DAY_MS else part
    return ZonedCumulating(steps, Calendar(1, cycle, found, later_ms)), around_ms


def all_windows(shape: ZonedSliding | ZonedCumulating, around_ms: int) -> list[Window]:
    """Every window near a time, in the order in which they end, by the definition."""
    ends = slices(shape.steps, around_ms - 70 * DAY_MS, around_ms + 70 * DAY_MS)
    if isinstance(shape, ZonedSliding):
        return [Window(*pair) for pair in zip(ends[shape.count :], ends, strict=False)]
    cycles = slices(shape.cycles, around_ms - 70 * DAY_MS, around_ms + 70 * DAY_MS)
    return [
        Window(end, begin)
        for begin, over in pairwise(cycles)
        for end in ends
        if begin < end <= over
    ]


def holding(windows: Sequence[Window], time_ms: int) -> list[Window]:
    return [window for window in windows if window.start_ms <= time_ms < window.end_ms]


@given(shapes())
def test_row_is_in_the_windows_of_its_pane(at: tuple[ZonedSliding | ZonedCumulating, int]) -> None:
    shape, time_ms = at
    windows = all_windows(shape, time_ms)
    wanted, pane = holding(windows, time_ms), shape.panes(time_ms)
    assert list(shape.windows_of([pane])) == wanted
    assert (shape.first_end(pane), shape.last_end(pane)) == (wanted[0].end_ms, wanted[-1].end_ms)
    assert shape.last_window(pane) == wanted[-1] == shape.window_of_start(wanted[-1].start_ms)
    ends = [window.end_ms for window in windows]
    assert shape.closed_by(time_ms) == max(end for end in ends if end <= time_ms)
    for window in wanted:
        panes = list(panes_of(shape, window))
        assert panes[0] == window.start_ms
        assert [shape.pane_end(pane) for pane in panes] == [*panes[1:], window.end_ms]
        assert shape.window_named(shape.name_of(window)) == window
        assert len(panes) <= shape.panes_in(window.end_ms - window.start_ms) + 2


@given(shapes(), st.sets(st.integers(-20, 20)), st.none() | st.integers(-30, 30), st.data())
def test_windows_of_panes_come_in_order_and_once(
    at: tuple[ZonedSliding | ZonedCumulating, int],
    apart: set[int],
    after: int | None,
    data: st.DataObject,
) -> None:
    shape, around_ms = at
    windows = all_windows(shape, around_ms)
    times = [around_ms + 5 * HOUR_MS * one for one in apart]
    after_ms = None if after is None else around_ms + 5 * HOUR_MS * after
    upto_ms = data.draw(st.none() | st.integers(around_ms - 9 * DAY_MS, around_ms + 9 * DAY_MS))
    wanted = {window for time_ms in times for window in holding(windows, time_ms)}
    kept = [
        window
        for window in sorted(wanted)
        if (after_ms is None or window.end_ms > after_ms)
        and (upto_ms is None or window.end_ms <= upto_ms)
    ]
    panes = {shape.panes(time_ms) for time_ms in times}
    assert list(shape.windows_of(panes, after_ms=after_ms, upto_ms=upto_ms)) == kept


@given(shapes(), st.integers(-20, 20))
def test_pane_is_needed_until_its_last_window_is_closed(at: tuple[Shape, int], apart: int) -> None:
    shape, closed_ms = at
    pane = shape.panes(closed_ms + apart * 7 * HOUR_MS)
    assert (pane >= shape.first_needed(closed_ms)) == (shape.last_end(pane) > closed_ms)


@given(shapes(), st.sets(st.integers(-40, 40), min_size=1))
def test_carried_panes_stay_in_the_windows_that_hold_them(
    at: tuple[Shape, int], apart: set[int]
) -> None:
    shape, behind_ms = at
    panes = sorted({shape.panes(behind_ms + one * 3 * HOUR_MS) for one in apart})
    for pane, into in shape.carried(panes, behind_ms).items():
        assert shape.pane_end(pane) <= behind_ms
        later = [one for one in shape.windows_of([pane]) if one.end_ms > behind_ms]
        assert all(one.start_ms <= into < one.end_ms for one in later)


# ----------------------------------------------------------------------------------- DuckDB

ICU_ZONES = (
    *("Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia"),
    *("America/New_York", "Asia/Kolkata", "Asia/Shanghai", "UTC"),
)


@pytest.mark.parametrize("name", ICU_ZONES)
@pytest.mark.parametrize("unit", [unit for unit in Unit if unit is not Unit.PART])
def test_duckdb_has_rows_in_the_same_slices(name: str, unit: Unit) -> None:
    found = zone(name)
    jumps = [at + apart for at, _offset in found.jumps for apart in range(-36, 37)]
    rows = np.random.default_rng(7).integers(FROM_MS, 1_700_000_000_000, 2_000).tolist()
    times = [time_ms for time_ms in (*jumps, *rows) if time_ms < 1_700_000_000_000]
    known = pl.DataFrame({"at": times})
    icu = duckdb.connect()
    icu.execute("LOAD icu")
    trunc = "day" if unit is Unit.DAY else unit.value
    shown_there = f"make_timestamptz(\"at\" * 1000) AT TIME ZONE '{name}'"
    local = icu.execute(f"SELECT date_trunc('{trunc}', {shown_there})::DATE FROM known").fetchall()
    shape = ZonedSliding(Calendar(1, unit, found))
    ours = known.select(shape.panes(pl.col("at"))).to_series()
    assert known.height == len(local)
    # A slice whose first day a clock leaves out begins with the next one.
    clocks = [found.clock(pane) for pane in ours]
    begun = [datetime.fromisoformat(str(at.date())).date() for at in clocks if at is not None]
    differ = {(day, wanted) for day, (wanted,) in zip(begun, local, strict=True) if day != wanted}
    assert differ == set()
