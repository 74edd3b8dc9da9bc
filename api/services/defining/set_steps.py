"""What a set of tasks does to each of them, and what is wrong with which.

task of the request  ──none of that name, or a deleted one──▶ create
                     ──another query or other options───────▶ change
                     ──the same────────────────────────────▶ unchanged
task that the set made, and that is not in the request ──prune──▶ remove
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TypeVar

from api.http.body import PROBLEMS_MAX
from api.http.errors import WrongMembers
from api.names import new_set_name, new_task_name
from api.schemas import NewTaskRequest, TaskSetRequest
from api.services.beginning import Beginning, Beginnings
from api.services.compiling import TaskCompiler
from api.services.context import Ports
from api.services.defining.making import TaskMaker, described, first_step_ms
from mars.client import answers
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import (
    Conflict,
    Forbidden,
    MarsError,
    Rejected,
    RequestError,
    SqlError,
    TopicRefused,
)
from mars.core.plan import Plan
from mars.core.types import TaskName, Topic
from mars.process.compiling import declared_now
from mars.protocol.ports import TopicInfo

WRONG_SHOWN = 100
"""Wrong tasks in the one sentence for people; the list of errors has more of them."""

Answer = TypeVar("Answer")


class Action(StrEnum):
    """What is done to a task."""

    CREATE = "create"
    CHANGE = "change"
    UNCHANGED = "unchanged"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class SetStep:
    """What is done to one task: from `before`, at the registry's version `expected`, to `after`.

    `before` is None where there was no such task, or a deleted one. `place` says where in the
    request it stands.
    """

    place: str
    name: TaskName
    action: Action
    before: TaskDefinition | None
    after: TaskDefinition
    expected: int | None

    @property
    def waits(self) -> bool:
        """Whether the leader has first to decide where the version before begins."""
        if self.action is not Action.CHANGE or self.before is None:
            return False
        return self.before.current.starts is None

    @property
    def view(self) -> answers.TaskChange:
        """As it is told."""
        told = self.before if self.action in {Action.CHANGE, Action.REMOVE} else None
        return answers.TaskChange(
            name=self.name,
            action=self.action.value,
            version=self.after.current.version,
            before=None if told is None else _before(told),
        )


def _before(task: TaskDefinition) -> answers.TaskBefore:
    current = task.current
    return answers.TaskBefore(
        version=current.version, sql=current.sql, options=dict(current.options)
    )


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with one task of a set."""

    place: str
    name: str
    error: MarsError


