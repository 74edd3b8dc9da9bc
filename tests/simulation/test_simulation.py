"""The whole of Mars on the twins of its servers, while everything goes wrong that may go wrong.

Each seed is another run. One that fails is run again, step by step, by
`python -m tests.simulation.replay SEED`.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest

from mars.adapters.memory import partial_log, store
from mars.core.types import Mapped, lane_group
from tests.simulation.world import World

SEEDS = 140
"""With those of scopes and assistants 200 and more; `make simulate SEEDS=n` runs others."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    World(seed).run()


def test_mappers_append_batches_of_several_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the usual weather; the store's twin counts how many lanes each batch has."""
    lanes: Counter[int] = Counter()

    def write(found: object, version: int, mapped: Mapped, *given: object) -> None:
        lanes[len({lane_group(part.lane) for part in mapped.ranges})] += 1
        store.write(found, version, mapped, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(partial_log, "write", write)
    for seed in range(10):
        World(seed).run()

    several = sum(count for number, count in lanes.items() if number > 1)
    assert several > sum(lanes.values()) / 20
    assert max(lanes) > 2


def test_equal_seeds_give_equal_runs() -> None:
    told: list[list[str]] = [[], []]
    for lines in told:
        World(3, tell=lines.append).run()

    assert told[0] == told[1]


def test_runs_go_by_no_clock_but_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> float:
        raise AssertionError("a run asks for the time of the machine")

    for clock in ("monotonic", "perf_counter", "thread_time", "process_time"):
        monkeypatch.setattr(time, clock, asked)

    World(3).run()
