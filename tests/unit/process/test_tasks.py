"""The tasks as a process takes them from the registry."""

from __future__ import annotations

from mars.adapters.memory.registry import MemoryRegistry
from mars.definitions import TaskState
from mars.errors import TopicRefused
from mars.process.tasks import TaskSource
from mars.types import TaskName
from tests.contracts.test_registry import definition

REFUSED = "mars.results.refused"


def partitions(topic: str) -> int:
    """Of every topic but one, which Kafka does not let us have."""
    if topic == REFUSED:
        raise TopicRefused(topic, "the user may not do this")
    return 3


def test_a_task_whose_output_topic_is_refused_fails_alone_and_says_which() -> None:
    registry = MemoryRegistry()
    for name in ("good", "refused"):
        assert registry.create_task(definition(name))
    source = TaskSource(registry, "default", partitions)

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
