"""The window of a query: WINDOWING, and the calls in GROUP BY."""

from __future__ import annotations

import pytest

from mars.core.errors import SqlError
from mars.core.plan import Plan
from mars.core.types import TaskName
from mars.core.windows import (
    Calendar,
    Cumulating,
    Landmark,
    Sliding,
    Unit,
    WindowShape,
    Zone,
    ZonedCumulating,
    ZonedSliding,
)
from mars.core.windows.moments import HOUR_MS
from mars.process.zones import zone_named
from mars.sql import compile_task, pinned
from tests.unit.sql.compiling import compiled, flows, shown
from tests.unit.sql.test_rejections import refused


def shape(tail: str) -> WindowShape:
    return compiled(f"SELECT count(*) FROM S {tail}").window


@pytest.mark.parametrize(
    ("tail", "size_ms", "slide_ms"),
    [
        ("WINDOWING 60 s", 60_000, 60_000),
        ("windowing 60S", 60_000, 60_000),
        ("WINDOWING 1 min SLIDE 10 s", 60_000, 10_000),
        ("WINDOWING 1.5 h", 5_400_000, 5_400_000),
        ("WINDOWING 2 h slide 7 min", 7_200_000, 420_000),
        ("WINDOWING 1 D", 86_400_000, 86_400_000),
        ("WINDOWING 500 ms", 500, 500),
        ("WINDOWING 366 d SLIDE 1 d", 366 * 86_400_000, 86_400_000),
        ("GROUP BY TUMBLE(timestamp, INTERVAL '60' SECOND)", 60_000, 60_000),
        ("GROUP BY tumble(timestamp, INTERVAL 5 minutes)", 300_000, 300_000),
        ("GROUP BY TUMBLE(timestamp, INTERVAL '1 hour')", 3_600_000, 3_600_000),
        (
            "GROUP BY HOP(timestamp, INTERVAL '10' SECOND, INTERVAL '1' MINUTE)",
            *(60_000, 10_000),
        ),
        ("GROUP BY HOP(timestamp, INTERVAL 500 MILLISECOND, INTERVAL 1 DAY)", 86_400_000, 500),
    ],
)
def test_window_has_size_and_slide(tail: str, size_ms: int, slide_ms: int) -> None:
    if size_ms // slide_ms > 10_000:
        with pytest.raises(SqlError, match="172800 panes"):
            shape(tail)
    else:
        assert shape(tail) == Sliding(size_ms, slide_ms)


@pytest.mark.parametrize(
    ("tail", "wanted"),
    [
        ("WINDOWING 1 d EVERY 1 min", Cumulating(86_400_000, 60_000)),
        ("windowing 1 min every 500ms", Cumulating(60_000, 500)),
        ("WINDOWING 1000 s EVERY 100 ms", Cumulating(1_000_000, 100)),
        (
            "GROUP BY CUMULATE(timestamp, INTERVAL '1' MINUTE, INTERVAL '1' DAY)",
            Cumulating(86_400_000, 60_000),
        ),
        (
            "GROUP BY cumulate(timestamp, INTERVAL 1 HOUR, INTERVAL 2 HOURS)",
            Cumulating(7_200_000, 3_600_000),
        ),
        ("WINDOWING 1 h EVERY 60 min", Sliding(3_600_000, 3_600_000)),
        (
            "GROUP BY CUMULATE(timestamp, INTERVAL 1 DAY, INTERVAL 1 DAY)",
            Sliding(86_400_000, 86_400_000),
        ),
    ],
)
def test_windows_cumulate_step_by_step_unless_one_step_is_all(
    tail: str, wanted: WindowShape
) -> None:
    assert shape(tail) == wanted


def test_windowing_is_a_name_where_a_name_stands() -> None:
    with pytest.raises(SqlError, match="no column 'windowing'"):
        compiled("SELECT windowing, count(*) FROM S GROUP BY windowing WINDOWING 60 s")
    with pytest.raises(SqlError, match="no column 'windowing'"):
        compiled("SELECT count(*) FROM S GROUP BY TUMBLE(timestamp, INTERVAL 1 DAY), windowing")


