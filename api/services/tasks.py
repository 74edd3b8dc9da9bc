"""Tasks: register, change, pause, resume, delete, check.

    create   compile ─▶ start offsets ─▶ output topic ─▶ registry ─▶ control log ─▶ answer
    change   compile ─▶ output topic ─▶ new version without starts ─▶ control log ─▶ answer
                        (the leader decides at which offsets it begins)

The registry decides: every write to it is a compare-and-set, tried again on fresh reading.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from api.callers import caller
from api.names import known_task_name, new_task_name, no_task
from api.schemas import NewTaskRequest, TaskRequest, ValidateRequest
from api.services.beginning import Beginning, Beginnings
from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, ClusterContext, Ports
from api.services.inside.progress import ProgressTail
from api.services.operation.restoring import check_whole
from mars.core.definitions import (
    RULES,
    Backfill,
    TaskDefinition,
    TaskState,
    TaskVersion,
    check_in_files,
    encode_definition,
)
from mars.core.errors import Conflict, Rejected, RequestError, VersionMismatch
from mars.core.plan import Plan, WatermarkScope
from mars.core.types import TaskName, Topic
from mars.process.compiling import declared
from mars.protocol.ports import TopicInfo, put_copy

TOPIC_POLL_S = 0.1
"""How often a request looks for the topic of its stream."""

TOPIC_LOOKS_MAX = 20
"""How often it looks before the topic counts as missing: 2 s in all."""

ATTEMPTS_MAX = 10
"""Compare-and-sets of one request: the leader and other requests write rarely, so more means that
something is wrong."""

UNDECIDED_POLL_S = 0.1
"""How often a change looks whether the leader has begun the version before."""

UNDECIDED_WAITS_MAX = 50
"""How often it waits: 5 s in all, where the leader needs about one."""

DEFINITION_BYTES_MAX = 900_000
"""Of a task's definition as JSON: a ZooKeeper node holds 1 MiB."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A task after a request, and whether the request changed anything."""

    definition: TaskDefinition
    changed: bool


