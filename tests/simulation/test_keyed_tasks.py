"""The whole of Mars with tasks that count the rows of each key, beside all others, come and go and
change.

Runs that fail are run again by hand, with the share of such tasks set as here.
"""

from __future__ import annotations

import pytest

from tests.simulation import users
from tests.simulation.rows import OF_KEYS
from tests.simulation.test_counting_tasks import SEEDS, SHARE, rows_emitted
from tests.simulation.world import World


@pytest.fixture(autouse=True)
def of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "COUNTING", OF_KEYS)
    monkeypatch.setattr(users, "COUNTING_SHARE", SHARE)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    World(seed).run()


@pytest.mark.parametrize("seed", range(SEEDS // 4))
def test_nothing_is_lost_or_doubled_where_assistants_merge(seed: int) -> None:
    World(seed, split=True).run()


def test_such_tasks_emit_windows() -> None:
    rows = rows_emitted()
    assert min(rows[True], rows[False]) > 50