@pytest.mark.parametrize("text", ["'WINDOWING 5 s'", "'-- WINDOWING 5 s'"])
def test_windowing_in_a_string_is_text(text: str) -> None:
    assert shape(f"WHERE sip = {text} WINDOWING 60 s") == Sliding(60_000, 60_000)


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        ("SELECT count(*) FROM ^S", "the window is missing"),
        ("SELECT count(*) FROM S ^WINDOWING", "a number and one of ms, s, min, h, d"),
        ("SELECT count(*) FROM S WINDOWING ^60", "a number and one of ms, s, min, h, d"),
        ("SELECT count(*) FROM S WINDOWING ^60 fortnights", "a number and one of ms, s, min, h, d"),
        ("SELECT count(*) FROM S WINDOWING ^60 's'", "a number and one of"),
        ("SELECT count(*) FROM S WINDOWING ^1e3 s", "a number and one of"),
        ("SELECT count(*) FROM S WINDOWING ^1.0005 s", "a number and one of"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^SLIDE", "SLIDE takes a number"),
        ("SELECT count(*) FROM S WINDOWING 60 s SLIDE ^x s", "SLIDE takes a number"),
        (
            "SELECT count(*) FROM S WINDOWING 60 s ^10 s",
            "nothing but SLIDE, EVERY, OFFSET, TIMEZONE",
        ),
        (
            "SELECT count(*) FROM S WINDOWING 60 s ^WINDOWING 60 s",
            "nothing but SLIDE, EVERY, OFFSET, TIMEZONE",
        ),
        ("SELECT count(*) FROM S WINDOWING 60 s ^GROUP BY sip", "WINDOWING comes last"),
        ("SELECT count(*) FROM S ^WINDOWING 0 s", "from 100 ms to 366 d"),
        ("SELECT count(*) FROM S ^WINDOWING 367 d", "from 100 ms to 366 d"),
        ("SELECT count(*) FROM S ^WINDOWING 999999999999999 d", "from 100 ms to 366 d"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^SLIDE 0 s", "from 100 ms to 366 d"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^SLIDE 61 s", "longer than the window"),
        ("SELECT count(*) FROM S WINDOWING 1 d ^SLIDE 8599 s", "86400 panes of 1000 ms"),
        ("SELECT count(*) FROM S WINDOWING 1 d ^EVERY 1 week", "depends on a calendar"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^EVERY 50 ms", "step lasts from 100 ms to 366 d"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^EVERY 61 s", "step of 61000 ms is longer than"),
        (
            "SELECT count(*) FROM S WINDOWING 60 s ^EVERY 7 s",
            "60000 ms is not a multiple of the step of 7000 ms",
        ),
        ("SELECT count(*) FROM S WINDOWING 1 d ^EVERY 1 s", "86400 steps"),
        ("SELECT count(*) FROM S WINDOWING 60 s SLIDE 10 s ^EVERY 1 s", "either slide or cumulate"),
        ("SELECT count(*) FROM S WINDOWING 60 s EVERY 10 s ^SLIDE 1 s", "either slide or cumulate"),
        (
            "SELECT count(*) FROM S WINDOWING 60 s EVERY 10 s ^SLIDING 1 s",
            "nothing but SLIDE, EVERY",
        ),
        (
            "SELECT count(*) FROM S GROUP BY CUMULATE(timestamp, ^INTERVAL 7 HOUR, INTERVAL 1 DAY)",
            "not a multiple of the step of 25200000 ms",
        ),
        (
            "SELECT count(*) FROM S GROUP BY CUMULATE(timestamp, ^INTERVAL 1 DAY, INTERVAL 1 HOUR)",
            "longer than the window of 3600000 ms",
        ),
        (
            "SELECT count(*) FROM S GROUP BY ^CUMULATE(timestamp, INTERVAL 1 DAY)",
            "CUMULATE is not written like that",
        ),
        (
            "SELECT count(*) FROM S\nWINDOWING 60 s TIMEZONE ^'Mars/Base'",
            "no time zone 'Mars/Base'",
        ),
        (
            "SELECT count(*) FROM S GROUP BY TUMBLE(timestamp, INTERVAL 1 DAY) ^WINDOWING 1 d",
            "given twice",
        ),
        (
            "SELECT count(*) FROM S GROUP BY TUMBLE(timestamp, INTERVAL 1 DAY), "
            "^TUMBLE(timestamp, INTERVAL 1 DAY)",
            "given twice",
        ),
        ("SELECT count(*) FROM S GROUP BY ^TUMBLE(timestamp)", "is not written like that"),
        ("SELECT count(*) FROM S GROUP BY TUMBLE(^seen, INTERVAL 1 DAY)", "time; write timestamp"),
        ("SELECT count(*) FROM S GROUP BY TUMBLE(^'x', INTERVAL 1 DAY)", "time; write timestamp"),
        ("SELECT count(*) FROM S GROUP BY TUMBLE(timestamp, ^60)", "a duration is needed"),
        (
            "SELECT count(*) FROM S GROUP BY TUMBLE(timestamp, ^INTERVAL 1 DECADE)",
            "another unit up to YEAR",
        ),
        (
            "SELECT count(*) FROM S GROUP BY HOP(timestamp, ^INTERVAL 2 DAY, INTERVAL 1 DAY)",
            "longer than the window",
        ),
        ("SELECT ^TUMBLE(timestamp, INTERVAL 1 DAY) AS w FROM S WINDOWING 1 d", "no function"),
    ],
)
def test_windows_that_cannot_be_are_refused(marked: str, says: str) -> None:
    assert says in refused(marked)


