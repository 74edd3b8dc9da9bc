"""Buckets that move because of load, in simulated clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mars.core.types import MemberId
from mars.protocol.balance.strategies import Strategy
from mars.protocol.leader.machine import LeaderMachine
from mars.protocol.leader.view import PublishAssignment, View
from mars.protocol.ports import Balance, Move
from reducer.loop import ReducerLoop
from tests.simulation import cluster
from tests.simulation.weather import Weather
from tests.simulation.world import World

Published = Callable[[LeaderMachine, PublishAssignment, float, int], None]


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[Move]:
    """All moves that any leader publishes."""
    found: list[Move] = []
    published: Published = LeaderMachine.publishing

    def noted(self: LeaderMachine, decision: PublishAssignment, now_s: float, wall_ms: int) -> None:
        found.extend(decision.moves)
        published(self, decision, now_s, wall_ms)

    monkeypatch.setattr(LeaderMachine, "publishing", noted)
    return found


def test_buckets_move_because_of_load_while_everything_fails(moves: list[Move]) -> None:
    for seed in range(24, 30):
        World(seed).run()

    assert sum("use is uneven" in move.reason for move in moves) >= 3


def test_buckets_move_because_of_load_while_reducers_are_killed_and_the_store_is_flushed(
    moves: list[Move],
) -> None:
    def hard(weather: Weather) -> Weather:
        return replace(weather, kill_ms=2_500, flush_ms=2_500)

    for seed in (18, 20, 21, 23):
        World(seed, tune=hard).run()

    assert sum("use is uneven" in move.reason for move in moves) >= 2
    assert sum("is gone" in move.reason for move in moves) >= 2


def test_reducers_that_are_asked_to_stop_are_emptied_and_nothing_is_lost(
    moves: list[Move],
) -> None:
    def leaving(weather: Weather) -> Weather:
        return replace(weather, leave_ms=2_500)

    for seed in range(30, 36):
        World(seed, tune=leaving).run()

    assert sum("is leaving" in move.reason for move in moves) >= 4


def test_uneven_machines_are_weighed_while_everything_fails_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every second reducer may use a quarter of what the others may; the strategy changes by it."""
    chosen: set[str] = set()
    balance = LeaderMachine.balance

    def noted(self: LeaderMachine, view: View) -> Balance:
        found = balance(self, view)
        chosen.add(found.strategy)
        return found

    def of_uneven_machines(member: MemberId, *parts: Any, **ports: Any) -> ReducerLoop:
        small = int(member.rpartition("-")[2]) % 2 == 0
        return ReducerLoop(member, *parts, **ports, capacity=0.25 if small else 1.0)

    monkeypatch.setattr(LeaderMachine, "balance", noted)
    monkeypatch.setattr(cluster, "ReducerLoop", of_uneven_machines)

    for seed in range(40, 43):
        World(seed).run()

    assert {Strategy.HASH, Strategy.WEIGHTED} <= chosen
