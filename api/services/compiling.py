"""Queries to plans, with the names of this namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from threading import Lock

from api.callers import caller
from mars.core.definitions import TaskDefinition, TaskVersion
from mars.core.errors import Rejected, RequestError
from mars.core.plan import Plan, Stream
from mars.core.topics import namespace_of_results
from mars.core.types import TaskName, Topic
from mars.process.compiling import (
    compile_request,
    compile_version,
    declared,
    results_topic,
    same_query,
)
from mars.process.zones import zone_named
from mars.protocol.ports import Registry
from mars.sql import StreamOf

PLANS_KEPT = 20_000
"""Plans of stored versions kept in memory, a few KiB each: two of each task where there are very
many. With fewer than there are, each look at all tasks would compile them all again."""

UNNAMED = TaskName("unnamed")
"""Stands for the task's name where a query is only checked."""


class TaskCompiler:
    """Compiles requests, and (once each) the versions of stored tasks."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._registry = registry
        self._namespace = namespace
        self._kept: dict[tuple[TaskName, int, int], tuple[TaskVersion, Plan]] = {}
        self._lock = Lock()

    def compile(
        self,
        sql: str,
        options: Mapping[str, object],
        *,
        task: TaskName | None,
        version: int,
        stream_of: StreamOf | None = None,
        begin_ms: int | None = None,
    ) -> Plan:
        """The plan of a caller's query; `task` is None where it is only checked. `begin_ms` is when
        the task begins, None where that is not known. `stream_of` finds streams as they were once.

        Raises SqlError, Rejected, Forbidden for its topics.
        """
        found = stream_of or declared(self._registry)
        plan = compile_request(
            sql,
            options,
            task=task or UNNAMED,
            version=version,
            stream_of=lambda name: found(name) or self._readable(),
            namespace=self._namespace,
            zone_of=zone_named,
            begin_ms=begin_ms,
        )
        caller().check_read(plan.stream.topic)
        self._check_output(plan.options.output_topic, task)
        return plan

    def _readable(self) -> list[str]:
        """The names of the streams that who asks may read."""
        streams = self._registry.streams().values()
        return [stream.name for stream in streams if caller().may_read(stream.topic)]

    def check_rights(self, definition: TaskDefinition) -> None:
        """Raises Forbidden unless who asks might have registered the task as it is now."""
        caller().check_read(definition.current.stream.topic)
        self._check_output(self.output_topic(definition), definition.name)

    def output_topic(self, definition: TaskDefinition) -> Topic:
        """Where the results of a task go, also of one that this release cannot compile."""
        own = results_topic(self._namespace, definition.name)
        return Topic(str(definition.current.options.get("output_topic", own)))

    def _check_output(self, topic: str, task: TaskName | None) -> None:
        """The topic named after a task is this task's own, whatever the patterns say."""
        if topic == results_topic(self._namespace, task or UNNAMED):
            return
        namespace = namespace_of_results(topic)
        # Of a query without a name nobody can say which topic would be its own.
        nameless = task is None and namespace == self._namespace
        if namespace is not None and not nameless:
            raise Rejected(
                f"option output_topic: {topic} is for the results of the task that it is named "
                "after; leave it out, or choose another name"
            )
        caller().check_write(topic)

    def stored(self, name: TaskName, version: TaskVersion) -> Plan:
        """The plan of a stored version, over the stream as it was declared then."""
        with self._lock:
            found = self._kept.get(_key(name, version))
        if found is not None and same_query(found[0], version):
            return found[1]
        plan = self.against(name, version, version.stream)
        self.keep(name, version, plan)
        return plan

    def keep(self, name: TaskName, version: TaskVersion, plan: Plan) -> None:
        """What a version was made from, and what `stored` would find."""
        with self._lock:
            while len(self._kept) >= PLANS_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[_key(name, version)] = (version, plan)

    def against(self, name: TaskName, version: TaskVersion, stream: Stream) -> Plan:
        """The plan that a stored version would have over another declaration of its stream."""
        return compile_version(name, replace(version, stream=stream), self._namespace)

    def plans(self, definition: TaskDefinition) -> dict[int, Plan]:
        """The plans of all versions that this release can still compile."""
        plans = {}
        for version in definition.versions:
            try:
                plans[version.version] = self.stored(definition.name, version)
            except RequestError:
                # Written by another release: the reducers say so in the task's state.
                continue
        return plans


def _key(name: TaskName, version: TaskVersion) -> tuple[TaskName, int, int]:
    return name, version.version, version.created_ms