# -------------------------------------------------------------------------------------- zones


@pytest.mark.parametrize(
    ("tail", "wanted"),
    [
        ("WINDOWING 1 d OFFSET 6 h", Sliding(24 * HOUR_MS, 24 * HOUR_MS, 6 * HOUR_MS)),
        ("WINDOWING 1 min SLIDE 20 s OFFSET 5 s", Sliding(60_000, 20_000, 5_000)),
        ("WINDOWING 1 h EVERY 1 min OFFSET 90 s", Cumulating(HOUR_MS, 60_000, 90_000)),
        (
            "GROUP BY HOP(timestamp, INTERVAL 20 SECOND, INTERVAL 1 MINUTE, INTERVAL 5 SECOND)",
            Sliding(60_000, 20_000, 5_000),
        ),
    ],
)
def test_windows_may_begin_later(tail: str, wanted: WindowShape) -> None:
    assert shape(tail) == wanted


def days(count: int = 1, unit: Unit = Unit.DAY, later_ms: int = 0) -> Calendar:
    berlin = zone_named("Europe/Berlin")
    assert berlin is not None
    return Calendar(count, unit, berlin, later_ms)


def parts(length_ms: int, later_ms: int = 0) -> Calendar:
    return days(length_ms, Unit.PART, later_ms)


BERLIN = "TIMEZONE 'Europe/Berlin'"


@pytest.mark.parametrize(
    ("tail", "wanted"),
    [
        (f"WINDOWING 1 d {BERLIN}", ZonedSliding(days())),
        ("WINDOWING 1 d timezone 'europe/berlin'", ZonedSliding(days())),
        (f"WINDOWING 2 weeks {BERLIN}", ZonedSliding(days(2, Unit.WEEK))),
        (f"WINDOWING 1 month {BERLIN}", ZonedSliding(days(1, Unit.MONTH))),
        (f"WINDOWING 1 quarter {BERLIN}", ZonedSliding(days(1, Unit.QUARTER))),
        (f"WINDOWING 1 year {BERLIN}", ZonedSliding(days(1, Unit.YEAR))),
        (f"WINDOWING 6 h {BERLIN}", ZonedSliding(parts(6 * HOUR_MS))),
        (f"WINDOWING 1 d {BERLIN} OFFSET 6 h", ZonedSliding(days(later_ms=6 * HOUR_MS))),
        (f"WINDOWING 1 d OFFSET 6 h {BERLIN}", ZonedSliding(days(later_ms=6 * HOUR_MS))),
        (f"WINDOWING 7 d SLIDE 1 d {BERLIN}", ZonedSliding(days(), 7)),
        (f"WINDOWING 1 week SLIDE 1 d {BERLIN}", ZonedSliding(days(), 7)),
        (f"WINDOWING 1 year SLIDE 1 quarter {BERLIN}", ZonedSliding(days(1, Unit.QUARTER), 4)),
        (f"WINDOWING 1 d SLIDE 6 h {BERLIN}", ZonedSliding(parts(6 * HOUR_MS), 4)),
        (f"WINDOWING 24 h SLIDE 1 h {BERLIN}", ZonedSliding(parts(HOUR_MS), 24)),
        (f"WINDOWING 1 d EVERY 1 h {BERLIN}", ZonedCumulating(parts(HOUR_MS), days())),
        (f"WINDOWING 1 month EVERY 1 d {BERLIN}", ZonedCumulating(days(), days(1, Unit.MONTH))),
        (
            f"WINDOWING 1 d EVERY 4 h OFFSET 6 h {BERLIN}",
            ZonedCumulating(parts(4 * HOUR_MS, 2 * HOUR_MS), days(later_ms=6 * HOUR_MS)),
        ),
        (f"WINDOWING 1 quarter EVERY 3 months {BERLIN}", ZonedSliding(days(1, Unit.QUARTER))),
        (
            "GROUP BY TUMBLE(timestamp, INTERVAL '1' MONTH, 'Europe/Berlin')",
            ZonedSliding(days(1, Unit.MONTH)),
        ),
        (
            "GROUP BY TUMBLE(timestamp, INTERVAL '1' DAY, INTERVAL '6' HOUR, 'Europe/Berlin')",
            ZonedSliding(days(later_ms=6 * HOUR_MS)),
        ),
    ],
)
def test_windows_by_the_clock_of_a_zone(tail: str, wanted: WindowShape) -> None:
    assert shape(tail) == wanted


