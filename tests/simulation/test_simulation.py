"""The whole of Mars on the twins of its servers, while everything goes wrong that may go wrong.

Each seed is another run. One that fails is run again, step by step, by
`python -m tests.simulation.replay SEED`.
"""

from __future__ import annotations

import pytest

from tests.simulation.world import World

SEEDS = 140
"""With those of scopes and assistants 200 and more; `make simulate SEEDS=n` runs others."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    World(seed).run()


def test_equal_seeds_give_equal_runs() -> None:
    told: list[list[str]] = [[], []]
    for lines in told:
        World(3, tell=lines.append).run()

    assert told[0] == told[1]
