"""Tasks: register, change, pause, resume, delete, check.

    create   compile ─▶ start offsets ─▶ output topic ─▶ registry ─▶ control log ─▶ answer
    change   compile ─▶ output topic ─▶ new version without starts ─▶ control log ─▶ answer
                        (the leader decides at which offsets it begins)

The registry decides: every write to it is a compare-and-set, tried again on fresh reading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from api.names import known_task_name, new_task_name, no_task
from api.schemas import NewTaskRequest, TaskRequest, ValidateRequest
from api.services.beginning import Beginnings
from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, ClusterContext, Ports
from api.services.defining.making import TaskMaker, described, first_step_ms
from api.services.operation.restoring import check_whole
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import Conflict, VersionMismatch
from mars.core.plan import Plan
from mars.core.types import TaskName, Topic
from mars.protocol.ports import put_copies

ATTEMPTS_MAX = 10
"""Compare-and-sets of one request: the leader and other requests write rarely, so more means that
something is wrong."""

UNDECIDED_POLL_S = 0.1
"""How often a change looks whether the leader has begun the version before."""

UNDECIDED_WAITS_MAX = 50
"""How often it waits: 5 s in all, where the leader needs about one."""


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
        maker: TaskMaker,
        buckets: BucketCount,
        cluster: ClusterContext,
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._maker = maker
        self._buckets = buckets
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
        return self._compile(request, name, 1, self._ports.now_ms())

    def _compile(
        self,
        request: NewTaskRequest | TaskRequest | ValidateRequest,
        name: TaskName | None,
        version: int,
        begin_ms: int | None,
    ) -> Plan:
        return self._compiler.compile(
            request.sql,
            request.options,
            task=name,
            version=version,
            begin_ms=begin_ms,
        )

    # ---------------------------------------------------------------------------- creating

    def create(self, request: NewTaskRequest) -> TaskDefinition:
        """Register a task. Raises Conflict, SqlError, Rejected."""
        check_whole(self._ports)
        name = new_task_name(request.name)
        begin_ms = self._beginnings.time_ms(request.start)
        plan = self._compile(request, name, self._next_version(name), begin_ms)
        info = described(self._ports, Topic(plan.stream.topic))
        landmark_ms = first_step_ms(plan.window, begin_ms)
        beginning = self._beginnings.of(plan, request.start, request.history, landmark_ms)
        definition = self._maker.first(request, name, plan, info, beginning)
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
            raise too_many(self._tasks_max)

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

    def _ensure_output(self, plan: Plan) -> None:
        topic = Topic(plan.options.output_topic)
        self._ports.admin.ensure_output(topic, self._buckets.of_results)

    # ---------------------------------------------------------------------------- changing

    def change(self, name: str, request: TaskRequest, if_match: str | None) -> Changed:
        """Append a version. Raises NotFound, VersionMismatch, SqlError, Rejected, Conflict."""
        waits = attempts = 0
        while attempts < ATTEMPTS_MAX:
            definition, expected = self._found(name)
            self._compiler.check_rights(definition)
            _check_match(definition, if_match)
            number = definition.current.version + 1
            plan = self._compile(request, definition.name, number, self._ports.now_ms())
            if self._maker.unchanged(definition, request.sql, plan):
                return Changed(definition, changed=False)
            if definition.current.starts is None:
                if waits >= UNDECIDED_WAITS_MAX:
                    raise undecided(definition)
                self._ports.sleep(UNDECIDED_POLL_S)
                waits += 1
                continue
            attempts += 1
            describe = partial(described, self._ports)
            new = self._maker.next(definition, request.sql, request.options, plan, describe)
            self._ensure_output(plan)
            if self._ports.registry.replace_task(new, expected):
                self._ports.control.put_task(new)
                return Changed(new, changed=True)
        raise _contended(name)

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
        return self._transition(name, TaskDefinition.resumed)

    def delete(self, name: str) -> None:
        """End a task; its results stay in Kafka. Raises NotFound."""
        self._transition(name, lambda task: replace(task, state=TaskState.DELETED))

    def _transition(
        self, name: str, change: Callable[[TaskDefinition], TaskDefinition]
    ) -> TaskDefinition:
        for _ in range(ATTEMPTS_MAX):
            definition, expected = self._found(name)
            self._compiler.check_rights(definition)
            changed = change(definition)
            if changed == definition:
                return definition
            if changed.state is TaskState.DELETED:
                # First the copy: should ZooKeeper lose the task, it must not come back to life when
                # buckets have already put its progress away.
                self._ports.control.put_task(changed)
            if self._ports.registry.replace_task(changed, expected):
                # A leader may be copying what was before.
                put_copies(self._ports.control, [changed])
                return changed
        raise _contended(name)


def too_many(tasks_max: int) -> Conflict:
    """There are as many tasks as there may be."""
    return Conflict(
        f"there are {tasks_max} tasks already (api.tasks_max): delete one, or ask for a higher "
        "limit"
    )


def _taken(name: str) -> Conflict:
    return Conflict(f"there is a task {name}: `mars task add` (PUT /v1/tasks/{name}) changes it")


def _contended(name: str) -> Conflict:
    return Conflict(
        f"task {name} was changed by others at the same time: look at it, then try again"
    )


def undecided(definition: TaskDefinition) -> Conflict:
    """The leader has not begun the version before: a paused task reads nothing, not even what it
    has to read again after a loss of the store.
    """
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
            f'If-Match names {if_match[:80]!a}, and the current version is "{current}": look at '
            "the task again"
        )
