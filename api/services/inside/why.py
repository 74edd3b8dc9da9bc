"""Why no result is coming: gathers the evidence and has it explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, Ports
from api.services.inside.missing import Away, Missing
from api.services.inside.naming import said_name
from api.services.inside.progress import ProgressTail
from api.services.operation.logs import (
    LoggedRowsDraft,
    LogReader,
    drafts_of,
    merged_through,
)
from api.services.operation.pulse import Pulse
from api.services.tasks import TaskService
from mars.client.answers import Dropped, DroppedSample, HeldBy, PartitionWhy, Why, WindowWhy
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.types import Bucket, MemberId, Topic
from mars.core.windows import moment
from mars.core.windows.counting import WindowNumber
from mars.inspect.evidence import Evidence, KnownOwner, LoggedRows, Reading
from mars.inspect.explaining import (
    Explanation,
    Holder,
    LaneView,
    OpenWindow,
    anything_open,
    explain,
)
from mars.inspect.explaining_words import summarise
from mars.protocol.ports import Assignment, Head, Incident, IncidentKind, MemberInfo, Progress

LATELY_MS = 3_600_000
"""Incidents of the last hour are mentioned: later, nobody waits for a result because of them."""

INCIDENTS_LOOKED_AT = 20
"""Reducers that were fenced are passed over, and these are few."""

SAMPLES_MAX = 20
"""References to dropped rows in one answer."""


class _Members(NamedTuple):
    """Who is alive.

    `bulk` maps the task's history, or what it is behind: of several, the longest alive.
    """

    mappers: Mapping[MemberId, MemberInfo]
    reducers: Mapping[MemberId, MemberInfo]
    bulk: MemberId | None


NOBODY = _Members({}, {}, None)


class WhyService:
    """What the path /v1/tasks/{name}/why does."""

    def __init__(
        self,
        ports: Ports,
        compiler: TaskCompiler,
        buckets: BucketCount,
        tasks: TaskService,
        progress: ProgressTail,
        logs: LogReader,
        pulse: Pulse,
        away: Away,
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._buckets = buckets
        self._tasks = tasks
        self._progress = progress
        self._logs = logs
        self._pulse = pulse
        self._away = away

    def why(self, name: str) -> Why:
        """The answer. Raises NotFound; servers that are away are named in the summary."""
        definition = self._tasks.show(name)
        since_ms = self._ports.now_ms() - LATELY_MS
        incidents = Missing(self._away()).begin(
            "kafka",
            lambda: self._ports.incidents.recent(definition.name, since_ms, INCIDENTS_LOOKED_AT),
        )
        evidence = self.evidence(definition)
        explanation = explain(evidence)
        summary = summarise(evidence, explanation) + _lately(definition, incidents() or [])
        return _view(evidence, explanation, summary)

    def evidence(self, definition: TaskDefinition) -> Evidence:
        """One look at everything; the log is read before the progress that accounts for it."""
        missing = Missing(self._away())
        ports, name = self._ports, definition.name
        topic = Topic(definition.current.stream.topic)
        buckets = self._buckets()
        ends = missing.begin("kafka", lambda: ports.admin.ends(topic))
        dead = missing.begin("kafka", lambda: ports.dead.recent(name, SAMPLES_MAX))
        members = missing.begin("zookeeper", lambda: self._members(definition))
        assigned = missing.begin("zookeeper", ports.coordinator.assignment)
        head = missing.ask("redis", lambda: ports.log.head([name]).get(name))
        drafts = missing.ask("redis", lambda: self._drafts(definition, head, buckets)) or []
        records = missing.ask("kafka", lambda: self._progress.records(definition)) or ()
        mappers, reducers, bulk = members() or NOBODY
        assignment = assigned()
        known_ends, letters = ends() or {}, dead() or []
        found = Evidence(
            definition=definition,
            plans=self._compiler.plans(definition),
            buckets=buckets,
            now_ms=head.now_ms if head else ports.now_ms(),
            head=head,
            store_epoch=assignment.store_epoch if assignment else None,
            ends=known_ends,
            readings=readings(mappers, topic, self._pulse.unheard_ms(mappers)),
            owners=owners(assignment, reducers),
            mappers=len(mappers),
            reducers=len(reducers),
            bulk=bulk,
            progress=records,
            logged=logged(definition, drafts, records),
            dead=tuple(letters),
            missing=missing.sentences,
        )
        if missing.services or anything_open(found):
            return found
        return self._settled(found, drafts, missing)

    def _settled(
        self, found: Evidence, drafts: Sequence[LoggedRowsDraft], missing: Missing
    ) -> Evidence:
        """With what was being committed when the log was looked at.

        Rows that are neither in the log nor in the progress may be on their way from one to the
        other: only where no window is open does anything that is said rest on that.
        """
        definition = found.definition
        settled = missing.ask("kafka", lambda: self._progress.settle(self._ports.sleep))
        records = self._progress.known(definition)
        return replace(
            found,
            progress=records,
            logged=logged(definition, drafts, records),
            settled=bool(settled),
            missing=missing.sentences,
        )

    def _members(self, definition: TaskDefinition) -> _Members:
        coordinator = self._ports.coordinator
        helpers = ("bulk",) if definition.backfills or definition.catch_up else ()
        roster = coordinator.roster("mapper", "reducer", *helpers)
        bulk = roster.get("bulk", {})
        return _Members(
            roster["mapper"],
            roster["reducer"],
            min(bulk, key=lambda name: (bulk[name].started_ms, name), default=None),
        )

    def _drafts(
        self, definition: TaskDefinition, head: Head | None, buckets: int
    ) -> list[LoggedRowsDraft]:
        if head is None:
            return []
        with self._logs.portions(definition, head, buckets) as portions:
            return [
                draft
                for portion in portions
                for bucket, piece in portion.items()
                for draft in drafts_of(bucket, piece)
            ]


def logged(
    definition: TaskDefinition,
    drafts: Sequence[LoggedRowsDraft],
    records: Sequence[Progress],
) -> tuple[LoggedRows, ...]:
    """What the logs hold, less what the records account for."""
    committed = {(record.version, record.bucket): record for record in records}
    return tuple(
        draft.against(
            merged_through(definition, draft.version, committed.get((draft.version, draft.bucket)))
        )
        for draft in drafts
    )


def readings(
    mappers: Mapping[MemberId, MemberInfo], topic: Topic, unheard_ms: Mapping[MemberId, int]
) -> dict[int, Reading]:
    """Which mapper reads which partition of a topic."""
    return {
        part.partition: Reading(member, part.state, unheard_ms[member], tuple(info.missing))
        for member, info in sorted(mappers.items())
        for part in info.partitions
        if part.topic == topic
    }


def owners(
    assignment: Assignment | None, reducers: Mapping[MemberId, MemberInfo]
) -> dict[Bucket, KnownOwner]:
    """Which live reducer owns which bucket, and what it says of it."""
    if assignment is None:
        return {}
    return {
        bucket: KnownOwner(
            owner.member,
            next(
                (
                    status.state
                    for status in reducers[owner.member].buckets
                    if status.bucket == bucket and status.epoch == owner.epoch
                ),
                None,
            ),
            tuple(reducers[owner.member].missing),
        )
        for bucket, owner in assignment.owners.items()
        if owner.member in reducers
    }


# ------------------------------------------------------------------------------------ answer


def _lately(definition: TaskDefinition, incidents: Sequence[Incident]) -> str:
    """A further sentence if something has happened to the task's results lately, since it is there.

    That a task has failed is said by its state already.
    """
    passed_over = {IncidentKind.FENCED}
    if definition.state is TaskState.FAILED:
        passed_over.add(IncidentKind.FAILED)
    since_ms = min(version.created_ms for version in definition.versions)
    for incident in incidents:
        if incident.kind not in passed_over and incident.time_ms >= since_ms:
            return f" At {moment(incident.time_ms)}: {incident.what}"
    return ""


def _view(evidence: Evidence, explanation: Explanation, summary: str) -> Why:
    ledger = evidence.ledger
    return Why(
        windows=[_window(window) for window in explanation.windows],
        more=explanation.more,
        dropped=Dropped(
            bad=ledger.bad,
            future=ledger.future,
            late=ledger.late,
            samples=[
                DroppedSample(
                    partition=letter.partition,
                    offset=letter.first,
                    next=letter.next,
                    rows=letter.rows,
                    reason=letter.reason,
                )
                for letter in evidence.dead
            ],
        ),
        summary=summary,
    )


def _window(window: OpenWindow) -> WindowWhy:
    counted = window.counted
    number = None if counted is None else WindowNumber(counted.number, counted.partition)
    return WindowWhy(
        **said_name(window.start_ms, window.end_ms, number),
        version=window.version,
        rows=window.rows,
        watermark=window.watermark_ms,
        expected_close=window.expected_close_ms,
        held_by=_holder(window.held_by),
        partitions=[_partition(lane) for lane in window.partitions],
    )


def _holder(holder: Holder) -> HeldBy:
    return HeldBy(
        lane=holder.lane,
        partition=holder.partition,
        bucket=holder.bucket,
        reason=holder.reason,
        member=holder.member,
        watermark=holder.watermark_ms,
        lag=holder.lag,
    )


def _partition(lane: LaneView) -> PartitionWhy:
    return PartitionWhy(
        lane=lane.lane,
        partition=lane.partition,
        watermark=lane.watermark_ms,
        lag=lane.lag,
        idle=lane.idle,
        reason=lane.reason,
        member=lane.member,
    )