class SetReading:
    """Reads one request; what several of its tasks need is asked once."""

    def __init__(
        self,
        ports: Ports,
        compiler: TaskCompiler,
        maker: TaskMaker,
        beginnings: Beginnings,
        request: TaskSetRequest,
    ) -> None:
        """Raises WrongMembers for what is wrong with the set itself."""
        self._ports = ports
        self._compiler = compiler
        self._maker = maker
        self._beginnings = beginnings
        self._prune = request.prune
        self._set_name = _set_name(request)
        self._tasks = [_with_topic(task, request) for task in request.tasks]
        self._check_output(request)
        self._stream_of = declared_now(ports.registry.streams())
        self._asked: dict[Hashable, object] = {}

    def _check_output(self, request: TaskSetRequest) -> None:
        """Raises WrongMembers for a topic that keeps one row of each key: keys of tasks are alike,
        so that of one task would put away those of another.
        """
        topic = None if request.set is None else request.set.output_topic
        if topic is not None and self._ports.admin.compacted(Topic(topic)):
            raise _member(
                "set.output_topic",
                f"topic {topic} is compacted, which keeps one row of each key, and tasks have keys "
                "in common: choose a topic with cleanup.policy delete, or a new one",
            )

    def steps(self, kept: Mapping[TaskName, tuple[TaskDefinition, int]]) -> list[SetStep]:
        """What is to be done where these tasks are there.

        Raises WrongMembers, Forbidden or Conflict that name all that is wrong.
        """
        steps: list[SetStep] = []
        wrong: list[Wrong] = []
        for place, name, make in [*self._named(kept), *self._left_out(kept)]:
            try:
                steps.append(make())
            except (RequestError, TopicRefused) as error:
                wrong.append(Wrong(place, name, error))
        refuse(wrong)
        return steps

    def _named(
        self, kept: Mapping[TaskName, tuple[TaskDefinition, int]]
    ) -> Iterator[tuple[str, str, Callable[[], SetStep]]]:
        places: dict[str, str] = {}
        for number, task in enumerate(self._tasks):
            place = f"tasks.{number}"
            first = places.setdefault(task.name, place)
            yield place, task.name, partial(self._step, place, first, task, kept)

    def _step(
        self,
        place: str,
        first: str,
        task: NewTaskRequest,
        kept: Mapping[TaskName, tuple[TaskDefinition, int]],
    ) -> SetStep:
        name = new_task_name(task.name)
        if first != place:
            raise Rejected(f"{first} has the same name: rename one of them")
        there, expected = kept.get(name, (None, None))
        version = 1 if there is None else there.current.version + 1
        begin_ms = self._once(("begin", place), partial(self._beginnings.time_ms, task.start))
        plan = self._once(
            ("plan", place, version), partial(self._compiled, task, name, version, begin_ms)
        )
        if there is None or there.state is TaskState.DELETED:
            made = self._new(task, name, plan, first_step_ms(plan.window, begin_ms))
            return SetStep(place, name, Action.CREATE, None, made, expected)
        self._compiler.check_rights(there)
        if self._set_name and there.set_name not in {"", self._set_name}:
            raise Conflict(f"set {there.set_name} has made it: remove it from that set first")
        if self._maker.unchanged(there, task.sql, plan):
            return SetStep(place, name, Action.UNCHANGED, there, there, expected)
        changed = self._maker.next(there, task.sql, task.options, plan, self._info)
        return SetStep(place, name, Action.CHANGE, there, changed, expected)

    def _compiled(
        self, task: NewTaskRequest, name: TaskName, version: int, begin_ms: int | None
    ) -> Plan:
        return self._compiler.compile(
            task.sql,
            task.options,
            task=name,
            version=version,
            stream_of=self._stream_of,
            begin_ms=begin_ms,
        )

    def _new(
        self, task: NewTaskRequest, name: TaskName, plan: Plan, landmark_ms: int | None
    ) -> TaskDefinition:
        info = self._info(Topic(plan.stream.topic))
        beginning: Beginning = self._once(
            ("beginning", plan.stream, plan.maps_in_order, task.start, task.history, landmark_ms),
            partial(self._beginnings.of, plan, task.start, task.history, landmark_ms),
        )
        made = self._maker.first(task, name, plan, info, beginning)
        return replace(made, set_name=self._set_name)

    def _info(self, topic: Topic) -> TopicInfo:
        return self._once(("topic", topic), partial(described, self._ports, topic))

    def _left_out(
        self, kept: Mapping[TaskName, tuple[TaskDefinition, int]]
    ) -> Iterator[tuple[str, str, Callable[[], SetStep]]]:
        """What the set has made, lives, and is not named."""
        named = {task.name for task in self._tasks}
        for name in sorted(kept) if self._prune else ():
            there, expected = kept[name]
            ours = there.set_name == self._set_name and there.state is not TaskState.DELETED
            if ours and name not in named:
                yield "prune", name, partial(self._removed, there, expected)

    def _removed(self, there: TaskDefinition, expected: int) -> SetStep:
        self._compiler.check_rights(there)
        gone = replace(there, state=TaskState.DELETED)
        return SetStep("prune", there.name, Action.REMOVE, there, gone, expected)

    def _once(self, question: Hashable, ask: Callable[[], Answer]) -> Answer:
        """The answer that was given first, also if it was an error."""
        if question not in self._asked:
            try:
                self._asked[question] = ask()
            except (RequestError, TopicRefused) as error:
                # Its traceback, or that of what it came of, would keep the parsed query.
                error.__context__ = error.__cause__ = None
                self._asked[question] = error.with_traceback(None)
        answer = self._asked[question]
        if isinstance(answer, RequestError | TopicRefused):
            raise answer
        return answer  # type: ignore[return-value]  # what the same question gave


def _set_name(request: TaskSetRequest) -> str:
    """The set's name, empty for none. Raises WrongMembers."""
    if request.set is not None:
        try:
            return new_set_name(request.set.name)
        except Rejected as error:
            raise _member("set.name", str(error)) from None
    if request.prune:
        raise _member("prune", "prune deletes what a set has made: name the set (set.name)")
    return ""


def _member(member: str, detail: str) -> WrongMembers:
    return WrongMembers([answers.MemberProblem(member=member, detail=f"{member}: {detail}")])


def _with_topic(task: NewTaskRequest, request: TaskSetRequest) -> NewTaskRequest:
    """The task as it would stand there without a set that names a topic."""
    topic = None if request.set is None else request.set.output_topic
    if topic is None:
        return task
    return task.model_copy(update={"options": {"output_topic": topic, **task.options}})


def refuse(wrong: Sequence[Wrong]) -> None:
    """Raise one error that names them all, if there are any: Forbidden if one is."""
    forbidden = [one for one in wrong if isinstance(one.error, Forbidden)]
    if forbidden:
        raise Forbidden(_sentence(forbidden))
    if wrong and all(isinstance(one.error, Conflict) for one in wrong):
        raise Conflict(_sentence(wrong))
    if wrong:
        raise WrongMembers([_problem(one) for one in wrong[:PROBLEMS_MAX]], _sentence(wrong))


def _sentence(wrong: Sequence[Wrong]) -> str:
    more = len(wrong) - WRONG_SHOWN
    told = "; ".join(_problem(one).detail for one in wrong[:WRONG_SHOWN])
    return told if more <= 0 else f"{told}; and {more} more are wrong"


def _problem(one: Wrong) -> answers.MemberProblem:
    name = one.name if one.name.isidentifier() else ascii(one.name[:80])
    error, place = one.error, one.place
    if isinstance(error, SqlError):
        detail = f"task {name} ({place}), line {error.line}, column {error.column}: {error.detail}"
        return answers.MemberProblem(
            member=f"{place}.sql", detail=detail, line=error.line, column=error.column
        )
    return answers.MemberProblem(member=place, detail=f"task {name} ({place}): {error}")
