"""The whole of Mars with tasks whose windows count rows, beside all others, come and go and change.

Runs that fail are run again by hand, with the share of such tasks set as here.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import users
from tests.simulation.world import World

SEEDS = 40
SHARE = 0.9


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "COUNTING_SHARE", SHARE)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    World(seed).run()


def rows_emitted() -> Counter[bool]:
    """By ten runs with such tasks, by whether their windows are complete."""
    rows = Counter[bool]()
    for seed in range(10):
        world = World(seed)
        world.run()
        rows += world.checks.counted()
    return rows


def test_such_tasks_emit_windows() -> None:
    assert rows_emitted()[True] > 100
