"""What strikes a running cluster at random; the cluster heals by itself within seconds."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.cluster import MarsCluster
from tests.support.store import Store

Strike = Callable[[MarsCluster, int], None]


def kill_a_mapper(mars: MarsCluster, turn: int) -> None:
    """kill -9; the supervisor starts it again."""
    mars.kill(f"mapper-{turn % 2 + 1}")


def kill_a_reducer(mars: MarsCluster, turn: int) -> None:
    """kill -9; one of the two is the leader."""
    mars.kill(f"reducer-{turn % 2 + 1}")


def flush_the_store(mars: MarsCluster, _turn: int) -> None:
    """FLUSHALL."""
    with Store(mars) as store:
        store.flush()


def kill_the_store(mars: MarsCluster, _turn: int) -> None:
    """kill -9; it comes back empty."""
    mars.kill("redis")


def kill_zookeeper(mars: MarsCluster, _turn: int) -> None:
    """kill -9; it comes back with its data."""
    mars.kill("zookeeper")


def kill_kafka(mars: MarsCluster, turn: int) -> None:
    """kill -9, once: the broker needs longer than a turn to come back."""
    if turn == 1:
        mars.kill("kafka")


def anything(mars: MarsCluster, turn: int) -> None:
    """One of those after which a cluster is whole again within a turn; the same in each run."""
    chance = random.Random(turn)
    chance.choice([kill_a_mapper, kill_a_reducer, flush_the_store, kill_the_store])(mars, turn)
