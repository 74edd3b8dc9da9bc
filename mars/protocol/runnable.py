"""A task ready to run: its definition with every version compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.plan import Plan, reads_keys
from mars.core.types import TaskName, Topic
from mars.protocol.ports import SourceTopic


@dataclass(frozen=True, slots=True)
class RunnableTask:
    """A definition and the plans of its versions; `output_partitions` by output topic name."""

    definition: TaskDefinition
    plans: Mapping[int, Plan]
    output_partitions: Mapping[str, int]

    @property
    def name(self) -> TaskName:
        """The task's name."""
        return self.definition.name

    @property
    def deleted(self) -> bool:
        """True for a task that only keeps its name's version numbers."""
        return self.definition.state is TaskState.DELETED

    @property
    def failed(self) -> bool:
        """True for a task that went over a limit, until it is resumed."""
        return self.definition.state is TaskState.FAILED

    @property
    def running(self) -> bool:
        """True if the task takes rows."""
        return self.definition.state is TaskState.RUNNING

    @property
    def source(self) -> SourceTopic:
        """The topic that it reads; no version of it reads another."""
        current = self.definition.current
        return SourceTopic(self.name, Topic(current.stream.topic), current.topic_id)

    def begun(self) -> tuple[tuple[TaskVersion, Plan], ...]:
        """The versions whose start is decided, with their plans, oldest first."""
        return tuple(
            (version, self.plans[version.version])
            for version in self.definition.begun
            if version.version in self.plans
        )


def topics_with_keys(tasks: Iterable[RunnableTask]) -> frozenset[Topic]:
    """The topics of which some task reads the records' keys."""
    plans = (plan for task in tasks if not task.deleted for plan in task.plans.values())
    return frozenset(Topic(plan.stream.topic) for plan in plans if reads_keys(plan.fields))
