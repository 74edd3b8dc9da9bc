"""Times and lengths of time in words."""

from __future__ import annotations

import pytest

from mars.core.windows import moment, span


@pytest.mark.parametrize(
    ("length_ms", "said"),
    [
        (0, "0 s"),
        (400, "400 ms"),
        (1_000, "1 s"),
        (9_100, "9.1 s"),
        (59_900, "59.9 s"),
        (300_000, "5 min"),
        (3_588_043, "59.8 min"),
        (5_400_000, "1.5 h"),
        (86_400_000 * 20_000, "20000 d"),
    ],
)
def test_length_of_time_has_its_largest_unit(length_ms: int, said: str) -> None:
    assert span(length_ms) == said


def test_moment_is_in_utc_to_the_second() -> None:
    assert moment(1_700_000_040_999) == "2023-11-14 22:14:00Z"


def test_moment_of_a_time_that_no_calendar_has_is_its_number() -> None:
    assert moment(10**17) == f"{10**17} ms"
