"""Assistants at work in simulated clusters: every bucket has some, and everything fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.users import Keys
from tests.simulation.weather import Weather
from tests.simulation.world import World

SEEDS = 12

HARD_SEEDS = range(100, 106)

TRACKED_SEEDS = range(200, 204)

KEY_SEEDS = range(300, 303)


def hard(drawn: Weather) -> Weather:
    return replace(drawn, kill_ms=2_500, freeze_ms=1_500, flush_ms=3_000, twice=0.03, lost=0.03)


def noted(drawn: Weather) -> Weather:
    return replace(drawn, vanish_ms=3_000, vanish_noted=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_while_others_merge(seed: int) -> None:
    World(seed, split=True).run()


@pytest.mark.parametrize("seed", HARD_SEEDS)
def test_nor_while_reducers_die_or_stand_still_and_the_store_is_flushed(seed: int) -> None:
    World(seed, tune=hard, split=True).run()


@pytest.mark.parametrize("seed", TRACKED_SEEDS)
def test_nor_with_the_tracker_and_with_entries_that_vanish(seed: int) -> None:
    World(seed, tune=noted, tracked=True, split=True).run()


@pytest.mark.parametrize("seed", KEY_SEEDS)
@pytest.mark.parametrize("keys", [Keys.OWN, Keys.STRAY])
def test_nor_where_windows_close_key_by_key(seed: int, keys: Keys) -> None:
    world = World(seed, keys=keys, split=True)
    world.run()
    assert world.servers.watch.merged


def test_assistants_have_merged_and_have_come_too_late() -> None:
    merged = refused = 0
    for seed in range(3):
        world = World(seed, split=True)
        world.run()
        merged += world.servers.watch.merged
        refused += sum(
            one.parts["loop"]._assistant._refused
            for one in world.processes
            if one.role == "reducer"
        )

    assert merged > 20
    assert refused > 0
