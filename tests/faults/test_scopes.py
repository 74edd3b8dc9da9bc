"""Windows that close key by key, on real processes that die and a store that forgets."""

from __future__ import annotations

import pytest

from tests.faults.nemesis import flush_the_store, kill_a_mapper, kill_a_reducer
from tests.support.cluster import MarsCluster
from tests.support.keyed import KeyedLoad, is_slow

pytestmark = pytest.mark.faults

STRIKES = (kill_a_reducer, flush_the_store, kill_a_mapper)


def test_rows_of_slow_keys_are_counted_once_while_reducers_die_and_the_store_is_lost(
    mars: MarsCluster,
) -> None:
    with KeyedLoad(mars, "scopes", seconds=25).running() as load:
        strikes = load.every(4, lambda turn: STRIKES[turn % len(STRIKES)](mars, turn))

    assert strikes >= len(STRIKES)
    assert any(is_slow(row) for row in load.rows)
    load.check()
