"""The tuple tracker on the simulated cluster: it proves what is counted, raises no false alarm
whatever becomes of its notes, and finds what vanishes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.protocol.tracker.acking import Figures
from tests.simulation.weather import Weather
from tests.simulation.world import World

CALM_SEEDS = range(3)

STORMY_SEEDS = range(1, 11)
"""In all of them something is proven; in that of seed 0 so much is lost that nothing is."""

VANISHING_SEEDS = range(24)
"""In most of them something vanishes."""

VANISH_MS = 1500


def calm(_drawn: Weather) -> Weather:
    return Weather.calm()


def stormy(drawn: Weather) -> Weather:
    """Everything goes wrong but the store itself: notes are lost and doubled, processes die."""
    return replace(drawn, lost=0.02, unanswered=0.02, twice=0.02, emptied=0, flush_ms=0)


def vanishing(_drawn: Weather) -> Weather:
    return replace(Weather.calm(), vanish_ms=VANISH_MS)


def noted(_drawn: Weather) -> Weather:
    return replace(Weather.calm(), vanish_ms=VANISH_MS, vanish_noted=True)


def figures(world: World) -> Figures:
    """The sum over all ackers, those that have died too."""
    ackers = [one.parts["tracker"] for one in world.processes if "tracker" in one.parts]
    each = [acker._acking.figures for acker in ackers]
    return Figures(
        pending=sum(one.pending for one in each),
        proven=sum(one.proven for one in each),
        unproven=sum(one.unproven for one in each),
        lost=sum(one.lost for one in each),
    )


@pytest.mark.parametrize("seed", CALM_SEEDS)
def test_where_nothing_fails_every_batch_is_proven(seed: int) -> None:
    world = World(seed, tune=calm, tracked=True)
    world.run()
    found = figures(world)
    assert (found.unproven, found.lost) == (0, 0)
    assert found.proven > found.pending


@pytest.mark.parametrize("seed", STORMY_SEEDS)
def test_lost_and_doubled_notes_and_dying_ackers_raise_no_false_alarm(seed: int) -> None:
    world = World(seed, tune=stormy, tracked=True)
    world.run()
    assert figures(world).lost == 0
    assert figures(world).proven > 0


def test_entries_that_vanish_are_found_and_named_and_some_results_mended() -> None:
    """Those whose windows are open when it is found, and whose offsets nobody has gone beyond.

    Where the whole store is lost before the deadline nothing is known of what had vanished.
    """
    mended: list[bool] = []
    vanished = 0
    for seed in VANISHING_SEEDS:
        # What is found late is read again when the last rows are in, and need not be: in a run of
        # many lanes one may be left that nobody reads again, and then holds the watermark.
        world = World(seed, tell=lambda _line: None, tune=vanishing, tracked=True, wide=False)
        world.run()
        if not world.vanished:
            continue
        vanished += 1
        mended.append(world.checks.exact())
        named = [(one["task"], bucket, one["seq"]) for one in world.told_lost
                 for bucket in one["buckets"]]  # fmt: skip
        assert set(named) <= set(world.vanished), f"seed {seed}: a false alarm"
        assert named or world.checks.exact() or world.lost_last, f"seed {seed}: not found"
    assert vanished > len(VANISHING_SEEDS) // 2
    assert any(mended)


def test_entries_that_the_store_itself_misses_are_read_again_before_anything_counts() -> None:
    """Without a tracker: `run` finds everything exact, the ledger too."""
    noticed = 0
    for seed in range(6):
        lines: list[str] = []
        World(seed, tell=lines.append, tune=noted, tracked=False).run()
        noticed += any("of the entries that are noted" in line for line in lines)
    assert noticed >= 3


@pytest.mark.parametrize("seed", range(8))
def test_they_are_also_while_everything_else_fails(seed: int) -> None:
    World(seed, tune=lambda drawn: replace(drawn, vanish_ms=VANISH_MS, vanish_noted=True)).run()


def test_a_lost_partial_is_named_with_its_offsets() -> None:
    world = World(1, tell=lambda _line: None, tune=vanishing, tracked=True)
    world.run()
    assert world.told_lost
    for lost in world.told_lost:
        assert lost["certain"]
        assert lost["ranges"]
        assert lost["emitted_without_it"]
