"""Windows by the clock of a zone, while owners change and the store is lost.

The clock is made up, and jumps twice a day by hours, across midnight too: no two days in a row are
equally long.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pytest

from mars.core.types import Lane
from mars.core.windows import Calendar, Unit, WindowShape, Zone, ZonedCumulating, ZonedSliding
from mars.core.windows.moments import HOUR_MS
from tests.simulation.test_cycles import BATCHES, Batch, Place, Run

HOUR_S = 3_600
SEEDS = 12
LAST_HOUR = BATCHES * 5 * 6


def made_up(chance: random.Random) -> Zone:
    """A zone whose clock jumps every few hours."""
    apart = [chance.randrange(5, 20) for _ in range(LAST_HOUR // 5)]
    offsets = [0]
    while len(offsets) <= len(apart):
        offset = chance.choice((-3, -1, 0, 1, 2, 5)) * HOUR_MS
        if offset != offsets[-1]:
            offsets.append(offset)
    times = (hour * HOUR_MS + chance.choice((0, 60_000)) for hour in accumulate(apart))
    return Zone("Made/Up", "1", 0, tuple(zip(times, offsets[1:], strict=True)))


def shapes(zone: Zone) -> list[WindowShape]:
    days, parts = Calendar(1, Unit.DAY, zone), Calendar(6 * HOUR_MS, Unit.PART, zone)
    hours, at_six = Calendar(HOUR_MS, Unit.PART, zone), Calendar(1, Unit.DAY, zone, 6 * HOUR_MS)
    return [
        ZonedSliding(days),
        ZonedSliding(at_six, 3),
        ZonedSliding(parts),
        ZonedSliding(hours),
        ZonedCumulating(parts, days),
        ZonedCumulating(days, Calendar(1, Unit.WEEK, zone)),
    ]


def expected(window: WindowShape, batches: Mapping[Lane, Sequence[Batch]]) -> Counter[Place]:
    """What the windows hold, row by row: of which there are is tested by `properties`."""
    found: Counter[Place] = Counter()
    rows = [row for lane in batches.values() for batch in lane for row in batch]
    for at, key in rows:
        for one in window.windows_of([window.panes(at * 1000)]):
            if key != "last":
                found[one.start_ms // 1000, one.end_ms // 1000, key] += 1
    return found


@pytest.mark.parametrize("shape", range(6))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_window_is_exact_whatever_fails(seed: int, shape: int) -> None:
    chance = random.Random(seed)
    window = shapes(made_up(chance))[shape]
    run = Run(chance, delay_s=15, window=window, scale=HOUR_S)
    run.run()

    assert run.emitted() == expected(window, run.batches)
    assert run.late_partly() == 0


def test_stores_are_lost_and_days_differ_in_length() -> None:
    runs = []
    for seed in range(4):
        chance = random.Random(seed)
        runs.append(Run(chance, delay_s=15, window=shapes(made_up(chance))[0], scale=HOUR_S))
        runs[-1].run()
    assert any(run.lost for run in runs)
    lengths = {end - start for run in runs for start, end, _key in run.emitted()}
    assert {length // HOUR_S for length in lengths} >= {22, 24, 25}
