"""What only a real ZooKeeper can show: zombies, former lives, restarts, credentials, errors."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from mars.adapters.zookeeper.connection import (
    CONNECT_WAIT_S,
    REPLY_TIMEOUT_S,
    ZooKeeperConnection,
    unavailable,
)
from mars.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from mars.adapters.zookeeper.paths import Paths
from mars.adapters.zookeeper.registry import DEFINITION_BYTES_MAX, ZooKeeperRegistry
from mars.core.definitions import TaskState
from mars.core.errors import Rejected, Unavailable
from mars.core.settings import ZooKeeperSettings
from mars.core.types import LeaderEpoch, MemberId, StoreEpoch, StreamName, TaskName
from mars.local.network import free_port
from mars.local.servers import ZooKeeperServer
from mars.protocol.ports import Assignment, MemberInfo, TaskWrite
from tests.contracts.test_registry import definition, stream
from tests.contracts.waiting import READY_WITHIN_S, Changes, eventually, started
from tests.contracts.zookeeper_servers import SESSION_S, Process, ZooKeeperUnderTest

NAMESPACE = "default"


def info(member: str, pid: int = 1) -> MemberInfo:
    return MemberInfo(MemberId(member), "reducer", "host", pid, 0)


def assignment(epoch: LeaderEpoch) -> Assignment:
    return Assignment(epoch, StoreEpoch(1), {})


def lead(coordinator: ZooKeeperCoordinator) -> LeaderEpoch:
    coordinator.campaign()
    epoch = eventually(coordinator.leading)
    assert epoch is not None
    return epoch


@pytest.fixture(scope="module")
def own_server(
    zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServer]:
    """A server that tests may stop and start, and leave running."""
    assert zookeeper_server.running
    server = started(ZooKeeperServer(tmp_path_factory.mktemp("own")))
    yield server
    server.resume()
    server.stop(READY_WITHIN_S)


# --------------------------------------------------------------------------------- zombies


@pytest.mark.integration
def test_leader_that_slept_through_its_expiry_cannot_publish(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    zombie = zookeeper_ensemble.coordinator("zombie")
    heir = zookeeper_ensemble.coordinator("heir")
    old = lead(zombie)
    assert zombie.publish(assignment(old))
    heir.campaign()
    eventually(lambda: zookeeper_ensemble.stands("heir"))

    process = zookeeper_ensemble.process("zombie")
    identity = process.identity()
    process.proxy.stall()
    process.end_session(identity)
    epoch = eventually(heir.leading)
    assert epoch is not None
    assert epoch > old
    assert heir.publish(assignment(epoch))
    try:
        assert not zombie.publish(assignment(old))
    except Unavailable:
        pass  # it was still believed to lead, and the server did not take it
    assert heir.assignment() == assignment(epoch)

    process.proxy.heal()
    eventually(lambda: zookeeper_ensemble.stands("zombie"))
    assert zombie.leading() is None
    assert not zombie.publish(assignment(old))
    assert heir.leading() == epoch
    assert heir.assignment() == assignment(epoch)


@pytest.mark.integration
def test_leader_whose_epoch_was_passed_cannot_publish_although_connected(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    leader = zookeeper_ensemble.coordinator("leader")
    old = lead(leader)
    assert leader.publish(assignment(old))
    paths = Paths(zookeeper_ensemble.namespace)
    outsider = zookeeper_ensemble.process("outsider").connection
    outsider.call(lambda client: client.set_async(paths.leader_epoch, b"%d" % (old + 5)))

    assert not leader.publish(replace(assignment(old), store_epoch=StoreEpoch(9)))
    assert leader.assignment() == assignment(old)
    eventually(lambda: leader.leading() == old + 6)


@pytest.mark.integration
def test_leader_whose_candidacy_was_taken_away_stands_anew(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    leader = zookeeper_ensemble.coordinator("leader")
    old = lead(leader)
    paths = Paths(zookeeper_ensemble.namespace)
    outsider = zookeeper_ensemble.process("outsider").connection
    (name,) = outsider.call(lambda client: client.get_children_async(paths.election))
    outsider.call(lambda client: client.delete_async(paths.candidate(name)))
    eventually(lambda: (leader.leading() or 0) > old)


# ----------------------------------------------------------------------------- former lives


@pytest.mark.integration
def test_restarted_process_takes_the_place_of_its_former_life_at_once(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    former = zookeeper_ensemble.coordinator("reducer-1")
    former.join(info("reducer-1", pid=1))
    old = lead(former)
    zookeeper_ensemble.process("reducer-1").proxy.stall()

    process = Process(zookeeper_ensemble.server)
    try:
        again = ZooKeeperCoordinator(
            process.connection, zookeeper_ensemble.namespace, MemberId("reducer-1")
        )
        began = time.monotonic()
        again.join(info("reducer-1", pid=2))
        assert lead(again) > old
        eventually(lambda: [one.pid for one in again.members("reducer").values()] == [2])
        assert time.monotonic() - began < SESSION_S
        zookeeper_ensemble.process("reducer-1").proxy.heal()
        eventually(lambda: former.leading() is None)
        assert former.members("reducer")[MemberId("reducer-1")].pid == 2
    finally:
        process.close()


@pytest.mark.integration
def test_two_live_processes_of_one_name_do_not_fight_for_ever(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    one = zookeeper_ensemble.coordinator("twin")
    process = Process(zookeeper_ensemble.server)
    two = ZooKeeperCoordinator(process.connection, zookeeper_ensemble.namespace, MemberId("twin"))
    try:
        changes = Changes()
        one.watch(changes)
        for coordinator in (one, two):
            coordinator.join(info("twin"))
            coordinator.campaign()
        eventually(lambda: one.leading() or two.leading())
        looks: list[int] = []

        def quiet() -> bool:
            looks.append(changes.seen())
            return len(looks) > 50 and looks[-50] == looks[-1]

        eventually(quiet)
        assert changes.seen() < 50
        assert (one.leading() is None) != (two.leading() is None)
    finally:
        process.close()


# -------------------------------------------------------------------------------- restarts


@pytest.mark.integration
def test_everything_stands_again_after_the_server_was_killed(own_server: ZooKeeperServer) -> None:
    settings = ZooKeeperSettings(hosts=own_server.hosts, session_timeout_s=SESSION_S)
    connection = ZooKeeperConnection.open(settings)
    coordinator = ZooKeeperCoordinator(connection, NAMESPACE, MemberId("one"))
    registry = ZooKeeperRegistry(connection, NAMESPACE)
    members, tasks = Changes(), Changes()
    coordinator.watch(members)
    registry.watch_tasks(tasks)
    coordinator.join(info("one"))
    old = lead(coordinator)
    registry.create_task(definition())
    assert coordinator.publish(assignment(old))

    own_server.kill()
    eventually(lambda: not coordinator.connected())
    assert coordinator.leading() is None
    late = ZooKeeperConnection.open(settings)
    latecomer = ZooKeeperCoordinator(late, NAMESPACE, MemberId("late"))
    latecomer.join(info("late"))
    assert "zookeeper is not available" in str(late.ping())
    seen = members.seen(), tasks.seen()

    own_server.start()
    eventually(lambda: (coordinator.leading() or 0) > old, READY_WITHIN_S)
    members.more_than(seen[0])
    tasks.more_than(seen[1])
    eventually(lambda: set(coordinator.members("reducer")) == {"one", "late"})
    assert coordinator.assignment() == assignment(old)
    assert set(registry.tasks()) == {"by_sip"}
    assert late.ping() is None
    late.close()
    connection.close()


@pytest.mark.integration
def test_server_that_stands_still_ends_leadership_within_the_session(
    own_server: ZooKeeperServer,
) -> None:
    settings = ZooKeeperSettings(hosts=own_server.hosts, session_timeout_s=2.0)
    connection = ZooKeeperConnection.open(settings)
    coordinator = ZooKeeperCoordinator(connection, NAMESPACE, MemberId("one"))
    lead(coordinator)
    own_server.pause()
    began = time.monotonic()
    with pytest.raises(Unavailable):
        coordinator.assignment()
    assert time.monotonic() - began < CONNECT_WAIT_S + REPLY_TIMEOUT_S + 1
    eventually(lambda: coordinator.leading() is None)
    assert time.monotonic() - began < 4.0
    own_server.resume()
    eventually(coordinator.leading)
    connection.close()


# ---------------------------------------------------------------------------- credentials


@pytest.mark.integration
def test_nodes_belong_to_the_digest_user_alone(zookeeper_ensemble: ZooKeeperUnderTest) -> None:
    hosts = zookeeper_ensemble.server.hosts
    paths = Paths(f"{zookeeper_ensemble.namespace}_digest")
    settings = ZooKeeperSettings(
        hosts=hosts, session_timeout_s=SESSION_S, digest_username="mars", digest_password="secret"
    )
    connection = ZooKeeperConnection.open(settings)
    coordinator = ZooKeeperCoordinator(connection, paths.namespace, MemberId("one"))
    registry = ZooKeeperRegistry(connection, paths.namespace)
    coordinator.buckets(8)
    coordinator.join(info("one"))
    coordinator.publish(assignment(lead(coordinator)))
    registry.create_task(definition())
    registry.put_stream(stream())
    eventually(lambda: coordinator.members("reducer"))
    (candidate,) = connection.call(lambda client: client.get_children_async(paths.election))

    nodes = [paths.root, paths.fixed, paths.tasks, paths.task(TaskName("by_sip")), paths.streams]
    nodes += [paths.stream(StreamName("flows")), paths.members, paths.role("reducer")]
    nodes += [paths.member("reducer", MemberId("one")), paths.election, paths.assignment]
    nodes += [paths.leader_epoch, paths.candidate(candidate)]
    for node in nodes:
        acls, _ = connection.call(partial(KazooClient.get_acls_async, path=node))
        assert [acl.id.scheme for acl in acls] == ["digest"], node
        assert acls[0].id.id.startswith("mars:")
        assert "secret" not in acls[0].id.id

    nobody = ZooKeeperSettings(hosts=hosts, session_timeout_s=SESSION_S)
    for stranger in (nobody, replace(nobody, digest_username="mars", digest_password="wrong")):
        other = ZooKeeperConnection.open(stranger)
        for call in (
            ZooKeeperRegistry(other, paths.namespace).tasks,
            ZooKeeperCoordinator(other, paths.namespace, MemberId("x")).assignment,
        ):
            with pytest.raises(Unavailable, match="digest_username"):
                call()
        other.close()
    coordinator.close()
    connection.close()


# --------------------------------------------------------------------------------- errors


def test_every_error_of_the_client_has_a_sentence() -> None:
    found = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass)]
    ours = [kind for kind in found if issubclass(kind, exceptions.KazooException)]
    assert len(ours) > 30
    for kind in [*ours, KazooTimeoutError, OSError]:
        error = unavailable(kind())
        assert error.service == "zookeeper"
        assert len(error.detail) > 20


CALLS: list[Callable[[ZooKeeperCoordinator, ZooKeeperRegistry], object]] = [
    lambda coordinator, _: coordinator.buckets(8),
    lambda coordinator, _: coordinator.members("reducer"),
    lambda coordinator, _: coordinator.assignment(),
    lambda _, registry: registry.streams(),
    lambda _, registry: registry.stream(StreamName("flows")),
    lambda _, registry: registry.put_stream(stream()),
    lambda _, registry: registry.delete_stream(StreamName("flows")),
    lambda _, registry: registry.tasks(),
    lambda _, registry: registry.task(TaskName("by_sip")),
    lambda _, registry: registry.create_task(definition()),
    lambda _, registry: registry.replace_task(definition(), 0),
]
"""Every call that waits for an answer."""


def test_absent_server_is_unavailable_in_time_whatever_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mars.adapters.zookeeper.connection.CONNECT_WAIT_S", 0.05)
    connection = ZooKeeperConnection.open(ZooKeeperSettings(hosts=f"127.0.0.1:{free_port()}"))
    coordinator = ZooKeeperCoordinator(connection, NAMESPACE, MemberId("one"))
    registry = ZooKeeperRegistry(connection, NAMESPACE)
    for call in CALLS:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no connection"):
            call(coordinator, registry)
        assert time.monotonic() - began < CONNECT_WAIT_S
    coordinator.join(info("one"))
    coordinator.report(info("one"))
    coordinator.campaign()
    assert coordinator.leading() is None
    assert not coordinator.publish(assignment(LeaderEpoch(1)))
    coordinator.close()
    connection.close()


@pytest.mark.integration
def test_calls_wait_for_an_absent_server_only_soon_after_its_loss() -> None:
    connection = ZooKeeperConnection.open(ZooKeeperSettings(hosts=f"127.0.0.1:{free_port()}"))
    registry = ZooKeeperRegistry(connection, NAMESPACE)
    with pytest.raises(Unavailable):
        registry.tasks()  # waits until the loss is CONNECT_WAIT_S old

    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(Unavailable):
            registry.tasks()

    assert time.monotonic() - began < CONNECT_WAIT_S
    connection.close()


def test_definition_that_would_end_the_session_is_rejected(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    registry = zookeeper_ensemble.registry()
    large = replace(definition(), detail="x" * DEFINITION_BYTES_MAX)
    registry.create_task(definition())
    calls: tuple[Callable[[], object], ...] = (
        lambda: registry.create_task(large),
        lambda: registry.replace_task(large, 0),
    )
    for call in calls:
        with pytest.raises(Rejected, match="shorter"):
            call()
    with pytest.raises(Rejected, match="shorter"):
        registry.write_tasks([TaskWrite(definition("new"), None), TaskWrite(large, 0)])
    assert set(registry.tasks()) == {"by_sip"}
    just_fits = replace(definition("large"), detail="x" * (DEFINITION_BYTES_MAX - 2_000))
    assert registry.create_task(just_fits)
    assert registry.tasks()[TaskName("large")] == just_fits


# ---------------------------------------------------------------------------- at one time


@pytest.mark.integration
def test_one_of_many_who_create_or_replace_a_task_at_once_wins(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    registries = [zookeeper_ensemble.registry() for _ in range(4)]

    def all_at_once(call: Callable[[ZooKeeperRegistry], bool]) -> list[bool]:
        answers: list[bool] = []
        barrier = threading.Barrier(len(registries))

        def run(registry: ZooKeeperRegistry) -> None:
            barrier.wait()
            answers.append(call(registry))

        threads = [threading.Thread(target=run, args=(one,)) for one in registries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(answers)

    assert all_at_once(lambda one: one.create_task(definition())) == [False, False, False, True]
    paused = definition(state=TaskState.PAUSED)
    assert all_at_once(lambda one: one.replace_task(paused, 0)) == [False, False, False, True]


@pytest.mark.integration
def test_many_changes_at_once_are_told_in_few_calls_and_none_is_lost(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    ours, theirs = zookeeper_ensemble.registry(), zookeeper_ensemble.registry()
    seen_tasks: list[int] = []
    theirs.watch_tasks(lambda: seen_tasks.append(len(theirs.tasks())))
    for number in range(50):
        ours.create_task(definition(f"task_{number}"))
    eventually(lambda: seen_tasks[-1:] == [50])
    assert len(seen_tasks) <= 52


@pytest.mark.integration
def test_change_made_while_the_connection_was_lost_is_told_after_it(
    zookeeper_ensemble: ZooKeeperUnderTest,
) -> None:
    ours, theirs = zookeeper_ensemble.registry(), zookeeper_ensemble.registry()
    (_, name) = sorted(zookeeper_ensemble.processes)
    states: list[int] = []
    theirs.watch_tasks(lambda: states.append(len(theirs.tasks())))
    eventually(lambda: states == [0])
    zookeeper_ensemble.suspend(name)
    ours.create_task(definition())
    zookeeper_ensemble.heal(name)
    eventually(lambda: states[-1:] == [1])


@pytest.mark.integration
def test_nodes_are_where_the_documents_say(zookeeper_ensemble: ZooKeeperUnderTest) -> None:
    coordinator, registry = zookeeper_ensemble.coordinator("one"), zookeeper_ensemble.registry()
    coordinator.buckets(8)
    coordinator.join(info("one"))
    coordinator.publish(assignment(lead(coordinator)))
    registry.create_task(definition())
    registry.put_stream(stream())
    eventually(lambda: coordinator.members("reducer"))
    root = f"/mars/{zookeeper_ensemble.namespace}"
    connection = zookeeper_ensemble.process("observer").connection
    for path in (
        "streams/flows",
        "tasks/by_sip",
        "members/reducer/one",
        "election",
        "assignment",
        "leader_epoch",
        "namespace",
    ):
        assert connection.call(partial(KazooClient.exists_async, path=f"{root}/{path}"))
    raw, _ = connection.call(lambda client: client.get_async(f"{root}/namespace"))
    assert raw == b'{"buckets":8}'