@pytest.mark.parametrize(
    ("marked", "complaint"),
    [
        ("^WINDOWING 1 month", "depends on a calendar"),
        (f"WINDOWING 1 d SLIDE ^1.5 week {BERLIN}", "SLIDE takes a number"),
        (f"^WINDOWING 18 h {BERLIN}", "must divide a day of 24 h, and 18 h does not"),
        (f"^WINDOWING 24 h {BERLIN}", "must divide a day of 24 h"),
        (f"^WINDOWING 36 h {BERLIN}", "must divide a day of 24 h"),
        (f"^WINDOWING 2 years {BERLIN}", "from 100 ms to 366 d"),
        (f"WINDOWING 7 d ^SLIDE 2 d {BERLIN}", "7 d is not a multiple of 2 d"),
        (f"WINDOWING 1 d ^SLIDE 2 d {BERLIN}", "the slide is longer than the window"),
        (f"WINDOWING 1 month ^SLIDE 1 d {BERLIN}", "windows of 1 month that end every 1 d are not"),
        (f"WINDOWING 1 d ^SLIDE 1 h {BERLIN}", "write 24 h SLIDE 1 h for so many real hours"),
        (f"WINDOWING 1 week ^SLIDE 1 month {BERLIN}", "1 week is not a multiple of 1 month"),
        (
            f"WINDOWING 1 month ^EVERY 1 week {BERLIN}",
            "is not always a whole number of steps of 1 wee",
        ),
        (f"WINDOWING 1 month ^EVERY 2 d {BERLIN}", "is not always a whole number of steps of 2 d"),
        (f"WINDOWING 6 h ^EVERY 1 d {BERLIN}", "is not always a whole number of steps of 1 d"),
        (f"WINDOWING 1 d ^EVERY 7 h {BERLIN}", "must divide a day of 24 h"),
        (f"WINDOWING 1 year ^EVERY 10 min {BERLIN}", "steps, and all its groups would be emitted"),
        (f"WINDOWING 1 month ^OFFSET 1 d {BERLIN}", "the offset 1 d must be shorter than 1 d"),
        ("WINDOWING 1 min SLIDE 20 s ^OFFSET 20 s", "the offset 20 s must be shorter than 20 s"),
        ("WINDOWING 1 min OFFSET 5 s ^OFFSET 6 s", "OFFSET stands here twice; write it once"),
        ("WINDOWING 1 min ^TIMEZONE", "TIMEZONE takes the name of a time zone"),
        ("WINDOWING 1 min TIMEZONE ^UTC", "TIMEZONE takes the name of a time zone"),
        (
            "GROUP BY TUMBLE(timestamp, INTERVAL 1 DAY, ^'Mars/Base')",
            "there is no time zone 'Mars/Base'",
        ),
    ],
)
def test_what_makes_no_sense_in_a_zone_is_refused_at_its_place(marked: str, complaint: str) -> None:
    assert complaint in refused(f"SELECT count(*) FROM S {marked}")


def test_equal_zones_are_one_object_so_that_their_tables_are_found_at_once() -> None:
    berlin = days().zone
    other = Zone(berlin.name, berlin.database, berlin.offset_ms, (*berlin.jumps, (10**15, 0))[:-1])
    sql = f"SELECT count(*) FROM S WINDOWING 1 d {BERLIN}"
    first, second = (
        compile_task(
            sql, task=TaskName("t"), version=1, stream_of=flows, options={}, zone_of=pinned(zone)
        ).window.zone
        for zone in (berlin, other)
    )
    assert first is second


