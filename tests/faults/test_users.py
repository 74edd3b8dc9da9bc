"""Users change their queries while everything else dies: each version of each life stays exact.

A short form of `make faults` (`tests/faults/long.py`): the same users, the same verdict. The
numbers are those of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

import random

import pytest

from tests.faults.arena import Arena
from tests.faults.blows import Scene, change_twice_and_forget, lead_twice
from tests.faults.nemesis import members
from tests.support.cluster import MarsCluster, wait_for
from tests.support.linked import LinkedRole
from tests.support.links import broken
from tests.support.load import LONG_S
from tests.support.queries import Query, any_query
from tests.support.users import Users, UsersLoad
from tests.support.users_check import UsersCheck

pytestmark = pytest.mark.faults

SEED = 1930
USERS = 2
VERSIONS_MIN = 8
"""Of all tasks together: four changes are made by the blows, the rest by the users' scripts."""


def test_19_29_30_users_change_queries_while_things_break(mars: MarsCluster) -> None:
    load = UsersLoad(mars, "f19_users", seconds=LONG_S, rows_per_s=200)
    users = Users(mars, load.name, seed=SEED, users=USERS)
    with LinkedRole(mars, "mapper", "mapper-a") as deaf:
        wait_for("another mapper", lambda: deaf.name in members(mars))
        with load.running(), users.acting():
            scene = Scene(Arena(mars, {deaf.name: deaf}), load, users)
            _strike(scene, deaf)
            load.end()

    check = UsersCheck(users, load)
    check.check()
    load.check()
    check.delete_all()
    assert check.versions >= VERSIONS_MIN, users.deeds


def _strike(scene: Scene, deaf: LinkedRole) -> None:
    chance = random.Random(SEED)
    two = _queries(chance), _queries(chance)
    scene.load.goes_on(1)
    with broken(deaf, "zookeeper", "stall"):
        change_twice_and_forget(scene, 0, two[0], ["mapper-1"], (1.0, chance.uniform(0, 6)))
        scene.load.goes_on(1)
    scene.arena.start_again("redis")
    assert lead_twice(scene, 1, two[1], chance.uniform(0, 0.3), lost=True), "nobody else led"
    scene.load.goes_on(1)


def _queries(chance: random.Random) -> list[Query]:
    return [any_query(chance), any_query(chance)]
