"""The tasks as a process takes them from the registry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mars.adapters.memory.registry import MemoryRegistry
from mars.core.definitions import TaskState
from mars.core.errors import TopicRefused
from mars.core.types import TaskName, Topic
from mars.process.tasks import TaskSource, fail_task
from mars.protocol.ports import TopicInfo
from tests.contracts.test_registry import definition

REFUSED = "mars.results.refused"


def outputs(topics: Iterable[Topic]) -> dict[Topic, TopicInfo | TopicRefused]:
    """Every topic but one, which Kafka does not let us have."""
    refused = TopicRefused(REFUSED, "the user may not do this")
    return {topic: refused if topic == REFUSED else TopicInfo("id", 3) for topic in topics}


def test_a_task_whose_output_topic_is_refused_fails_alone_and_says_which() -> None:
    registry = MemoryRegistry()
    for name in ("good", "refused"):
        assert registry.create_task(definition(name))
    source = TaskSource(registry, "default", outputs)

    tasks = source.poll()

    assert tasks is not None
    good, refused = tasks[TaskName("good")], tasks[TaskName("refused")]
    assert good.running
    assert set(good.output_partitions.values()) == {3}
    assert refused.failed
    found = registry.task(TaskName("refused"))
    assert found is not None
    assert found[0].state is TaskState.FAILED
    assert REFUSED in found[0].detail

    again = source.poll()

    assert again is not None, "its failure is a change"
    assert again[TaskName("refused")].failed
    assert source.poll() is None


def test_what_failed_before_a_task_was_made_anew_does_not_concern_it() -> None:
    registry = MemoryRegistry()
    anew = replace(definition("a"), first_version=2, detail="")
    assert registry.create_task(anew)

    fail_task(registry, TaskName("a"), 1, "an old failure")
    assert registry.tasks()[TaskName("a")] == anew

    fail_task(registry, TaskName("a"), 2, "its own")
    assert registry.tasks()[TaskName("a")].state is TaskState.FAILED
