"""A leader that stands still with a decision in hand, and goes on when another one has led.

Z looks, decides ────── stands still ──────────────────▶ carries it out: nothing comes of it
                          │ N leads, users go on, the
                          └ store may be lost meanwhile
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.control import MemoryControlLog
from mars.adapters.memory.progress import MemoryProgressLog
from mars.adapters.memory.sink import MemorySink
from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.types import Lane, MemberId, Topic
from mars.process.life import Life, ServiceHealth
from mars.protocol.ports import (
    Applied,
    Assignment,
    Claim,
    ControlLog,
    Coordinator,
    Head,
    Ledger,
    MemberInfo,
    PartialLog,
    Progress,
    Registry,
    Transaction,
)
from reducer.leader import LeaderLoop
from reducer.lookout import LeaderPorts
from tests.contracts.batches import BUCKETS, LANE, TASK, batch
from tests.contracts.redis_servers import Store
from tests.contracts.waiting import eventually
from tests.contracts.zookeeper_servers import Ensemble
from tests.unit.machines.reducing_rows import make_version

SQL = "SELECT k, ts, count(*) AS n FROM flows GROUP BY k, ts WINDOWING 10 s"


class Looks:
    """A life that ends after so many looks of the leader."""

    def __init__(self, count: int) -> None:
        self._left = count

    def wait(self, _timeout_s: float) -> bool:
        self._left -= 1
        return self._left < 0


class Own:
    """A leader's own way to what all share, so that it alone stands still there."""

    def __init__(self, shared: object) -> None:
        self._shared = shared

    def __getattr__(self, name: str) -> object:
        return getattr(self._shared, name)


class Leader:
    """A reducer that stands for election, and its connections."""

    def __init__(self, name: str, here: World) -> None:
        self.log: PartialLog = here.store.open()
        self.registry: Registry = here.ensemble.registry()
        self.coordinator: Coordinator = here.ensemble.coordinator(name)
        self.control = Own(here.control)
        self.coordinator.join(MemberInfo(MemberId(name), "reducer", "host", 1, 0, {}, ()))
        self.loop = LeaderLoop(
            LeaderPorts(
                BUCKETS,
                log=self.log,
                progress=MemoryProgressLog(here.broker),
                control=cast(ControlLog, self.control),
                registry=self.registry,
                coordinator=self.coordinator,
                admin=MemoryTopicAdmin(here.broker),
                services=ServiceHealth("leader"),
            )
        )
        self.coordinator.campaign()
        # Each look runs the loop, which would stand anew, behind the others.
        self.coordinator.campaign = lambda: None  # type: ignore[method-assign]

    def look(self, count: int = 1) -> None:
        """Look, decide and act so often, each time at the tasks as they are by then."""
        for _ in range(count):
            self.loop._known.changed.set()  # a watch tells of changes, but some time after them
            self.loop.run(cast(Life, Looks(1)))

    def forget_partitions(self) -> None:
        """The next look counts the partitions of all topics again."""
        reign = self.loop._reign
        assert reign is not None
        reign._lookout._partitions.clear()

    def stand_still_before(self, call: str, meanwhile: Callable[[], object]) -> None:
        """The first time that this leader makes a call, all the rest happens before it.

        A definition is copied first as it is found: to copy is to copy what has been decided.
        """
        ports = (self.log, self.registry, self.control, self.coordinator)
        port = next(port for port in ports if hasattr(port, call))
        real, waiting = getattr(port, call), [meanwhile]

        def stand_still(*given: Any, **named: Any) -> object:
            copied = call == "put_task" and given[0].current.starts is None
            while waiting and not copied:
                waiting.pop()()
            return real(*given, **named)

        setattr(port, call, stand_still)


