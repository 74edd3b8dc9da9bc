"""Windows as tables name them."""

from __future__ import annotations

import pytest

from mars.cli.tables import begin_together, window_name

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("end_ms", "together", "name"),
    [
        (60_000, False, "1970-01-01 00:00:00"),
        (60_000, True, "1970-01-01 00:00:00 to 00:01:00"),
        (DAY_MS, True, "1970-01-01 00:00:00 to 1970-01-02 00:00:00"),
        (2**60, True, f"1970-01-01 00:00:00 to {2**60}"),
    ],
)
def test_a_window_is_named_by_its_end_too_where_several_begin_together(
    end_ms: int, together: bool, name: str
) -> None:
    assert window_name(0, end_ms, together=together) == name


def test_windows_begin_together_where_a_start_comes_twice() -> None:
    assert begin_together([0, 10, 10])
    assert not begin_together([0, 10, 20])
