"""The window of a query: WINDOWING, and the calls in GROUP BY."""

from __future__ import annotations

import pytest

from mars.core.errors import SqlError
from mars.core.windows import Cumulating, Sliding, WindowShape
from tests.unit.sql.compiling import compiled
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
    assert shape(f"WHERE sip = {text} WINDOWING 60 s").size_ms == 60_000


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        ("SELECT count(*) FROM ^S", "the window is missing"),
        ("SELECT count(*) FROM S ^WINDOWING", "a number and one of s, min, h, d"),
        ("SELECT count(*) FROM S WINDOWING ^60", "a number and one of s, min, h, d"),
        ("SELECT count(*) FROM S WINDOWING ^60 weeks", "a number and one of s, min, h, d"),
        ("SELECT count(*) FROM S WINDOWING ^60 's'", "a number and one of"),
        ("SELECT count(*) FROM S WINDOWING ^1e3 s", "a number and one of"),
        ("SELECT count(*) FROM S WINDOWING ^1.0005 s", "a number and one of"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^SLIDE", "SLIDE takes a number"),
        ("SELECT count(*) FROM S WINDOWING 60 s SLIDE ^x s", "SLIDE takes a number"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^10 s", "nothing but SLIDE or EVERY may follow"),
        (
            "SELECT count(*) FROM S WINDOWING 60 s ^WINDOWING 60 s",
            "nothing but SLIDE or EVERY may follow",
        ),
        ("SELECT count(*) FROM S WINDOWING 60 s ^GROUP BY sip", "WINDOWING comes last"),
        ("SELECT count(*) FROM S ^WINDOWING 0 s", "from 100 ms to 366 d"),
        ("SELECT count(*) FROM S ^WINDOWING 367 d", "from 100 ms to 366 d"),
        ("SELECT count(*) FROM S ^WINDOWING 999999999999999 d", "from 100 ms to 366 d"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^SLIDE 0 s", "from 100 ms to 366 d"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^SLIDE 61 s", "longer than the window"),
        ("SELECT count(*) FROM S WINDOWING 1 d ^SLIDE 8599 s", "86400 panes of 1000 ms"),
        ("SELECT count(*) FROM S WINDOWING 1 d EVERY ^1 week", "EVERY takes a number"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^EVERY 50 ms", "step has from 100 ms to 366 d"),
        ("SELECT count(*) FROM S WINDOWING 60 s ^EVERY 61 s", "step of 61000 ms is longer than"),
        (
            "SELECT count(*) FROM S WINDOWING 60 s ^EVERY 7 s",
            "60000 ms is not a multiple of the step of 7000 ms",
        ),
        ("SELECT count(*) FROM S WINDOWING 1 d ^EVERY 1 s", "86400 steps"),
        ("SELECT count(*) FROM S WINDOWING 60 s SLIDE 10 s ^EVERY 1 s", "either slide or cumulate"),
        ("SELECT count(*) FROM S WINDOWING 60 s EVERY 10 s ^SLIDE 1 s", "either slide or cumulate"),
        ("SELECT count(*) FROM S WINDOWING 60 s EVERY 10 s ^OFFSET 1 s", "nothing but SLIDE or"),
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
        ("SELECT count(*) FROM S WINDOWING ^LANDMARK EVERY 10 s", "LANDMARK is not supported yet"),
        ("SELECT count(*) FROM S\nWINDOWING 60 s ^TIMEZONE 'UTC'", "TIMEZONE is not supported yet"),
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
            "SELECT count(*) FROM S GROUP BY TUMBLE(timestamp, ^INTERVAL 1 MONTH)",
            "another unit up to DAY",
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