class World:
    """Two leaders at most, one task, and everything between."""

    def __init__(self, store: Store, ensemble: Ensemble) -> None:
        self.store, self.ensemble = store, ensemble
        self.broker = MemoryBroker()
        MemoryTopicAdmin(self.broker).ensure_internal(BUCKETS)
        self.broker.create_topic(Topic("flows"), 1)
        self.control = MemoryControlLog()
        self.registry = ensemble.registry()
        self.coordinator = ensemble.coordinator("observer")
        self.log = store.open()
        self._claims = 0

    def version(self, number: int, *, begun: bool = True) -> TaskVersion:
        topic_id = self.broker.topics[Topic("flows")].topic_id
        starts = {LANE: 0} if begun else None
        made = replace(make_version(number), sql=SQL, topic_id=topic_id)
        return replace(made, starts=starts)

    @property
    def definition(self) -> TaskDefinition:
        return self._found()[0]

    def _found(self) -> tuple[TaskDefinition, int]:
        found = self.registry.task(TASK)
        assert found is not None
        return found

    def starts(self) -> Mapping[Lane, int] | None:
        """Where the current version begins."""
        return self.definition.current.starts

    @property
    def head(self) -> Head:
        head = self.log.head([TASK])[TASK]
        assert head is not None
        return head

    def change(self, changed: TaskDefinition) -> None:
        """A user writes the definition."""
        assert self.registry.replace_task(changed, self._found()[1])

    def change_query(self) -> None:
        """A user's new version waits to begin."""
        old = self.definition
        new = self.version(old.current.version + 1, begun=False)
        self.change(replace(old, versions=(*old.versions, new)))

    def make_again(self) -> None:
        """A user makes another task of the name, having deleted the first if it was there."""
        number = self.definition.current.version + 1
        if self.definition.state is not TaskState.DELETED:
            self.change(replace(self.definition, state=TaskState.DELETED))
        self.change(TaskDefinition(TASK, TaskState.RUNNING, (self.version(number),), "", number))

    def take(self, first: int, after: int, version: int = 1) -> None:
        """A mapper brings rows."""
        outcome = self.log.append(TASK, self.head.epoch, version, batch(first, after))
        assert isinstance(outcome, Applied)

    def begin(self) -> Leader:
        """The first leader, and a task that it has set going."""
        self.registry.create_task(TaskDefinition(TASK, TaskState.RUNNING, (self.version(1),)))
        z = Leader("z", self)
        eventually(z.coordinator.leading)
        self.recover(z)
        return z

    def recover(self, leader: Leader) -> None:
        """The leader raises the store's epoch, every bucket is claimed, the task begins there."""
        leader.look(3)
        self.commit(MemorySink(self.broker))
        leader.look(2)

    def commit(self, sink: MemorySink, merged: int = 0, needed: int = 0) -> None:
        """The owner of each bucket claims it, and commits how far it is if it has read rows."""
        assignment = eventually(self.coordinator.assignment)
        assert assignment is not None
        for bucket, owner in assignment.owners.items():
            self._claims += 1
            nonce = f"n{self._claims}"
            claim = Claim(bucket, owner.epoch, assignment.store_epoch, nonce, owner.member)
            claimed = sink.claim(claim)
            if merged:
                record = Progress(
                    task=TASK,
                    version=1,
                    bucket=bucket,
                    assignment_epoch=owner.epoch,
                    store_epoch=assignment.store_epoch,
                    emit=1,
                    closed_ms=None,
                    merged={LANE: merged},
                    needed={LANE: needed},
                    ledger=Ledger(read=3, counted=3),
                )
                sink.commit(Transaction(bucket, (), (), (record,)), claimed.next)

    def next_leader(self) -> Leader:
        """Z's session ends; N leads."""
        self.ensemble.expire("z")
        n = Leader("n", self)
        eventually(n.coordinator.leading)
        return n

    def let_go(self) -> None:
        """Z has a connection again, before it goes on."""
        self.ensemble.heal("z")
        eventually(lambda: self.ensemble.stands("z"))


@pytest.fixture
def here(store: Store, ensemble: Ensemble) -> World:
    return World(store, ensemble)


# ------------------------------------------------------------------------ versions that begin


