"""Transactions that Kafka does not end in all of their partitions, in simulated clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.protocol.ports import Claim, Claimed
from tests.simulation.stepping import SteppingSink
from tests.simulation.weather import Weather
from tests.simulation.world import World

SEEDS = range(40, 44)
MARKERS_LOST = 0.3


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled_while_markers_are_lost_and_everything_else_fails(
    seed: int,
) -> None:
    World(seed, tune=lambda drawn: replace(drawn, markers_lost=MARKERS_LOST)).run()


def test_what_lost_markers_hide_is_written_again_and_nothing_is_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored: list[str] = []

    def noted(self: SteppingSink, claim: Claim) -> Claimed:
        claimed = original(self, claim)
        restored.extend(claimed.restored)
        return claimed

    original = SteppingSink.claim
    monkeypatch.setattr(SteppingSink, "claim", noted)

    def losing(_drawn: Weather) -> Weather:
        return replace(Weather.calm(), markers_lost=MARKERS_LOST, kill_ms=3_000)

    for seed in SEEDS:
        World(seed, tune=losing).run()

    assert len(restored) >= len(SEEDS)
