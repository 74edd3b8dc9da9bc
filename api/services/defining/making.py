"""What definitions become: a task's first version, its next one, and what is checked of both.

Nothing is written here: whoever registers one task, or a set of them, does so with what this makes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from api.schemas import NewTaskRequest
from api.services.beginning import Beginning
from api.services.compiling import TaskCompiler
from api.services.context import Ports
from api.services.inside.progress import ProgressTail
from mars.core.definitions import (
    RULES,
    Backfill,
    TaskDefinition,
    TaskState,
    TaskVersion,
    check_in_files,
    encode_definition,
)
from mars.core.errors import Conflict, Rejected, RequestError
from mars.core.plan import Plan, WatermarkScope
from mars.core.types import TaskName, Topic
from mars.core.windows import WindowShape, moment
from mars.protocol.outlived import needed_versions
from mars.protocol.ports import TopicInfo

TOPIC_POLL_S = 0.1
"""How often a request looks for the topic of its stream."""

TOPIC_LOOKS_MAX = 20
"""How often it looks before the topic counts as missing: 2 s in all."""

DEFINITION_BYTES_MAX = 900_000
"""Of a task's definition as JSON: a ZooKeeper node holds 1 MiB."""


class TaskMaker:
    """Makes definitions of what is asked for; safe for threads."""

    def __init__(self, ports: Ports, compiler: TaskCompiler, progress: ProgressTail) -> None:
        self._ports = ports
        self._compiler = compiler
        self._progress = progress

    def first(
        self,
        request: NewTaskRequest,
        name: TaskName,
        plan: Plan,
        info: TopicInfo,
        beginning: Beginning,
    ) -> TaskDefinition:
        """A new task, whose plan bears its version. Raises Rejected."""
        _check_history(plan, beginning.backfills)
        _check_landmark(plan.window, beginning)
        version = TaskVersion(
            version=plan.version,
            sql=request.sql,
            options=request.options,
            stream=plan.stream,
            topic_id=info.topic_id,
            created_ms=self._ports.now_ms(),
            starts=beginning.starts,
            complete_from_ms=beginning.complete_from_ms,
            unread_ms=beginning.unread_ms,
            rules=RULES,
            zone=plan.window.zone,
            landmark_ms=plan.window.begins_ms,
        )
        definition = TaskDefinition(
            name,
            TaskState.RUNNING,
            (version,),
            first_version=version.version,
            backfills=beginning.backfills,
        )
        _check_size(definition)
        self._compiler.keep(name, version, plan)
        return definition

    def unchanged(self, definition: TaskDefinition, sql: str, plan: Plan) -> bool:
        """Whether query and options are those of the current version."""
        current = definition.current
        if current.sql != sql:
            return False
        try:
            return self._compiler.stored(definition.name, current).options == plan.options
        except RequestError:
            return False

    def next(
        self,
        definition: TaskDefinition,
        sql: str,
        options: Mapping[str, object],
        plan: Plan,
        describe: Callable[[Topic], TopicInfo],
    ) -> TaskDefinition:
        """The task with one more version, which the leader lets begin. Raises Rejected, Conflict,
        and what `describe` does.
        """
        _check_history(plan, definition.backfills)
        _check_later_landmark(plan.window, self._ports.now_ms())
        info = _same_topic(definition.current, plan, describe)
        version = TaskVersion(
            version=plan.version,
            sql=sql,
            options=options,
            stream=plan.stream,
            topic_id=info.topic_id,
            created_ms=self._ports.now_ms(),
            starts=None,
            rules=RULES,
            zone=plan.window.zone,
            landmark_ms=plan.window.begins_ms,
        )
        kept = needed_versions(definition, self.closed(definition))
        changed = replace(definition, versions=(*kept, version))
        _check_size(changed)
        self._compiler.keep(definition.name, version, plan)
        return changed

    def closed(self, definition: TaskDefinition) -> frozenset[int]:
        """The versions that have a begun successor and are emitted to the end, as far as known."""
        return self._progress.done(definition)


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


def _same_topic(
    current: TaskVersion, plan: Plan, describe: Callable[[Topic], TopicInfo]
) -> TopicInfo:
    """The topic of both. Raises Rejected for another one, Conflict for one that was made anew."""
    topic = Topic(plan.stream.topic)
    if topic != current.stream.topic:
        raise Rejected(
            f"the task reads topic {current.stream.topic}, the new query {topic}: make a new "
            "task for another topic"
        )
    info = describe(topic)
    if info.topic_id != current.topic_id:
        raise Conflict(
            f"topic {topic} was deleted and made again since the task was registered: delete "
            "the task and register it again"
        )
    return info


def _check_history(plan: Plan, backfills: Collection[Backfill]) -> None:
    """Raise Rejected for a history whose rows would come between newer ones of the same keys, or
    lack what the query reads.
    """
    if any(one.files is not None for one in backfills):
        check_in_files(plan.fields)
    if backfills and plan.maps_in_order:
        raise Rejected(
            "windows of so many rows, and sessions, are read in the order of a partition, and the "
            "task has a history that Spark computes apart: register another task for them"
        )
    if backfills and plan.options.watermark is not WatermarkScope.PARTITION:
        raise Rejected(
            f"option watermark: {plan.options.watermark.value} does not work with a history that "
            "Spark computes, because its rows come beside newer ones of the same keys; register a "
            "task that starts later, or use watermark: partition"
        )


def first_step_ms(window: WindowShape, time_ms: int | None) -> int | None:
    """The landmark of windows in whose first step a time lies; None for all others."""
    if time_ms is None or window.begins_ms != window.panes(time_ms):
        return None
    return window.begins_ms


def _check_landmark(window: WindowShape, beginning: Beginning) -> None:
    """Raise Rejected for windows of which none would ever be complete."""
    begins_ms, complete_ms = window.begins_ms, beginning.complete_from_ms
    if begins_ms is None or complete_ms is None or begins_ms >= complete_ms:
        return
    raise Rejected(
        f"its windows begin at the landmark {moment(begins_ms)}, and the task would read rows only "
        f"from {moment(complete_ms)} on, so all of them would lack rows: let it start at the "
        f'landmark ("start": {{"timestamp": {begins_ms}}}) or earliest, or write a later landmark'
    )


def _check_later_landmark(window: WindowShape, now_ms: int) -> None:
    """Raise Rejected for windows that would lack the rows of the version before for ever."""
    begins_ms = window.begins_ms
    if begins_ms is None or begins_ms > now_ms:
        return
    raise Rejected(
        "a new version begins where the old one ends, so its windows since the landmark "
        f"{moment(begins_ms)} would lack the rows of the old one: write a landmark that is still "
        "to come, or register the query under another name, to read the topic from the landmark on"
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
