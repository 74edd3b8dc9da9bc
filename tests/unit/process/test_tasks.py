"""The tasks as a process takes them from the registry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from mars.adapters.memory.registry import MemoryRegistry
from mars.core.definitions import TaskState
from mars.core.errors import TopicRefused
from mars.core.types import Lane, TaskName, Topic
from mars.process.compiling import compile_version, same_query
from mars.process.tasks import TaskSource, fail_task, set_catch_up
from mars.process.zones import zone_named
from mars.protocol.ports import TopicInfo
from tests.contracts.test_registry import definition, stream

BERLIN = zone_named("Europe/Berlin")
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


@pytest.mark.parametrize(
    "change",
    [
        {"sql": "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 30 s"},
        {"options": {"delay": "9s"}},
        {"stream": stream(topic="other")},
    ],
)
def test_a_version_that_bears_the_number_of_another_is_compiled_anew(
    change: dict[str, Any],
) -> None:
    """ZooKeeper was emptied, and the name given again; the process lived on with the old plan."""
    registry, first = MemoryRegistry(), definition("a")
    assert registry.create_task(first)
    source = TaskSource(registry, "default")
    before = source.poll()
    assert before is not None
    begun, undecided = first.versions
    changed = replace(first, versions=(replace(begun, **change), undecided))
    assert registry.replace_task(changed, 0)

    after = source.poll()

    assert after is not None
    plan = after[TaskName("a")].plans[1]
    assert plan != before[TaskName("a")].plans[1]
    assert plan == compile_version(TaskName("a"), changed.versions[0], "default")


def test_a_version_of_which_something_else_has_changed_keeps_its_plan() -> None:
    registry, first = MemoryRegistry(), definition("a")
    assert registry.create_task(first)
    source = TaskSource(registry, "default")
    before = source.poll()
    assert before is not None
    assert registry.replace_task(replace(first, state=TaskState.PAUSED), 0)

    after = source.poll()

    assert after is not None
    assert after[TaskName("a")].plans[1] is before[TaskName("a")].plans[1]


@pytest.mark.parametrize("change", [{"zone": BERLIN}, {"landmark_ms": 60_000}])
def test_a_query_is_another_in_another_zone_or_since_another_landmark(
    change: dict[str, Any],
) -> None:
    version = definition("a").versions[0]
    assert same_query(version, replace(version, starts={}, complete_from_ms=5))
    assert not same_query(version, replace(version, **change))


def test_what_failed_before_a_task_was_made_anew_does_not_concern_it() -> None:
    registry = MemoryRegistry()
    anew = replace(definition("a"), first_version=2, detail="")
    assert registry.create_task(anew)

    fail_task(registry, TaskName("a"), (1, 0), "an old failure")
    assert registry.tasks()[TaskName("a")] == anew

    fail_task(registry, TaskName("a"), (2, 0), "its own")
    assert registry.tasks()[TaskName("a")].state is TaskState.FAILED


def test_what_failed_before_a_task_was_resumed_does_not_concern_it() -> None:
    """It failed, and was resumed, and what held up this failure has only then let go of it."""
    registry = MemoryRegistry()
    assert registry.create_task(replace(definition("a"), detail=""))
    source = TaskSource(registry, "default")
    before = source.poll()
    assert before is not None
    run = before[TaskName("a")].definition.run
    fail_task(registry, TaskName("a"), run, "the first of them")
    failed, expected = registry.task(TaskName("a")) or (None, 0)
    assert failed is not None
    assert registry.replace_task(failed.resumed(), expected)

    fail_task(registry, TaskName("a"), run, "the second")

    after = source.poll()
    assert after is not None, "a process that has failed it takes it up again"
    assert after[TaskName("a")].running
    fail_task(registry, TaskName("a"), after[TaskName("a")].definition.run, "its own")
    assert registry.tasks()[TaskName("a")].detail == "its own"


def test_what_was_behind_before_a_task_was_made_anew_does_not_concern_it() -> None:
    """Its topic is another one, and ends before these fences: nobody would ever take its rows."""
    registry = MemoryRegistry()
    anew = replace(definition("a"), first_version=2, detail="", catch_up={})
    assert registry.create_task(anew)
    fences = {Lane("0"): 5_000_000}

    assert not set_catch_up(registry, TaskName("a"), (1, 0), fences)
    assert registry.tasks()[TaskName("a")] == anew

    assert set_catch_up(registry, TaskName("a"), (2, 0), fences)
    assert registry.tasks()[TaskName("a")].catch_up == fences