@pytest.mark.parametrize("call", ["begin_version", "put_task", "replace_task"])
def test_rows_between_two_versions_belong_to_one_of_them(here: World, call: str) -> None:
    """Z's version would begin at 10, where the store stood before it was lost. N's begins at 16."""
    z = here.begin()
    here.take(0, 10)
    here.commit(MemorySink(here.broker), merged=10, needed=4)
    here.change_query()
    led: list[Leader] = []

    def meanwhile() -> None:
        led.append(n := here.next_leader())
        here.store.lose_all()
        here.recover(n)
        assert here.head.offsets == {LANE: 4}
        n.look()
        here.take(4, 10)
        here.take(10, 16)
        here.let_go()

    z.stand_still_before(call, meanwhile)
    z.look()
    assert here.starts() is None
    led[0].look(3)

    assert here.starts() == {LANE: 16}
    assert (here.head.version, here.head.active) == (2, True)
    here.take(16, 20, version=2)
    assert here.control.read().tasks[TASK] == here.definition


def test_a_late_copy_does_not_replace_that_of_a_later_leader(here: World) -> None:
    """N lets the version begin elsewhere before Z copies where it was to begin."""
    z = here.begin()
    here.take(0, 10)
    here.commit(MemorySink(here.broker), merged=10, needed=4)
    here.change_query()

    def meanwhile() -> None:
        n = here.next_leader()
        here.store.lose_all()
        here.recover(n)
        n.look()
        here.take(4, 10)
        here.take(10, 16)
        n.look(3)
        here.let_go()

    z.stand_still_before("put_task", meanwhile)
    z.look()

    assert here.starts() == {LANE: 16}
    assert here.control.read().tasks[TASK] == here.definition


@pytest.mark.parametrize("call", ["begin_version", "put_task", "replace_task"])
def test_a_version_begins_once_where_two_leaders_begin_it(here: World, call: str) -> None:
    z = here.begin()
    here.take(0, 10)
    here.change_query()

    def meanwhile() -> None:
        here.next_leader().look(3)
        here.take(10, 14, version=2)
        here.let_go()

    z.stand_still_before(call, meanwhile)
    z.look()

    assert here.starts() == {LANE: 10}
    assert (here.head.version, here.head.active, here.head.offsets) == (2, True, {LANE: 14})
    assert here.control.read().tasks[TASK] == here.definition


@pytest.mark.parametrize("call", ["put_task", "replace_task"])
def test_a_leader_that_dies_after_the_stores_step_leaves_it_to_the_next(
    here: World, call: str
) -> None:
    z = here.begin()
    here.take(0, 10)
    here.change_query()

    def die() -> None:
        raise KeyboardInterrupt

    z.stand_still_before(call, die)
    with pytest.raises(KeyboardInterrupt):
        z.look()
    assert (here.head.version, here.head.active) == (2, False)
    assert here.starts() is None
    here.next_leader().look(3)

    assert here.starts() == {LANE: 10}
    assert here.head.active


def test_a_late_resume_lets_no_row_come_between_two_versions(here: World) -> None:
    """Z resumes version 1 when N has looked and is about to let version 2 begin."""
    z = here.begin()
    here.take(0, 10)
    here.change(replace(here.definition, state=TaskState.PAUSED))
    z.look()
    here.change(replace(here.definition, state=TaskState.RUNNING))
    led: list[Leader] = []

    def meanwhile() -> None:
        led.append(n := here.next_leader())
        n.look(2)
        here.change(replace(here.definition, state=TaskState.PAUSED))
        n.look()
        here.change_query()
        here.let_go()

    z.stand_still_before("set_active", meanwhile)
    led_before = here.head.active
    z.look()

    assert (led_before, here.head.active) == (False, False)
    led[0].look(3)
    assert here.starts() == here.head.offsets == {LANE: 10}


# -------------------------------------------------------------------------------- other actions