def test_the_begin_by_the_clock_has_its_name_in_results_alone() -> None:
    assert "window_local is the window's own in results" in refused(
        f"SELECT sip AS ^window_local, count(*) FROM S GROUP BY sip WINDOWING 1 d {BERLIN}"
    )
    assert compiled("SELECT sip AS window_local FROM S GROUP BY sip WINDOWING 1 d").keys


# ----------------------------------------------------------------------------------- landmarks

NEW_YEAR_MS = 1_767_225_600_000


def since(tail: str, begin_ms: int | None = None) -> Plan:
    return compile_task(
        f"SELECT sip, count(*) AS n FROM S WHERE ok GROUP BY sip WINDOWING {tail}",
        task=TaskName("t"),
        version=1,
        stream_of=flows,
        options={},
        begin_ms=begin_ms,
    )


@pytest.mark.parametrize(
    ("tail", "wanted"),
    [
        ("LANDMARK '2026-01-01T00:00:00Z' EVERY 10 s", Landmark(NEW_YEAR_MS, 10_000)),
        ("landmark '2026-01-01' every 1 d", Landmark(NEW_YEAR_MS, 24 * HOUR_MS)),
        ("LANDMARK '2026-01-01T01:00:00+01:00' EVERY 1.5 h", Landmark(NEW_YEAR_MS, 5_400_000)),
        ("LANDMARK '2026-01-01T00:00:00.007Z' EVERY 1 min", Landmark(NEW_YEAR_MS + 7, 60_000)),
    ],
)
def test_windows_since_a_landmark(tail: str, wanted: Landmark) -> None:
    assert since(tail).window == since(tail, begin_ms=5).window == wanted


def test_a_landmark_without_a_time_is_when_the_task_begins_down_to_the_step() -> None:
    window = since("LANDMARK EVERY 1 min", NEW_YEAR_MS + 59_999).window
    assert window == since("LANDMARK EVERY 1 min", NEW_YEAR_MS).window
    assert window == Landmark(NEW_YEAR_MS, 60_000)


def test_rows_before_the_landmark_are_filtered_besides_those_that_the_query_leaves_out() -> None:
    plan = since("LANDMARK '2026-01-01' EVERY 10 s")
    assert plan.filter is not None
    assert shown(plan.filter) == f"AND(GREATER_EQUAL(timestamp, {NEW_YEAR_MS}), ok)"
    assert plan.single_bucket


@pytest.mark.parametrize(
    ("marked", "complaint"),
    [
        ("^LANDMARK EVERY 10 s", "a landmark without a time is when a task is registered"),
        ("^LANDMARK", "and then EVERY; write WINDOWING LANDMARK '2026-01-01T00:00:00Z' EVERY 10 s"),
        ("LANDMARK ^10 s", "takes its time as text"),
        ("LANDMARK ^'yesterday' EVERY 10 s", "'yesterday' is not a time in ISO 8601"),
        ("LANDMARK ^'2026-01-01T00:00:00.0005Z' EVERY 10 s", "of whole milliseconds"),
        ("LANDMARK '2026-01-01' ^EVERY", "EVERY takes a step"),
        ("LANDMARK '2026-01-01' EVERY ^ten s", "EVERY takes a step"),
        ("LANDMARK '2026-01-01' EVERY ^1 month", "a number of ms, s, min, h or d"),
        ("LANDMARK '2026-01-01' EVERY ^1 parsec", "a number of ms, s, min, h or d"),
        ("LANDMARK '2026-01-01' ^EVERY 50 ms", "a step lasts from 100 ms to 366 d"),
        ("LANDMARK '2026-01-01' ^SLIDE 10 s", "all begin with it; leave out SLIDE"),
        ("LANDMARK '2026-01-01' EVERY 10 s ^OFFSET 5 s", "a later landmark for an OFFSET"),
        ("LANDMARK '2026-01-01' EVERY 10 s ^TIMEZONE 'UTC'", "leave out TIMEZONE"),
        ("LANDMARK '2026-01-01' EVERY 10 s ^STEP 1 s", "nothing follows the step"),
    ],
)
def test_landmarks_that_cannot_be_are_refused(marked: str, complaint: str) -> None:
    assert complaint in refused(f"SELECT count(*) FROM S WINDOWING {marked}")


def test_a_window_is_not_given_twice_with_a_landmark() -> None:
    assert "given twice" in refused(
        "SELECT count(*) FROM S GROUP BY TUMBLE(timestamp, INTERVAL 1 DAY) "
        "^WINDOWING LANDMARK '2026-01-01' EVERY 1 d"
    )