class TaskService:
    """What the paths under /v1/tasks do to definitions."""

    def __init__(
        self,
        ports: Ports,
        compiler: TaskCompiler,
        progress: ProgressTail,
        buckets: BucketCount,
        cluster: ClusterContext,
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._progress = progress
        self._buckets = buckets
        self._results_partitions = cluster.results_partitions
        self._tasks_max = cluster.tasks_max
        self._beginnings = Beginnings(ports, cluster)

    def list_all(self, *, deleted: bool) -> list[TaskDefinition]:
        """All tasks by name; deleted ones only if asked for.

        Raises Unavailable: see `check_whole`.
        """
        check_whole(self._ports)  # first: while they are brought back, some are there
        tasks = self._ports.registry.tasks()
        return [
            tasks[name]
            for name in sorted(tasks)
            if deleted or tasks[name].state is not TaskState.DELETED
        ]

    def show(self, name: str) -> TaskDefinition:
        """One task. Raises NotFound, also for a deleted one."""
        return self._found(name)[0]

    def _found(self, name: str) -> tuple[TaskDefinition, int]:
        found = self._ports.registry.task(known_task_name(name))
        if found is None or found[0].state is TaskState.DELETED:
            raise no_task(name, (task.name for task in self.list_all(deleted=False)))
        return found

    def validate(self, request: ValidateRequest) -> Plan:
        """The plan that a query would have. Raises SqlError, Rejected."""
        name = None if request.name is None else new_task_name(request.name)
        return self._compile(request.sql, request.options, name, version=1)

    def _compile(
        self, sql: str, options: Mapping[str, object], name: TaskName | None, version: int
    ) -> Plan:
        stream_of = declared(self._ports.registry)
        return self._compiler.compile(sql, options, task=name, version=version, stream_of=stream_of)

    # ---------------------------------------------------------------------------- creating

    def create(self, request: NewTaskRequest) -> TaskDefinition:
        """Register a task. Raises Conflict, SqlError, Rejected."""
        check_whole(self._ports)
        name = new_task_name(request.name)
        plan = self._compile(request.sql, request.options, name, self._next_version(name))
        info = described(self._ports, Topic(plan.stream.topic))
        beginning = self._beginnings.of(plan.stream, request.start, request.history)
        _check_history(plan, beginning.backfills)
        version = self._first_version(request, plan, info, beginning)
        definition = TaskDefinition(
            name,
            TaskState.RUNNING,
            (version,),
            first_version=version.version,
            backfills=beginning.backfills,
        )
        _check_size(definition)
        self._check_number()
        self._ensure_output(plan)
        if not self._ports.registry.create_task(definition):
            definition = self._revive(definition)
        self._ports.control.put_task(definition)
        return definition

    def _next_version(self, name: TaskName) -> int:
        """Version numbers of a name never restart. Raises Conflict for the name of a live task."""
        found = self._ports.registry.task(name)
        if found is None:
            return 1
        if found[0].state is not TaskState.DELETED:
            raise _taken(name)
        return found[0].current.version + 1

    def _check_number(self) -> None:
        """Raises Conflict where there are as many as there may be, or some more by a race."""
        if len(self.list_all(deleted=False)) >= self._tasks_max:
            raise Conflict(
                f"there are {self._tasks_max} tasks already (api.tasks_max): delete one, or ask "
                "for a higher limit"
            )

    def _revive(self, definition: TaskDefinition) -> TaskDefinition:
        """Take the place of a deleted task of that name."""
        for _ in range(ATTEMPTS_MAX):
            found = self._ports.registry.task(definition.name)
            if found is None:
                if self._ports.registry.create_task(definition):
                    return definition
                continue
            deleted, expected = found
            if deleted.state is not TaskState.DELETED:
                raise _taken(definition.name)
            number = deleted.current.version + 1
            revived = replace(
                definition,
                versions=(replace(definition.current, version=number),),
                first_version=number,
            )
            if self._ports.registry.replace_task(revived, expected):
                return revived
        raise _contended(definition.name)

    def _first_version(
        self, request: NewTaskRequest, plan: Plan, info: TopicInfo, beginning: Beginning
    ) -> TaskVersion:
        return TaskVersion(
            version=plan.version,
            sql=request.sql,
            options=request.options,
            stream=plan.stream,
            topic_id=info.topic_id,
            created_ms=self._ports.now_ms(),
            starts=beginning.starts,
            complete_from_ms=beginning.complete_from_ms,
            rules=RULES,
        )

    def _ensure_output(self, plan: Plan) -> None:
        partitions = self._results_partitions or self._buckets()
        self._ports.admin.ensure_output(Topic(plan.options.output_topic), partitions)

    # ---------------------------------------------------------------------------- changing

    def change(self, name: str, request: TaskRequest, if_match: str | None) -> Changed:
        """Append a version. Raises NotFound, VersionMismatch, SqlError, Rejected, Conflict."""
        waits = attempts = 0
        while attempts < ATTEMPTS_MAX:
            definition, expected = self._found(name)
            _check_match(definition, if_match)
            plan = self._compile(
                request.sql, request.options, definition.name, definition.current.version + 1
            )
            if self._unchanged(definition, request, plan):
                return Changed(definition, changed=False)
            if definition.current.starts is None:
                if waits >= UNDECIDED_WAITS_MAX:
                    raise _undecided(definition)
                self._ports.sleep(UNDECIDED_POLL_S)
                waits += 1
                continue
            attempts += 1
            new = self._with_version(definition, request, plan)
            if self._ports.registry.replace_task(new, expected):
                self._ports.control.put_task(new)
                return Changed(new, changed=True)
        raise _contended(name)

    def _unchanged(self, definition: TaskDefinition, request: TaskRequest, plan: Plan) -> bool:
        current = definition.current
        if current.sql != request.sql:
            return False
        try:
            return self._compiler.stored(definition.name, current).options == plan.options
        except RequestError:
            return False

    def _with_version(
        self, definition: TaskDefinition, request: TaskRequest, plan: Plan
    ) -> TaskDefinition:
        _check_history(plan, definition.backfills)
        current = definition.current
        topic = Topic(plan.stream.topic)
        if topic != current.stream.topic:
            raise Rejected(
                f"the task reads topic {current.stream.topic}, the new query {topic}: make a new "
                "task for another topic"
            )
        info = described(self._ports, topic)
        if info.topic_id != current.topic_id:
            raise Conflict(
                f"topic {topic} was deleted and made again since the task was registered: delete "
                "the task and register it again"
            )
        self._ensure_output(plan)
        version = TaskVersion(
            version=plan.version,
            sql=request.sql,
            options=request.options,
            stream=plan.stream,
            topic_id=info.topic_id,
            created_ms=self._ports.now_ms(),
            starts=None,
            rules=RULES,
        )
        kept = self._still_open(definition)
        changed = replace(definition, versions=(*kept, version))
        _check_size(changed)
        return changed

    def _still_open(self, definition: TaskDefinition) -> tuple[TaskVersion, ...]:
        closed = self.closed(definition)
        return tuple(each for each in definition.versions if each.version not in closed)

    def closed(self, definition: TaskDefinition) -> frozenset[int]:
        """The versions that have a begun successor and are emitted to the end, as far as known."""
        return frozenset(
            older.version
            for older, newer in pairwise(definition.versions)
            if newer.starts is not None
            and self._progress.finished(definition, older.version, newer.starts, self._buckets())
        )

    # ------------------------------------------------------------------------------ states

    def pause(self, name: str) -> TaskDefinition:
        """Take no more rows until `resume`. Raises NotFound, Conflict for a failed task."""

        def paused(task: TaskDefinition) -> TaskDefinition:
            if task.state is TaskState.FAILED:
                raise Conflict(
                    f"task {task.name} has failed ({task.detail}) and takes no rows anyway: "
                    "resume or delete it"
                )
            return replace(task, state=TaskState.PAUSED)

        return self._transition(name, paused)

    def resume(self, name: str) -> TaskDefinition:
        """Go on with a paused or failed task where it stopped. Raises NotFound."""
        return self._transition(
            name, lambda task: replace(task, state=TaskState.RUNNING, detail="")
        )

    def delete(self, name: str) -> None:
        """End a task; its results stay in Kafka. Raises NotFound."""
        self._transition(name, lambda task: replace(task, state=TaskState.DELETED))

    def _transition(
        self, name: str, change: Callable[[TaskDefinition], TaskDefinition]
    ) -> TaskDefinition:
        for _ in range(ATTEMPTS_MAX):
            definition, expected = self._found(name)
            caller().check_read(definition.current.stream.topic)
            changed = change(definition)
            if changed == definition:
                return definition
            if changed.state is TaskState.DELETED:
                # First the copy: should ZooKeeper lose the task, it must not come back to life when
                # buckets have already put its progress away.
                self._ports.control.put_task(changed)
            if self._ports.registry.replace_task(changed, expected):
                # A leader may be copying what was before.
                put_copy(self._ports.control, changed)
                return changed
        raise _contended(name)


def described(ports: Ports, topic: Topic) -> TopicInfo:
    """The topic; one that was made just now may take the brokers a moment to tell of.

    Raises Rejected if there is none.
    """
    for _look in range(TOPIC_LOOKS_MAX):
        info = ports.admin.describe(topic)
        if info is not None:
            return info
        ports.sleep(TOPIC_POLL_S)
    raise Rejected(f"Kafka has no topic {topic}: create it first")


def _taken(name: str) -> Conflict:
    return Conflict(f"there is a task {name}: `mars task add` (PUT /v1/tasks/{name}) changes it")


def _contended(name: str) -> Conflict:
    return Conflict(f"task {name} was changed by others at the same time: look at it, try again")


def _undecided(definition: TaskDefinition) -> Conflict:
    """A paused task reads nothing, not even what it has to read again after a loss of the store."""
    begun = f"version {definition.current.version} of task {definition.name} has not begun yet"
    if definition.state is TaskState.PAUSED:
        return Conflict(
            f"{begun}: the task is paused, and after a loss of Redis it first reads again what the "
            "version before had counted; resume it, then try again"
        )
    return Conflict(
        f"{begun}: no leader has decided at which offsets; see that a reducer runs, then try again"
    )


def _check_match(definition: TaskDefinition, if_match: str | None) -> None:
    """RFC 9110: a list of entity tags, or *; the tag of a task is its version in quotes."""
    if if_match is None:
        return
    tags = {tag.strip() for tag in if_match.split(",")}
    current = definition.current.version
    if "*" not in tags and f'"{current}"' not in tags:
        raise VersionMismatch(
            f'the current version is "{current}", If-Match names {if_match[:80]!a}: look at '
            "the task again"
        )


def _check_history(plan: Plan, backfills: Collection[Backfill]) -> None:
    """Raise Rejected for a history whose rows would come between newer ones of the same keys, or
    lack what the query reads.
    """
    if any(one.files is not None for one in backfills):
        check_in_files(plan.fields)
    if backfills and plan.options.watermark is not WatermarkScope.PARTITION:
        raise Rejected(
            f"option watermark: {plan.options.watermark.value} cannot be had with a history that "
            "Spark computes, whose rows come beside newer ones of the same keys; register a task "
            "that starts later, or use watermark: partition"
        )


def _check_size(definition: TaskDefinition) -> None:
    if len(encode_definition(definition)) <= DEFINITION_BYTES_MAX:
        return
    if len(definition.versions) == 1:
        raise Rejected(
            f"query, options, stream and files have more than {DEFINITION_BYTES_MAX} bytes"
        )
    raise Conflict(
        f"the versions of task {definition.name} with open windows have more than "
        f"{DEFINITION_BYTES_MAX} bytes: try again when older ones are closed"
    )
