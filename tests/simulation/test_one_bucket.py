"""The whole of Mars with tasks whose groups lie in one bucket, beside and instead of spread ones.

Some queries ask for it, so that a change of query moves groups together, and apart again.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.simulation import users
from tests.simulation.rows import CUMULATING, LANDMARK, TUMBLING, Query
from tests.simulation.users import Keys
from tests.simulation.world import World

SEEDS = 24
SHARE = 0.4
"""Of tasks with sessions, and of tasks that count rows."""

SPREAD = {TUMBLING.sql, CUMULATING.sql, LANDMARK.sql}


@pytest.fixture(autouse=True)
def some_queries_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = vars(Query)["options"].fget

    def options(query: Query) -> Mapping[str, object]:
        return spread(query) if query.sql in SPREAD else {**spread(query), "buckets": "one"}

    monkeypatch.setattr(Query, "options", property(options))
    monkeypatch.setattr(users, "SESSION_SHARE", SHARE)
    monkeypatch.setattr(users, "COUNTING_SHARE", SHARE)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    World(seed).run()


@pytest.mark.parametrize("seed", range(SEEDS // 3))
def test_rows_of_slow_keys_are_counted_whatever_fails(seed: int) -> None:
    World(seed, keys=Keys.OWN).run()
