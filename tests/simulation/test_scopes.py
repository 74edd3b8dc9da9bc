"""Windows that close key by key, or bucket by bucket, while everything goes wrong (decision 25)."""

from __future__ import annotations

import pytest

from tests.simulation.users import Keys
from tests.simulation.world import World

SLOW_SEEDS = 40
"""Seeds of runs in which each partition has a slow key: no row of it may be late."""

STRAY_SEEDS = 20
"""Seeds of runs in which rows are late: each is counted, or named by the ledger."""


@pytest.mark.parametrize("seed", range(SLOW_SEEDS))
def test_rows_of_slow_keys_are_counted_whatever_fails(seed: int) -> None:
    World(seed, keys=Keys.OWN).run()


@pytest.mark.parametrize("seed", range(STRAY_SEEDS))
def test_each_row_is_counted_once_or_named_as_late_whatever_fails(seed: int) -> None:
    World(seed, keys=Keys.STRAY).run()


def test_rows_are_late_where_keys_stray() -> None:
    worlds = [World(seed, keys=Keys.STRAY) for seed in range(3)]
    for world in worlds:
        world.run()

    assert sum(world.checks.late_rows() for world in worlds) > 0
