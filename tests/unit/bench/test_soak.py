"""What a long run says of the memory of each process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.environment import environment
from bench.soak import Memory, SoakReport, grids, grown, growth, plot
from bench.tables import MIB

HOUR_S = 3600


def report(**held: Callable[[int], float]) -> SoakReport:
    """Two hours; MiB of each process by the second."""
    samples = [
        Memory(
            second, {name.replace("_", "-"): int(mib(second) * MIB) for name, mib in held.items()}
        )
        for second in range(0, 2 * HOUR_S, 5)
    ]
    return SoakReport(environment(), 6_000, 120, samples)


def test_what_a_process_takes_while_it_is_warming_up_is_no_growth() -> None:
    made = report(mapper_1=lambda second: min(second, 500) / 5)

    found = growth(made, "mapper-1")
    assert found.flat
    assert found.bytes_per_hour == pytest.approx(0, abs=1)
    assert (found.warm_bytes, found.last_bytes, found.peak_bytes) == (100 * MIB,) * 3
    assert grown(made) == []


def test_a_process_that_grows_slowly_is_told_with_how_much_it_grows_in_an_hour() -> None:
    made = report(
        mapper_1=lambda second: 100 + second / HOUR_S * 8,
        reducer_1=lambda second: 100 + second / HOUR_S * 2,
        kafka=lambda second: 300 + second / HOUR_S * 100,
    )

    assert growth(made, "mapper-1").bytes_per_hour == pytest.approx(8 * MIB, rel=0.01)
    assert grown(made) == ["mapper-1"], "Kafka is not ours; 4 MiB are allowed"
    (table,) = grids(made)
    assert [(row[0], row[4], row[5]) for row in table.rows] == [
        ("mapper-1", "+8.0", "no"),
        ("reducer-1", "+2.0", "yes"),
        ("kafka", "+100.0", "no"),
    ]


def test_a_leap_in_the_midst_is_no_line_but_shows(tmp_path: Path) -> None:
    made = report(api=lambda second: 100 + (60 if second > HOUR_S else 0))

    assert grown(made) == ["api"]
    (path,) = plot(made, tmp_path)
    assert path.read_text().startswith("<?xml")