@pytest.mark.parametrize("call", ["put_epochs", "publish"])
def test_a_late_assignment_gives_no_bucket_to_a_reducer_that_has_gone_since(
    here: World, call: str
) -> None:
    """Z would give it what N has left where it was: its owner would be fenced by nobody."""
    z = here.begin()
    name = MemberId("newcomer")
    newcomer = here.ensemble.coordinator(name)
    newcomer.join(MemberInfo(name, "reducer", "host", 1, 0, {}, ()))
    eventually(lambda: name in here.coordinator.members("reducer"))
    published: list[Assignment | None] = []

    def meanwhile() -> None:
        newcomer.close()
        eventually(lambda: name not in here.coordinator.members("reducer"))
        here.next_leader().look(2)
        published.append(here.coordinator.assignment())
        here.let_go()

    z.stand_still_before(call, meanwhile)
    z.look()

    assert [here.coordinator.assignment()] == published
    (given,) = published
    assert given is not None
    assert name not in {owner.member for owner in given.owners.values()}


def test_what_a_later_leader_has_seen_no_late_pause_changes(here: World) -> None:
    """N finds the task going, as it should be by then, and has nothing to do."""
    z = here.begin()
    here.change(replace(here.definition, state=TaskState.PAUSED))

    def meanwhile() -> None:
        n = here.next_leader()
        here.change(replace(here.definition, state=TaskState.RUNNING))
        n.look(2)
        here.let_go()

    z.stand_still_before("set_active", meanwhile)
    z.look()

    assert here.head.active


def test_a_late_drop_leaves_the_task_that_bears_the_name_now(here: World) -> None:
    z = here.begin()
    here.take(0, 10)
    here.change(replace(here.definition, state=TaskState.DELETED))

    def meanwhile() -> None:
        n = here.next_leader()
        here.make_again()
        n.look(3)
        here.take(0, 3, version=2)
        here.let_go()

    z.stand_still_before("drop", meanwhile)
    z.look()

    assert (here.head.version, here.head.offsets) == (2, {LANE: 3})


def test_a_late_failure_does_not_fail_the_task_that_bears_the_name_now(here: World) -> None:
    """Z has seen that the topic was made again; so has the user, who registers the task again."""
    z = here.begin()
    here.broker.topics.pop(Topic("flows"))
    here.broker.create_topic(Topic("flows"), 1)
    z.forget_partitions()

    def meanwhile() -> None:
        n = here.next_leader()
        here.make_again()
        n.look(3)
        here.let_go()

    z.stand_still_before("task", meanwhile)
    z.look()

    assert (here.definition.state, here.definition.first_version) == (TaskState.RUNNING, 2)


def test_lanes_left_to_spark_are_not_given_back_late(here: World) -> None:
    z = here.begin()
    left = {LANE: 90}
    here.change(replace(here.definition, catch_up=left))

    def meanwhile() -> None:
        here.next_leader()
        here.let_go()

    z.stand_still_before("task", meanwhile)
    z.look()

    assert here.definition.catch_up == left


@pytest.mark.parametrize("call", ["put_stream", "create_task", "make_whole"])
def test_a_late_restorer_puts_nothing_into_another_zookeeper(here: World, call: str) -> None:
    """Z brings back what a lost ZooKeeper had known; nothing of that is new any more."""
    copied = TaskDefinition(TASK, TaskState.RUNNING, (here.version(1),))
    here.control.put_task(copied)
    here.control.put_stream(copied.current.stream)
    z = Leader("z", here)
    eventually(z.coordinator.leading)
    present: list[object] = []

    def meanwhile() -> None:
        here.next_leader()
        here.let_go()
        present.append((here.registry.streams(), here.registry.tasks(), here.registry.whole()))

    z.stand_still_before(call, meanwhile)
    z.look()

    assert [(here.registry.streams(), here.registry.tasks(), here.registry.whole())] == present


def test_a_leader_asks_before_each_action_whether_it_leads(here: World) -> None:
    z = here.begin()
    here.registry.put_stream(here.version(1).stream)
    here.change(replace(here.definition, state=TaskState.PAUSED))
    done: list[str] = []
    z.stand_still_before("put_stream", lambda: done.append("put_stream"))
    z.stand_still_before("put_tasks", lambda: here.ensemble.expire("z"))

    z.look()

    assert done == []
    assert here.control.read().streams == {}
    assert here.head.active
