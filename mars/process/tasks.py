"""The registry's tasks, compiled and kept up to date."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain

from mars.core.definitions import TaskDefinition, TaskRun, TaskState, TaskVersion
from mars.core.errors import RequestError, TopicRefused
from mars.core.plan import Plan
from mars.core.types import Lane, TaskName, Topic
from mars.process.compiling import compile_version, same_query
from mars.process.telemetry import logs
from mars.protocol.ports import Leadership, Registry, TopicInfo
from mars.protocol.runnable import RunnableTask

LOOK_INTERVAL_S = 10.0
"""The registry is read again this often, should a watch ever be missed."""

WRITING_NOTHING = frozenset({TaskState.DELETED, TaskState.FAILED})

_ATTEMPTS = 10
"""Tries to write a definition that others change at the same time."""

OutputTopics = Callable[[Iterable[Topic]], Mapping[Topic, TopicInfo | TopicRefused]]
"""Says what the output topics are, having made those that were missing; may raise Unavailable."""


class TaskSource:
    """Tells when the tasks have changed, and compiles them.

    A task of which one of the `output_topics` is refused fails, and the others are not concerned
    (I7). Versions that do not compile (stored by a newer release, say) are logged and left out.
    """

    def __init__(
        self, registry: Registry, namespace: str, output_topics: OutputTopics | None = None
    ) -> None:
        self._log = logs.logger("tasks")
        self._registry = registry
        self._namespace = namespace
        self._output_topics = output_topics
        self._changed = threading.Event()
        self._changed.set()
        self._looked_s = 0.0
        self._definitions: dict[TaskName, TaskDefinition] | None = None
        self._plans: dict[tuple[TaskName, int], tuple[TaskVersion, Plan | None]] = {}
        registry.watch_tasks(self._changed.set)

    def poll(self) -> dict[TaskName, RunnableTask] | None:
        """All tasks if any has changed since the last call, else None. May raise Unavailable.

        Output topics are looked for though no task has changed: somebody may have deleted one.
        """
        now = time.monotonic()
        if not self._changed.is_set() and now - self._looked_s < LOOK_INTERVAL_S:
            return None
        self._changed.clear()
        try:
            definitions = self._registry.tasks()
            runnable = self._runnable(definitions)
        except Exception:
            self._changed.set()
            raise
        self._looked_s = now
        if definitions == self._definitions:
            return None
        self._definitions = definitions
        return runnable

    def _runnable(
        self, definitions: Mapping[TaskName, TaskDefinition]
    ) -> dict[TaskName, RunnableTask]:
        plans = {name: self._compiled(task) for name, task in definitions.items()}
        if self._output_topics is None:
            return {name: RunnableTask(task, plans[name], {}) for name, task in definitions.items()}
        topics = {
            name: [] if task.state in WRITING_NOTHING else _written(plans[name])
            for name, task in definitions.items()
        }
        outputs = self._output_topics(dict.fromkeys(chain.from_iterable(topics.values())))
        return {
            name: self._writing(task, plans[name], [(each, outputs[each]) for each in topics[name]])
            for name, task in definitions.items()
        }

    def _writing(
        self,
        definition: TaskDefinition,
        plans: Mapping[int, Plan],
        outputs: Iterable[tuple[Topic, TopicInfo | TopicRefused]],
    ) -> RunnableTask:
        partitions: dict[str, int] = {}
        for topic, found in outputs:
            if isinstance(found, TopicRefused):
                detail = f"its rows cannot be written: {found.detail}"
                fail_task(self._registry, definition.name, definition.run, detail)
                failed = replace(definition, state=TaskState.FAILED, detail=detail)
                return RunnableTask(failed, plans, {})
            partitions[topic] = found.partitions
        return RunnableTask(definition, plans, partitions)

    def _compiled(self, definition: TaskDefinition) -> dict[int, Plan]:
        plans: dict[int, Plan] = {}
        for version in definition.begun:
            key = (definition.name, version.version)
            found = self._plans.get(key)
            if found is None or not same_query(found[0], version):
                found = self._plans[key] = (version, self._compile(definition.name, version))
            plan = found[1]
            if plan is not None:
                plans[version.version] = plan
        return plans

    def _compile(self, name: TaskName, version: TaskVersion) -> Plan | None:
        try:
            return compile_version(name, version, self._namespace)
        except RequestError as problem:
            logs.error(
                self._log,
                "a stored task cannot be compiled and is left out; is this release older than the"
                " one that stored it?",
                task=name,
                version=version.version,
                problem=str(problem),
            )
            return None


def _written(plans: Mapping[int, Plan]) -> list[Topic]:
    return list(dict.fromkeys(Topic(plan.options.output_topic) for plan in plans.values()))


def set_catch_up(
    registry: Registry,
    name: TaskName,
    run: TaskRun,
    fences: Mapping[Lane, int],
    lead: Leadership | None = None,
) -> bool:
    """Note up to where lanes of a task, in this run, are left to Spark; True if that was news.

    Nothing happens in another run: one that was made anew since may read another topic, which never
    comes to these fences.
    """

    def fenced(task: TaskDefinition) -> TaskDefinition:
        return replace(task, catch_up=fences) if task.run == run else task

    return _change_running(registry, name, fenced, lead)


def fail_task(
    registry: Registry,
    name: TaskName,
    run: TaskRun,
    detail: str,
    lead: Leadership | None = None,
) -> None:
    """Mark a running task as failed, which failed in this run.

    Nothing happens to one that is not running any more, or was resumed or made anew since.
    """

    def failed(task: TaskDefinition) -> TaskDefinition:
        if run < task.run:
            return task
        return replace(task, state=TaskState.FAILED, detail=detail)

    _change_running(registry, name, failed, lead)


def _change_running(
    registry: Registry,
    name: TaskName,
    change: Callable[[TaskDefinition], TaskDefinition],
    lead: Leadership | None,
) -> bool:
    """Write a changed definition, while the task runs; True if there was something to change.

    With `lead`, only while that leadership holds.
    """
    for _attempt in range(_ATTEMPTS):
        found = registry.task(name)
        if found is None or found[0].state is not TaskState.RUNNING:
            return False
        changed = change(found[0])
        if changed == found[0]:
            return False
        if registry.replace_task(changed, found[1], lead):
            return True
    return False
