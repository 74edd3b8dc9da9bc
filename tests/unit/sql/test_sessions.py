"""Sessions, as queries write them, and what does not go with them."""

from __future__ import annotations

import pytest

from mars.core.errors import Rejected, SqlError
from mars.core.windows import Session
from tests.unit.sql.compiling import compiled

COUNT = "SELECT sip, count(*) FROM S GROUP BY sip"
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
HALF_AN_HOUR = "INTERVAL '30' MINUTE"
TABLE = "SELECT sip, count(*) AS n FROM TABLE(SESSION({}, DESCRIPTOR(timestamp), {}))"
GROUPED = "GROUP BY sip, window_start, window_end"


@pytest.mark.parametrize(
    ("sql", "shape"),
    [
        (f"{COUNT} WINDOWING SESSION 30 min", Session(30 * MINUTE_MS, DAY_MS)),
        (f"{COUNT} windowing session 30 min max 4 h", Session(30 * MINUTE_MS, 4 * HOUR_MS)),
        (f"{COUNT} WINDOWING SESSION 10 s", Session(10_000, 4 * HOUR_MS)),
        (f"{COUNT} WINDOWING SESSION 100 ms", Session(100, MINUTE_MS)),
        (f"{COUNT}, SESSION(timestamp, {HALF_AN_HOUR})", Session(30 * MINUTE_MS, DAY_MS)),
        (
            f"{COUNT}, session(timestamp, {HALF_AN_HOUR}, INTERVAL '4' HOUR)",
            Session(30 * MINUTE_MS, 4 * HOUR_MS),
        ),
        (
            f"{TABLE.format('TABLE S PARTITION BY sip', HALF_AN_HOUR)} {GROUPED}",
            Session(30 * MINUTE_MS, DAY_MS),
        ),
        (
            f"{TABLE.format('TABLE S PARTITION BY (S.sip)', HALF_AN_HOUR)} {GROUPED}",
            Session(30 * MINUTE_MS, DAY_MS),
        ),
        (
            f"{TABLE.format('DATA => TABLE S PARTITION BY (sip)', HALF_AN_HOUR)} {GROUPED}".replace(
                "DESCRIPTOR", "TIMECOL => DESCRIPTOR"
            ).replace("INTERVAL", "GAP => INTERVAL"),
            Session(30 * MINUTE_MS, DAY_MS),
        ),
        (
            f"SELECT count(*) AS n FROM TABLE(SESSION(TABLE S, DESCRIPTOR(timestamp), "
            f"{HALF_AN_HOUR})) GROUP BY window_start, window_end",
            Session(30 * MINUTE_MS, DAY_MS),
        ),
    ],
)
def test_sessions_have_a_gap_and_a_longest_length(sql: str, shape: Session) -> None:
    plan = compiled(sql)

    assert plan.window == shape
    assert plan.has_sessions
    assert [column.name for column in plan.window_columns] == ["window_start", "window_end"]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (f"{COUNT} WINDOWING SESSION", "SESSION takes a number and ms, s, min, h or d"),
        (f"{COUNT} WINDOWING SESSION 30 min MAX", "MAX takes a number"),
        (f"{COUNT} WINDOWING SESSION 30 min SLIDE 1 min", "sessions do not overlap"),
        (f"{COUNT} WINDOWING SESSION 30 min EVERY 1 min", "sessions do not cumulate"),
        (f"{COUNT} WINDOWING SESSION 30 min TIMEZONE 'UTC'", "sessions go by no clock"),
        (f"{COUNT} WINDOWING SESSION 30 min OFFSET 1 min", "begins with its first row"),
        (f"{COUNT} WINDOWING SESSION 1 month MAX 1 month", "depends on a calendar"),
        (f"{COUNT} WINDOWING SESSION 2 d", "must be said how long a session is at most"),
        (f"{COUNT} WINDOWING SESSION 2 d MAX 8 d", "itself at most 7 d; write MAX 7 d"),
        (
            f"{COUNT} WINDOWING SESSION 30 min MAX 1 min",
            "itself at least the gap, 30 min; write MAX 30 min",
        ),
        (f"{COUNT} WINDOWING SESSION 1 s MAX 4 h", "into 57600 slices, .*; write MAX 2500 s, or"),
        (f"{COUNT} WINDOWING SESSION 10 s MAX 999983 ms", "write MAX 990 s, or a longer gap"),
        (f"{COUNT} WINDOWING SESSION 50021 ms MAX 50021 ms", "write MAX 62525 ms, or"),
        (f"{COUNT} WINDOWING SESSION 101 ms MAX 4 h", "write MAX 250 s, or a longer gap"),
        (f"{COUNT} WINDOWING SESSION 1 ms", "a gap lasts from 100 ms"),
        (
            f"{TABLE.format('TABLE S', HALF_AN_HOUR)} {GROUPED}",
            "PARTITION BY names the same columns as GROUP BY does",
        ),
        (
            f"{TABLE.format('TABLE S PARTITION BY', HALF_AN_HOUR)} {GROUPED}",
            "PARTITION BY names columns of the table",
        ),
        (
            f"{TABLE.format('TABLE S PARTITION BY T.sip', HALF_AN_HOUR)} {GROUPED}",
            "PARTITION BY names columns of the table",
        ),
        (
            f"{TABLE.format('TABLE S PARTITION BY upper(sip)', HALF_AN_HOUR)} {GROUPED}",
            "PARTITION BY names columns of the table",
        ),
        (
            f"{TABLE.format('TABLE S PARTITION BY sip, type', HALF_AN_HOUR)} {GROUPED}",
            r"several columns stand in brackets: PARTITION BY \(sip, type\)",
        ),
        (
            f"{TABLE.format('TABLE S PARTITION BY sip ORDER BY sip', HALF_AN_HOUR)} {GROUPED}",
            "leave out ORDER BY",
        ),
        (
            f"{TABLE.format('TABLE S ORDER BY timestamp', HALF_AN_HOUR)} {GROUPED}",
            "leave out ORDER",
        ),
        (f"{COUNT}, SESSION(timestamp, {HALF_AN_HOUR}, 'UTC')", "SESSION is not written like"),
    ],
)
def test_what_cannot_be_is_refused(sql: str, says: str) -> None:
    with pytest.raises(SqlError, match=says):
        compiled(sql)


@pytest.mark.parametrize(
    ("rest", "options", "says"),
    [
        ("", {"late": "revise", "lateness": "1h"}, "no revision can undo a row"),
        ("", {"max_keys": 9}, "each session is a window of one group"),
        ("", {"watermark": "key", "key_lag": "1h"}, "each group has sessions of its own"),
        ("", {"emit": "changed"}, "windows that begin together"),
        ("ORDER BY count DESC LIMIT 3", {}, "ORDER BY and LIMIT"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    rest: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(Rejected, match=says):
        compiled(f"{COUNT} {rest} WINDOWING SESSION 30 min", **options)
