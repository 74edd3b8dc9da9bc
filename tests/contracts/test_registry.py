"""Streams and tasks: what is kept, compare-and-set, and being told of changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import Lane, StreamName, TaskName
from mars.protocol.ports import Leadership, Registry
from tests.contracts.waiting import Changes, eventually
from tests.contracts.zookeeper_servers import Ensemble


def stream(name: str = "flows", topic: str = "flows") -> Stream:
    fields = (Field("timestamp", FieldType.TIMESTAMP_MS), Field("sip", FieldType.STRING))
    return Stream(StreamName(name), topic, Format.NDJSON, fields, "timestamp")


def definition(name: str = "by_sip", state: TaskState = TaskState.RUNNING) -> TaskDefinition:
    version = TaskVersion(
        version=1,
        sql="SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 60 s -- Gänsefüßchen „“ 統計",
        options={"delay": "1s", "max_keys": 5, "late": "drop"},
        stream=stream(),
        topic_id="kafka-topic-id",
        created_ms=1_700_000_000_000,
        starts={Lane("0"): 5, Lane("1"): 2**53},
        complete_from_ms=None,
    )
    undecided = replace(version, version=2, starts=None, complete_until_ms=9, unread_ms=(3, 5))
    return TaskDefinition(TaskName(name), state, (version, undecided), detail="why")


# -------------------------------------------------------------------------------- streams


def test_stream_is_read_back_as_it_was_put(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    assert ours.streams() == {}
    assert ours.stream(StreamName("flows")) is None
    ours.put_stream(stream())
    assert theirs.stream(StreamName("flows")) == stream()
    assert theirs.streams() == {StreamName("flows"): stream()}


def test_stream_put_again_is_replaced(ensemble: Ensemble) -> None:
    registry = ensemble.registry()
    registry.put_stream(stream(topic="old"))
    registry.put_stream(stream(topic="new"))
    registry.put_stream(stream("other"))
    assert registry.stream(StreamName("flows")) == stream(topic="new")
    assert set(registry.streams()) == {"flows", "other"}


def test_deleted_stream_is_gone(ensemble: Ensemble) -> None:
    registry = ensemble.registry()
    registry.put_stream(stream())
    assert registry.delete_stream(StreamName("flows"))
    assert not registry.delete_stream(StreamName("flows"))
    assert registry.streams() == {}
    registry.put_stream(stream())
    assert registry.stream(StreamName("flows")) == stream()


# ---------------------------------------------------------------------------------- tasks


def test_task_is_read_back_as_it_was_created(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    assert ours.tasks() == {}
    assert ours.task(TaskName("by_sip")) is None
    assert ours.create_task(definition())
    found = theirs.task(TaskName("by_sip"))
    assert found is not None
    assert found[0] == definition()
    assert theirs.tasks() == {TaskName("by_sip"): definition()}


def test_name_is_taken_for_ever_also_by_a_deleted_task(ensemble: Ensemble) -> None:
    registry = ensemble.registry()
    assert registry.create_task(definition(state=TaskState.DELETED))
    assert not registry.create_task(definition())
    assert registry.tasks()[TaskName("by_sip")].state is TaskState.DELETED


def test_task_is_replaced_only_by_who_saw_its_last_version(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    ours.create_task(definition())
    seen = version_of(theirs)
    paused = definition(state=TaskState.PAUSED)
    assert ours.replace_task(paused, version_of(ours))
    assert not theirs.replace_task(definition(state=TaskState.FAILED), seen)
    assert theirs.tasks() == {paused.name: paused}
    assert theirs.replace_task(definition(), version_of(theirs))


def test_unknown_task_is_not_replaced(ensemble: Ensemble) -> None:
    registry = ensemble.registry()
    assert not registry.replace_task(definition(), 0)
    assert registry.tasks() == {}


def test_tasks_are_always_as_they_were_last_written_by_anybody(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    for written in (definition(), definition("other"), definition(state=TaskState.PAUSED)):
        if not ours.create_task(written):
            assert ours.replace_task(written, version_of(ours))
        assert theirs.tasks() == ours.tasks()
        assert theirs.tasks()[written.name] == written
    theirs.tasks().clear()  # what was read is the reader's own
    assert len(theirs.tasks()) == 2


# ------------------------------------------------------------------------- as the leader


def led(ensemble: Ensemble) -> Leadership:
    """The leadership of a process that leads."""
    one = ensemble.coordinator("one")
    one.campaign()
    lead = eventually(one.leadership)
    assert lead is not None
    assert lead.epoch == one.leading()
    return lead


def writes(registry: Registry, lead: Leadership) -> list[bool]:
    """Everything that a leader writes, and whether it was written."""
    return [
        registry.put_stream(stream(), lead),
        registry.put_stream(stream("other"), lead),
        registry.create_task(definition("other"), lead),
        registry.replace_task(definition(state=TaskState.PAUSED), version_of(registry), lead),
        registry.make_whole(lead),
    ]


def kept(registry: Registry) -> object:
    return registry.streams(), registry.tasks(), version_of(registry), registry.whole()


def test_the_leader_writes_with_its_leadership_as_others_do_without(ensemble: Ensemble) -> None:
    registry, lead = ensemble.registry(), led(ensemble)
    registry.create_task(definition())
    registry.put_stream(stream(topic="old"))
    assert writes(registry, lead) == [True] * 5
    assert registry.streams() == {one.name: one for one in (stream(), stream("other"))}
    assert registry.tasks()[TaskName("by_sip")].state is TaskState.PAUSED
    assert registry.whole()
    assert registry.make_whole(lead)
    assert not registry.create_task(definition("other"), lead)
    assert not registry.replace_task(definition(), 0, lead)


@pytest.mark.parametrize("healed", [False, True])
def test_a_leader_of_before_writes_nothing(ensemble: Ensemble, healed: bool) -> None:
    """Whether or not its process stands for election again meanwhile."""
    registry, lead = ensemble.registry(), led(ensemble)
    registry.create_task(definition())
    registry.put_stream(stream(topic="old"))
    two = ensemble.coordinator("two")
    two.campaign()
    eventually(lambda: ensemble.stands("two"))
    ensemble.expire("one")
    eventually(two.leadership)
    if healed:
        ensemble.heal("one")
        eventually(lambda: ensemble.stands("one"))
    before = kept(registry)
    assert writes(registry, lead) == [False] * 5
    assert kept(registry) == before


def test_a_leadership_that_nobody_else_has_is_over_when_its_session_is(ensemble: Ensemble) -> None:
    registry, lead = ensemble.registry(), led(ensemble)
    registry.create_task(definition())
    ensemble.expire("one")
    assert not registry.replace_task(definition(), version_of(registry), lead)
    ensemble.heal("one")
    eventually(ensemble.coordinator("one").connected)
    assert not registry.replace_task(definition(), version_of(registry), lead)


def version_of(registry: Registry) -> int:
    found = registry.task(TaskName("by_sip"))
    assert found is not None
    return found[1]


# -------------------------------------------------------------------------------- watching


def test_every_change_of_a_task_is_told_to_all_who_watch(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    told = [Changes(), Changes(), Changes()]
    for registry, changes in zip((ours, theirs, theirs), told, strict=True):
        registry.watch_tasks(changes)
        changes.more_than(0)

    steps: list[Callable[[], object]] = [
        lambda: ours.create_task(definition()),
        lambda: ours.create_task(definition("other")),
        lambda: ours.replace_task(definition(state=TaskState.PAUSED), version_of(ours)),
        lambda: theirs.replace_task(definition(), version_of(theirs)),
    ]
    for step in steps:
        seen = [changes.seen() for changes in told]
        assert step()
        for changes, count in zip(told, seen, strict=True):
            changes.more_than(count)


def test_change_is_readable_by_the_time_it_is_told(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    states: list[TaskState | None] = []
    changes = Changes()

    def read() -> None:
        found = theirs.task(TaskName("by_sip"))
        states.append(None if found is None else found[0].state)
        changes()

    theirs.watch_tasks(read)
    changes.more_than(0)
    for state in (TaskState.RUNNING, TaskState.PAUSED, TaskState.RUNNING, TaskState.DELETED):
        seen = changes.seen()
        if not ours.create_task(definition(state=state)):
            ours.replace_task(definition(state=state), version_of(ours))
        changes.more_than(seen)
        assert states[-1] == state


# ---------------------------------------------------------------------------------- whole


def test_a_registry_that_was_never_used_is_not_whole_until_somebody_says_so(
    ensemble: Ensemble,
) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    assert not ours.whole()
    ours.put_stream(stream())
    ours.create_task(definition())
    assert not theirs.whole()
    ours.make_whole()
    assert theirs.whole()
    theirs.make_whole()
    assert ours.whole()
