"""The leader's loop, where ZooKeeper has lost what mars.control knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.control import MemoryControlLog
from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.memory.progress import MemoryProgressLog
from mars.adapters.memory.registry import MemoryRegistry
from mars.adapters.memory.sink import MemorySink
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    LeaderEpoch,
    Mark,
    MemberId,
    StoreEpoch,
    TaskName,
    Topic,
)
from mars.process.life import Life, ServiceHealth
from mars.protocol.ports import (
    Claim,
    ControlState,
    Incident,
    IncidentKind,
    MemberInfo,
    Progress,
    Transaction,
)
from reducer.leader import LeaderLoop
from reducer.lookout import MAPPER_LOOKS, SELDOM_LOOKS, LeaderPorts
from tests.unit.machines.reducing_rows import P0, STREAM, make_progress, make_version

MEMBER = MemberId("reducer-1")
BUCKETS = 2
NAME = TaskName("by_k")
SQL = f"SELECT k, count(*) FROM {STREAM.name} GROUP BY k WINDOWING 10 s"
KAFKA_MS, STORE_MS = 800, 1_000
"""What the clocks of Kafka and of the store say."""


class Looks:
    """A life that ends after so many looks of the leader."""

    def __init__(self, count: int) -> None:
        self._left = count

    def wait(self, _timeout_s: float) -> bool:
        """True when all looks are done."""
        self._left -= 1
        return self._left < 0


class World:
    """One reducer, and what it finds."""

    def __init__(self) -> None:
        self.told: list[Incident] = []
        self.broker = MemoryBroker(lambda: KAFKA_MS)
        MemoryTopicAdmin(self.broker).ensure_internal(BUCKETS)
        self.ensemble = MemoryEnsemble()
        self.registry = MemoryRegistry()
        self.control = MemoryControlLog()
        self.coordinator = MemoryCoordinator(self.ensemble, MEMBER)
        self.coordinator.join(MemberInfo(MEMBER, "reducer", "host", 1, 0, {}, ()))
        self.store = MemoryPartialLog(lambda: STORE_MS, buckets=BUCKETS)
        self.leader = LeaderLoop(
            LeaderPorts(
                BUCKETS,
                log=self.store.connect(),
                progress=MemoryProgressLog(self.broker),
                control=self.control,
                registry=self.registry,
                coordinator=self.coordinator,
                admin=MemoryTopicAdmin(self.broker),
                services=ServiceHealth("leader"),
                tell=self.told.append,
            )
        )

    def claim(self, records: Mapping[Bucket, Progress]) -> None:
        """The owners claim their buckets, and commit these records."""
        published = self.coordinator.assignment()
        assert published is not None
        for bucket, owner in published.owners.items():
            sink = MemorySink(self.broker)
            epoch = published.store_epoch
            claimed = sink.claim(Claim(bucket, owner.epoch, epoch, f"nonce {epoch}", MEMBER))
            if bucket in records:
                progress = (records[bucket],)
                sink.commit(Transaction(bucket, (), (), progress), claimed.next)

    def look(self, count: int = 1) -> None:
        """Let the leader look so often."""
        self.leader.run(cast(Life, Looks(count)))

    def wipe(self) -> None:
        """ZooKeeper comes back empty, and the process connects to it."""
        self.ensemble.wipe()
        self.registry.wipe()
        self.ensemble.heal(MEMBER)


def definition(name: str = NAME, state: TaskState = TaskState.RUNNING) -> TaskDefinition:
    return TaskDefinition(TaskName(name), state, (make_version(3),), first_version=3)


def test_tasks_and_streams_come_back_and_version_numbers_do_not_restart() -> None:
    world = World()
    gone = definition("gone", TaskState.DELETED)
    world.registry.create_task(definition())
    world.registry.create_task(gone)
    world.registry.put_stream(STREAM)
    world.look(2)
    world.wipe()
    assert world.registry.tasks() == {}

    world.look(4)

    assert world.registry.tasks() == {NAME: definition(), gone.name: gone}
    assert world.registry.streams() == {STREAM.name: STREAM}
    assert world.registry.whole()


def test_a_version_that_this_release_cannot_compile_keeps_no_leader_from_anything() -> None:
    """Its user has mended it by another one; an API of a newer release may have taken it."""
    world, first = World(), definition()
    refused = replace(first.versions[0], sql="SELECT words of another release")
    second = replace(make_version(4), starts=None)
    world.registry.create_task(replace(first, versions=(refused, second)))
    world.look()
    world.claim({})
    world.look(4)

    _refused, begun = world.registry.tasks()[NAME].versions
    assert begun.starts is not None
    world.store.flush()
    world.look()
    assignment = world.coordinator.assignment()
    assert assignment is not None
    assert assignment.store_epoch == 2


def test_the_number_of_buckets_comes_back() -> None:
    world = World()
    world.look(1)
    world.wipe()
    world.look(4)
    assert world.coordinator.buckets(64) == BUCKETS


def test_epochs_go_on_above_those_in_kafka() -> None:
    world = World()
    world.control.put_epochs(LeaderEpoch(70), StoreEpoch(80), AssignmentEpoch(90))

    world.look(3)

    published = world.coordinator.assignment()
    assert published is not None
    assert published.leader_epoch > 70
    assert published.store_epoch > 80
    assert min(owner.epoch for owner in published.owners.values()) > 90


def test_a_reign_that_does_not_notice_the_loss_goes_on_with_a_higher_epoch() -> None:
    world = World()
    world.look(2)
    before = world.coordinator.assignment()
    world.wipe()
    world.look(4)
    after = world.coordinator.assignment()
    assert before is not None
    assert after is not None
    assert after.leader_epoch > before.leader_epoch
    assert after.store_epoch > before.store_epoch


def test_nothing_is_decided_before_everything_is_back() -> None:
    world = World()
    world.registry.create_task(definition())
    world.look(2)
    world.wipe()
    world.registry.fail_next("create_task")

    world.look(3)
    assert world.coordinator.assignment() is None
    assert not world.registry.whole()

    world.look(1)
    assert world.coordinator.assignment() is not None
    assert world.registry.tasks() == {NAME: definition()}


def test_a_new_namespace_is_whole_with_nothing_in_it() -> None:
    world = World()
    world.look(1)
    assert world.registry.whole()
    assert world.registry.tasks() == {}


def test_what_a_user_does_while_the_first_leader_stands_still_comes_back() -> None:
    world = World()
    world.registry.fail_next("make_whole")
    world.look(1)
    world.registry.create_task(definition())
    world.control.put_task(definition())
    world.wipe()

    world.look(4)
    assert world.registry.whole()
    assert world.registry.tasks() == {NAME: definition()}


def test_what_a_user_does_while_the_leader_reads_what_there_was_comes_back() -> None:
    world = World()
    real = world.control.read

    def read() -> ControlState:
        """It takes so long that a task comes, and ZooKeeper loses it."""
        found = real()
        if not world.registry.tasks() and not found.tasks:
            world.registry.create_task(definition())
            world.control.put_task(definition())
            world.wipe()
        return found

    world.control.read = read  # type: ignore[method-assign]
    world.look(4)
    assert world.registry.whole()
    assert world.registry.tasks() == {NAME: definition()}


def test_what_is_newer_than_the_copy_stays() -> None:
    world = World()
    world.control.put_task(definition())
    paused = definition(state=TaskState.PAUSED)
    world.registry.create_task(paused)
    world.look(2)
    assert world.registry.tasks() == {NAME: paused}
    assert world.control.read().tasks == {NAME: paused}


def test_a_lost_store_goes_on_from_what_the_records_had_come_to_when_they_were_written() -> None:
    world = World()
    world.registry.create_task(definition())
    world.look(2)
    record = make_progress({P0: 5}, NAME, 3, watermark_ms=60_000)
    world.claim({record.bucket: record})
    world.look(2)
    assert world.store.identity().sealed_epoch is not None

    world.store.flush()
    world.look(1)
    world.claim({})
    world.look(2)

    head = world.store.head([NAME])[NAME]
    assert head is not None
    assert head.restored == Mark(60_000, KAFKA_MS)


def test_a_beginning_that_a_leader_of_before_copies_late_does_not_count() -> None:
    world, former = World(), LeaderEpoch(70)
    first, second = make_version(3, sql=SQL), make_version(4, {P0: 10}, sql=SQL)
    changed = replace(definition(), versions=(first, replace(second, starts=None)))
    begun = replace(changed, versions=(first, second))
    world.control.put_epochs(former, StoreEpoch(80), AssignmentEpoch(90))
    world.control.put_task(changed, former)
    world.registry.create_task(changed)
    world.look(3)
    assert world.coordinator.assignment() is not None, "the next one leads"

    world.control.put_task(begun, former)

    assert world.control.read().tasks == {NAME: changed}


def test_a_version_of_a_task_that_was_deleted_since_the_look_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    first, waiting = make_version(3, sql=SQL), replace(make_version(4, sql=SQL), starts=None)
    created = replace(definition(), versions=(first,))
    changed = replace(created, versions=(first, waiting))
    deleted = replace(changed, state=TaskState.DELETED, versions=(waiting,))
    world.registry.create_task(created)
    world.look(2)
    world.claim({})
    world.look(2)
    (_, number) = world.registry.task(NAME) or (None, 0)
    assert world.registry.replace_task(changed, number)
    monkeypatch.setattr(world.registry, "task", lambda _name: (deleted, number + 1))

    world.look(2)

    head = world.store.head([NAME])[NAME]
    assert head is not None
    assert head.version == 3
    assert not caplog.records


def test_a_topic_that_is_gone_at_two_looks_is_told_of_once_for_each_of_its_tasks() -> None:
    world = World()
    world.registry.create_task(definition())
    world.look(SELDOM_LOOKS)
    topic = Topic(definition().current.stream.topic)
    assert world.broker.topics.get(topic) is None
    gone = [one for one in world.told if one.kind is IncidentKind.SOURCE_GONE]
    assert gone == []

    world.look(3 * SELDOM_LOOKS)

    (one,) = [one for one in world.told if one.kind is IncidentKind.SOURCE_GONE]
    assert (one.task, one.what) == (NAME, f"Kafka has no topic {topic} any more.")


def test_a_task_of_the_topic_that_was_made_anew_goes_on_before_the_next_seldom_look() -> None:
    world = World()
    old = anew(world, partitions=3)
    world.registry.create_task(old)
    world.look(2)
    world.broker.delete_topic(Topic(STREAM.topic))
    (_, number) = world.registry.task(NAME) or (None, 0)
    assert world.registry.replace_task(anew(world, partitions=1), number)
    world.claim({})

    world.look(4)

    (found, _) = world.registry.task(NAME) or (old, 0)
    head = world.store.head([NAME])[NAME]
    assert (found.state, found.detail) == (TaskState.RUNNING, "")
    assert head is not None
    assert list(head.offsets) == [P0]


def test_a_topic_is_told_of_each_time_that_it_is_gone() -> None:
    world = World()
    for _time in range(2):
        (_, number) = world.registry.task(NAME) or (None, None)
        changed = anew(world, partitions=1)
        if number is None:
            world.registry.create_task(changed)
        else:
            assert world.registry.replace_task(changed, number)
        world.look(SELDOM_LOOKS)
        world.broker.delete_topic(Topic(STREAM.topic))
        world.look(3 * SELDOM_LOOKS)
    gone = [one.id for one in world.told if one.kind is IncidentKind.SOURCE_GONE]
    assert len(set(gone)) == 2


def anew(world: World, partitions: int) -> TaskDefinition:
    """A task that is registered for a topic made just now."""
    found = world.broker.create_topic(Topic(STREAM.topic), partitions)
    version = replace(make_version(3), topic_id=found.topic_id)
    return replace(definition(), versions=(version,))


def test_a_mapper_that_begins_again_and_again_is_told_of() -> None:
    world = World()
    mapper = MemoryCoordinator(world.ensemble, MemberId("mapper-1"))
    for started_ms in range(1, 8):
        mapper.join(MemberInfo(MemberId("mapper-1"), "mapper", "host", 1, started_ms, {}, ()))
        world.look(MAPPER_LOOKS)
    restarting = [one for one in world.told if one.kind is IncidentKind.RESTARTING]
    assert len(restarting) == 2
    assert "mapper-1 on host" in restarting[0].what
