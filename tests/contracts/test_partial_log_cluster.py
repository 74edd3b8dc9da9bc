"""The partial log on a cluster: nodes that die, slots that move, and one node that is emptied."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from mars.adapters.probe import redis_ready
from mars.adapters.redis.keys import store_key
from mars.adapters.redis.log import RedisPartialLog
from mars.core.errors import Unavailable
from mars.core.settings import RedisSettings, Settings
from mars.core.types import Sequence64, TaskName
from mars.local.servers import ValkeyServer
from mars.protocol.ports import Applied, Batch, IdleLease, Stale
from tests.contracts.batches import (
    BUCKETS,
    EPOCH,
    LANE,
    LEADER,
    TASK,
    batch,
    entries,
    head_of,
    server_of,
    start,
)
from tests.contracts.waiting import eventually
from tests.support.redis_cluster import ClusterNodeServer, ValkeyCluster, valkey_cluster

pytestmark = pytest.mark.integration

MOVES = 6
"""Of the slot, while batches come."""


@pytest.fixture
def cluster(valkey_server: ValkeyServer, tmp_path: Path) -> Iterator[ValkeyCluster]:
    assert valkey_server.running
    with valkey_cluster(tmp_path) as found:
        yield found


@pytest.fixture
def log(cluster: ValkeyCluster) -> Iterator[RedisPartialLog]:
    """With one task, and sealed."""
    found = RedisPartialLog.open(Settings(redis=RedisSettings(url=cluster.url)), BUCKETS)
    assert found.initialise(TASK, EPOCH, start())
    assert found.seal(EPOCH, LEADER, found.identity().run_id)
    yield found
    found.close()


def elsewhere(cluster: ValkeyCluster) -> TaskName:
    """A task on another node than TASK."""
    names = (TaskName(f"task_{number}") for number in range(100))
    return next(name for name in names if cluster.owner(name) is not cluster.owner(TASK))


def appended(log: RedisPartialLog, seq: int) -> bool:
    """Send a batch until it is known to be in; False where it was before this try."""
    sent = batch(seq * 10 - 10, seq * 10)

    def answer() -> Applied | Stale | None:
        try:
            found = log.append(TASK, EPOCH, 1, sent)
        except Unavailable:
            return None
        assert isinstance(found, Applied | Stale)
        return found

    found = eventually(answer)
    assert found in (Applied(Sequence64(seq)), Stale(LANE, seq * 10))
    return isinstance(found, Applied)


def test_another_node_takes_the_place_of_one_that_died_which_is_a_loss(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    other = elsewhere(cluster)
    assert log.initialise(other, EPOCH, start())
    assert appended(log, 1)
    sealed, intact = log.identity(), server_of(log, other)
    before = cluster.owner(TASK)
    eventually(lambda: before.call("WAIT", 1, 1000) == 1)

    before.kill()
    cluster.promoted(before, cluster.slot(TASK))
    assert appended(log, 2)

    found = log.identity()
    assert (found.sealed_run_id, found.sealed_epoch) == (sealed.run_id, EPOCH)
    assert found.run_id != sealed.run_id
    head = head_of(log)
    assert head.begun_on not in {"", head.run_id}
    assert server_of(log, other) == intact
    assert [entry.seq for entry in entries(log)] == [1, 2]


def test_slots_move_while_batches_come_and_each_is_in_once(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    slot, begun_on = cluster.slot(TASK), server_of(log)
    moved = threading.Event()

    def move() -> None:
        for _ in range(MOVES):
            cluster.move(slot, cluster.other_than(cluster.owner_of(slot)))
        moved.set()

    mover = threading.Thread(target=move)
    mover.start()
    seq = 0
    while not moved.is_set():
        seq += 1
        assert appended(log, seq)
    mover.join()

    assert appended(log, seq + 1)
    assert [entry.seq for entry in entries(log, upto=seq + 1)] == list(range(1, seq + 2))
    assert head_of(log).offsets[LANE] == seq * 10 + 10
    assert log.identity().run_id == log.identity().sealed_run_id
    assert head_of(log).begun_on == begun_on


def test_a_slot_on_another_node_is_a_loss_of_its_task(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    """Nothing says that the node was not replaced in between."""
    source = cluster.owner(TASK)
    log.listen([TASK])
    log.wait(0.01)
    cluster.move(cluster.slot(TASK), cluster.other_than(source))

    assert appended(log, 1)
    head = head_of(log)
    assert head.begun_on not in {"", head.run_id}
    # The bell has moved, too.
    seqs = iter(range(2, 10_000))
    eventually(lambda: appended(log, next(seqs)) and log.wait(0.1) == {TASK})


def test_calls_of_a_slot_that_is_being_moved_change_nothing(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    slot, source = cluster.slot(TASK), cluster.owner(TASK)
    target = cluster.other_than(source)
    target.ask("SETSLOT", slot, "IMPORTING", source.id)
    source.ask("SETSLOT", slot, "MIGRATING", target.id)
    keys = source.ask("GETKEYSINSLOT", slot, 100)
    source.call("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", keys[0])

    for _ in range(2):
        with pytest.raises(Unavailable, match="being moved"):
            log.append(TASK, EPOCH, 1, batch(0, 10))
        with pytest.raises(Unavailable, match="being moved"):
            log.head([TASK])
    for node in (target, source):
        node.ask("SETSLOT", slot, "STABLE")


def test_one_node_that_is_emptied_loses_its_tasks_and_leaves_the_seal(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    other = next(
        TaskName(f"task_{number}")
        for number in range(100)
        if cluster.owner(f"task_{number}") is not cluster.owner_of(_slot_of_the_seal())
    )
    assert log.initialise(other, EPOCH, start())
    cluster.owner(other).call("FLUSHALL")

    assert log.identity().sealed_epoch == EPOCH
    assert log.head([other])[other] is None


def _slot_of_the_seal() -> int:
    return key_slot(store_key("default").encode())


def test_a_node_that_does_not_answer_keeps_nobody_from_the_others(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    other = elsewhere(cluster)
    assert log.initialise(other, EPOCH, start())
    cluster.owner(TASK).kill()

    sent = [Batch(name, EPOCH, 1, batch(0, 10)) for name in (TASK, other)]
    silent, taken = log.append_together(sent)

    assert isinstance(silent, Unavailable)
    assert taken == Applied(Sequence64(1))
    with pytest.raises(Unavailable):
        log.append_together(sent[:1])


def test_every_node_must_keep_what_it_holds(cluster: ValkeyCluster, log: RedisPartialLog) -> None:
    assert log.ping() is None
    for node in cluster.nodes[:3]:
        node.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert "noeviction" in str(log.ping())
        node.call("CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_a_cluster_that_is_not_named_as_one_says_what_to_write(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    assert redis_ready(Settings(redis=RedisSettings(url=cluster.url))) is None
    stranger = cluster.other_than(cluster.owner(TASK))
    single = RedisPartialLog.open(Settings(redis=RedisSettings(url=stranger.url)), BUCKETS)
    with pytest.raises(Unavailable, match=r"redis\+cluster://"):
        single.head([TASK])
    with pytest.raises(Unavailable, match=r"redis\+cluster://"):
        single.append(TASK, EPOCH, 1, batch(0, 10))
    single.close()


def test_the_documented_rights_are_enough(cluster: ValkeyCluster) -> None:
    rights = ("~mars:*", "&mars:*", "+@all", "-@admin", "-@dangerous", "+info")
    for node in cluster.nodes:
        node.call("ACL", "SETUSER", "mars", "on", ">secret", *rights)
        node.call("ACL", "SETUSER", "default", "-@all", "+@admin", "+cluster", "+info", "+ping")
    own = RedisSettings(url=cluster.url, username="mars", password="secret")
    log = RedisPartialLog.open(Settings(redis=own), BUCKETS)

    assert log.ping() is None
    assert log.initialise(TASK, EPOCH, start())
    assert log.seal(EPOCH, LEADER, log.identity().run_id)
    assert log.identity().run_id == log.identity().sealed_run_id
    log.listen([TASK])
    seqs = iter(range(1, 10_000))
    eventually(lambda: appended(log, next(seqs)) and log.wait(0.1) == {TASK})
    assert head_of(log).seq == len(entries(log))
    log.close()
    wrong = Settings(redis=RedisSettings(url=cluster.url, username="mars", password="other"))
    assert "redis.password" in str(redis_ready(wrong))


def test_a_server_that_is_none_of_a_cluster_is_told_of(valkey_server: ValkeyServer) -> None:
    url = valkey_server.url.replace("redis://", "redis+cluster://")
    assert "redis.url" in str(redis_ready(Settings(redis=RedisSettings(url=url))))


def test_scripts_that_nodes_forgot_are_sent_again(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    other = elsewhere(cluster)
    assert log.initialise(other, EPOCH, start())
    for number in range(2):
        for node in cluster.nodes[:3]:
            _forget(node)
        heads = log.head([TASK, other])
        assert None not in heads.values()
        for node in cluster.nodes[:3]:
            _forget(node)
        leases = [IdleLease(name, EPOCH, LANE, number * 10, 1) for name in (TASK, other)]
        assert log.renew_idle(leases) == [True, True]
        sent = [
            Batch(name, EPOCH, 1, batch(number * 10, number * 10 + 10)) for name in (TASK, other)
        ]
        assert log.append_together(sent) == [Applied(Sequence64(number + 1))] * 2


def test_leases_of_many_tasks_are_answered_in_order(
    cluster: ValkeyCluster, log: RedisPartialLog
) -> None:
    """Every other one is refused, on whichever node it is."""
    names = [TaskName(f"task_{number}") for number in range(20)]
    for name in names:
        assert log.initialise(name, EPOCH, start())
    leases = [IdleLease(name, EPOCH, LANE, number % 2, 1) for number, name in enumerate(names)]
    assert log.renew_idle(leases) == [number % 2 == 0 for number in range(20)]


def _forget(node: ClusterNodeServer) -> None:
    node.call("SCRIPT", "FLUSH")
