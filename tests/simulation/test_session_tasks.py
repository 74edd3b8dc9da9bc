"""The whole of Mars with tasks that have sessions, beside all others, come and go and change.

Runs that fail are run again by hand, with the share of such tasks set as here.
"""

from __future__ import annotations

import pytest

from tests.simulation import users
from tests.simulation.world import World

SEEDS = 40
SHARE = 0.9


@pytest.fixture(autouse=True)
def with_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "SESSION_SHARE", SHARE)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    World(seed).run()


def test_such_tasks_emit_sessions() -> None:
    rows = 0
    for seed in range(10):
        world = World(seed)
        world.run()
        rows += world.checks.of_sessions()
    assert rows > 50
