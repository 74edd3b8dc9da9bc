"""Transactions that Kafka does not end in all of their partitions, in simulated clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.ports import Claim, Claimed
from tests.simulation.stepping import SteppingSink
from tests.simulation.weather import Weather
from tests.simulation.world import World

SEEDS = range(40, 48)


def test_nothing_is_lost_or_doubled_while_markers_are_lost_and_everything_else_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored: list[str] = []

    def noted(self: SteppingSink, claim: Claim) -> Claimed:
        claimed = original(self, claim)
        restored.extend(claimed.restored)
        return claimed

    original = SteppingSink.claim
    monkeypatch.setattr(SteppingSink, "claim", noted)

    def losing(weather: Weather) -> Weather:
        return replace(weather, markers_lost=0.1)

    for seed in SEEDS:
        World(seed, tune=losing).run()

    assert len(restored) >= len(SEEDS)
