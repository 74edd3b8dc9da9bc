from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.errors import MarsError
from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import (
    AssignmentEpoch,
    LeaderEpoch,
    StoreEpoch,
    StreamName,
    TaskName,
    live_lane,
)
from mars.protocol.ports import ControlState
from tests.contracts.kafka_servers import BUCKETS, Cluster, KafkaCluster


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With the topics of Mars in it."""
    cluster.admin().ensure_internal(BUCKETS)
    return cluster


def definition(name: str, state: TaskState = TaskState.RUNNING) -> TaskDefinition:
    stream = Stream(
        name=StreamName("flows"),
        topic="flows",
        format=Format.JSON,
        fields=(Field("timestamp", FieldType.TIMESTAMP_MS),),
        event_time="timestamp",
    )
    version = TaskVersion(
        version=1,
        sql="SELECT count(*) FROM flows WINDOWING 60 s",
        options={"delay": "1s"},
        stream=stream,
        topic_id="id-1",
        created_ms=1_000,
        starts={live_lane(0): 17},
        complete_from_ms=60_000,
    )
    return TaskDefinition(TaskName(name), state, (version,))


def put_epochs(cluster: Cluster, leader: int, store: int, assignment: int) -> None:
    cluster.control().put_epochs(
        LeaderEpoch(leader), StoreEpoch(store), AssignmentEpoch(assignment)
    )


def test_a_fresh_topic_says_nothing(cluster: Cluster) -> None:
    assert cluster.control().read() == ControlState()


def test_the_newest_definition_of_each_task_and_the_epochs_come_back(cluster: Cluster) -> None:
    control = cluster.control()
    control.put_task(definition("a"))
    control.put_task(definition("b"))
    put_epochs(cluster, 1, 2, 3)
    control.put_task(definition("a", TaskState.DELETED))
    put_epochs(cluster, 4, 5, 6)
    newest = {
        TaskName("a"): definition("a", TaskState.DELETED),
        TaskName("b"): definition("b"),
    }
    assert cluster.control().read() == ControlState(
        newest, LeaderEpoch(4), StoreEpoch(5), AssignmentEpoch(6)
    )


def test_many_copies_are_put_at_once(cluster: Cluster) -> None:
    control = cluster.control()
    many = [definition(f"t{number}") for number in range(300)]
    control.put_task(definition("t7", TaskState.PAUSED), LeaderEpoch(5))
    control.put_tasks(many, LeaderEpoch(6))
    assert cluster.control().read().tasks == {one.name: one for one in many}
    control.put_tasks([])


def test_a_task_deleted_for_good_is_not_brought_back_by_a_late_copy(cluster: Cluster) -> None:
    control = cluster.control()
    gone = definition("a", TaskState.DELETED)
    control.put_deleted(gone)
    control.put_task(definition("a"))
    assert control.read().tasks == {gone.name: gone}


def test_a_name_that_is_given_again_is_a_task_again(cluster: Cluster) -> None:
    control = cluster.control()
    control.put_deleted(definition("a", TaskState.DELETED))
    again = definition("a")
    again = replace(again, versions=(replace(again.current, version=2),), first_version=2)
    control.put_task(again)
    assert control.read().tasks == {again.name: again}


def waiting(name: str) -> TaskDefinition:
    """A second version has not begun."""
    one = definition(name)
    return replace(one, versions=(one.current, replace(one.current, version=2, starts=None)))


def begun(name: str, at: int) -> TaskDefinition:
    """It has begun."""
    one, two = waiting(name).versions
    return replace(waiting(name), versions=(one, replace(two, starts={live_lane(0): at})))


def test_a_late_copy_of_a_former_leader_does_not_replace_a_newer_ones(cluster: Cluster) -> None:
    former, newer = cluster.control(), cluster.control()
    newer.put_task(begun("a", 16), LeaderEpoch(5))
    former.put_task(begun("a", 10), LeaderEpoch(4))
    assert cluster.control().read().tasks == {TaskName("a"): begun("a", 16)}


def test_a_late_copy_of_a_change_does_not_let_a_version_wait_that_has_begun(
    cluster: Cluster,
) -> None:
    control = cluster.control()
    control.put_task(begun("a", 16), LeaderEpoch(5))
    control.put_task(waiting("a"))
    assert control.read().tasks == {TaskName("a"): begun("a", 16)}
    paused = replace(begun("a", 16), state=TaskState.PAUSED)
    control.put_task(paused)
    assert control.read().tasks == {TaskName("a"): paused}


def test_a_leader_takes_back_what_it_or_one_before_it_copied_too_early(cluster: Cluster) -> None:
    control = cluster.control()
    control.put_task(waiting("a"))
    control.put_task(begun("a", 10), LeaderEpoch(4))
    control.put_task(waiting("a"), LeaderEpoch(4))
    assert control.read().tasks == {TaskName("a"): waiting("a")}
    control.put_task(begun("a", 10), LeaderEpoch(4))
    assert control.read().tasks == {TaskName("a"): begun("a", 10)}
    control.put_task(waiting("a"), LeaderEpoch(5))
    assert cluster.control().read().tasks == {TaskName("a"): waiting("a")}


def test_leader_epochs_go_on_above_those_of_copies(cluster: Cluster) -> None:
    put_epochs(cluster, 4, 5, 6)
    cluster.control().put_task(definition("a"), LeaderEpoch(9))
    assert cluster.control().read().leader_epoch == 9


@pytest.mark.integration
def test_each_leaders_copy_has_a_key_of_its_own_that_the_next_one_takes_away(
    kafka_cluster: KafkaCluster,
) -> None:
    """So that compaction, which keeps the last record of a key, never keeps a late one for it."""
    kafka_cluster.admin().ensure_internal(BUCKETS)
    control = kafka_cluster.control()
    control.put_task(begun("a", 10), LeaderEpoch(4))
    control.read()
    control.put_task(begun("a", 16), LeaderEpoch(5))
    control.put_task(waiting("a"))
    last = {message.key(): message.value() for message in control._messages()}
    assert {key for key, value in last.items() if value} == {b"leader:5:a", b"task:a"}
    assert control.read().tasks == {TaskName("a"): begun("a", 16)}


def test_a_former_leader_cannot_lower_the_epochs(cluster: Cluster) -> None:
    put_epochs(cluster, 4, 5, 6)
    put_epochs(cluster, 3, 9, 2)
    state = cluster.control().read()
    assert (state.leader_epoch, state.store_epoch, state.assignment_epoch) == (4, 9, 6)


@pytest.mark.integration
def test_each_leaders_epochs_have_a_key_of_their_own_that_the_next_one_takes_away(
    kafka_cluster: KafkaCluster,
) -> None:
    """So that compaction never keeps what a former leader noted late for what is in force."""
    kafka_cluster.admin().ensure_internal(BUCKETS)
    put_epochs(kafka_cluster, 3, 1, 1)
    put_epochs(kafka_cluster, 4, 5, 6)
    next_leader = kafka_cluster.control()
    next_leader.read()
    next_leader.put_epochs(LeaderEpoch(5), StoreEpoch(7), AssignmentEpoch(8))
    put_epochs(kafka_cluster, 3, 1, 2)
    last = {message.key(): message.value() for message in next_leader._messages()}
    assert {key for key, value in last.items() if value} == {b"epochs:3", b"epochs:5"}
    state = kafka_cluster.control().read()
    assert (state.leader_epoch, state.store_epoch, state.assignment_epoch) == (5, 7, 8)


@pytest.mark.integration
def test_epochs_that_an_older_release_noted_count(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    older = b'{"leader":4,"store":9,"assignment":6}'
    kafka_cluster.append(kafka_cluster.names.control, 0, [older], key=b"epochs")
    put_epochs(kafka_cluster, 5, 3, 7)
    state = kafka_cluster.control().read()
    assert (state.leader_epoch, state.store_epoch, state.assignment_epoch) == (5, 9, 7)


@pytest.mark.integration
@pytest.mark.parametrize("key", [b"epochs", b"epochs:7", b"task:a"])
def test_a_record_that_cannot_be_read_is_refused_and_its_place_named(
    kafka_cluster: KafkaCluster, key: bytes
) -> None:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    kafka_cluster.append(kafka_cluster.names.control, 0, [b"{"], key=key)
    with pytest.raises(MarsError, match=r"control\[0\] offset 0"):
        kafka_cluster.control().read()


def test_streams_come_back_as_they_were_put_last_and_deleted_ones_do_not(cluster: Cluster) -> None:
    control = cluster.control()
    first, second = (
        definition("a").current.stream,
        replace(definition("a").current.stream, topic="b"),
    )
    other = replace(first, name=StreamName("other"))
    control.put_stream(first)
    control.put_stream(other)
    control.put_stream(second)
    control.delete_stream(other.name)
    control.delete_stream(StreamName("never"))
    assert control.read() == ControlState(streams={first.name: second})
    assert not control.read().is_new


def test_a_namespace_in_which_epochs_were_given_is_not_new(cluster: Cluster) -> None:
    assert cluster.control().read().is_new
    put_epochs(cluster, 1, 1, 1)
    assert not cluster.control().read().is_new
