"""Buckets that are lent because a backlog fills, and come home, in simulated clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

import mars.protocol.balance.steering
from mars.protocol.balance.placement import SpreadLimits
from mars.protocol.balance.relief import PressLimits
from mars.protocol.leader.machine import LeaderMachine
from mars.protocol.leader.view import PublishAssignment
from mars.protocol.ports import Move
from tests.simulation import cluster, world
from tests.simulation.world import World

SEEDS_MAX = 60
"""About one in five lends anything. Any change of what a reducer asks the store makes it others."""

WANTED = 3

PRESSED = replace(
    cluster.BALANCE,
    cooldown_s=0.5,
    bucket_rest_s=0.5,
    spread=SpreadLimits(imbalance_max=10.0),
    press=PressLimits(high=0.1, low=0.1, use_high=10.0, growth_min=0.0, behind_min_s=0.0),
)
"""A tenth of its room is much for a reducer of the simulation, and CPU use is noise."""

SLOW_ROUND_MS = 600
ROWS = (30, 60)
SMALL_BUDGETS_BYTES = (16_000, 24_000)
RELIEF_PAUSE_S = 1.0


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[Move]:
    """Small rooms and slow reducers; all moves because of pressure that any leader publishes."""
    found: list[Move] = []
    published = LeaderMachine.publishing

    def noted(self: LeaderMachine, decision: PublishAssignment, now_s: float, wall_ms: int) -> None:
        found.extend(move for move in decision.moves if _lends(move) or _gives_back(move))
        published(self, decision, now_s, wall_ms)

    monkeypatch.setattr(LeaderMachine, "publishing", noted)
    monkeypatch.setattr(cluster, "BALANCE", PRESSED)
    monkeypatch.setattr(cluster, "ROUND_MS_MAX", SLOW_ROUND_MS)
    monkeypatch.setattr(world, "ROWS", ROWS)
    monkeypatch.setattr(world, "BUDGETS_BYTES", SMALL_BUDGETS_BYTES)
    monkeypatch.setattr(mars.protocol.balance.steering, "RELIEF_PAUSE_S", RELIEF_PAUSE_S)
    return found


def _lends(move: Move) -> bool:
    return "is under pressure" in move.reason


def _gives_back(move: Move) -> bool:
    return "has room again" in move.reason


def test_a_pressed_reducer_lends_a_bucket_and_gets_it_back_while_everything_fails(
    moves: list[Move],
) -> None:
    came_home = 0
    for seed in range(SEEDS_MAX):
        if came_home >= WANTED:
            break
        moves.clear()
        World(seed).run()
        homes = {(move.bucket, move.source) for move in moves if _lends(move)}
        returned = [move for move in moves if _gives_back(move)]
        assert all((move.bucket, move.target) in homes for move in returned)
        came_home += len(returned)

    assert came_home >= WANTED
