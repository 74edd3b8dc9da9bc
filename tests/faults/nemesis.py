"""What strikes a running cluster at random; the cluster heals by itself within seconds."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.cluster import MarsCluster, wait_for
from tests.support.linked import LinkedRole
from tests.support.store import Store

Strike = Callable[[MarsCluster, int], None]

CLAIMS_MAX = 8
"""Of one bucket while a reducer loses ZooKeeper once: a ping-pong makes dozens."""


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


def members(mars: MarsCluster) -> set[str]:
    """Who is there."""
    return {member.id for member in mars.client.cluster().members}


def wait_until_missed(mars: MarsCluster, name: str) -> None:
    """A process has been cut off or has stood still for longer than its session."""
    wait_for(f"{name} to be missed", lambda: name not in members(mars))


def come_or_go(role: LinkedRole) -> None:
    """Start it, or ask it to leave."""
    if role.running:
        role.stop(10)
    else:
        role.start()


def let_buckets_move(mars: MarsCluster, guest: LinkedRole) -> None:
    """Start a reducer; once it has got buckets, ask it to leave."""
    here = [member for member in mars.client.cluster().members if member.id == guest.name]
    if not guest.running or any(member.buckets for member in here):
        come_or_go(guest)


def anything(mars: MarsCluster, turn: int) -> None:
    """One of those after which a cluster is whole again within a turn; the same in each run."""
    chance = random.Random(turn)
    chance.choice([kill_a_mapper, kill_a_reducer, flush_the_store, kill_the_store])(mars, turn)
