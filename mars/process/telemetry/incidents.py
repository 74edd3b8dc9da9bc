"""Incidents as they are noticed, and the thread that writes them down: nobody waits for it."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from mars.core.definitions import TaskDefinition, resume_helps
from mars.core.errors import MarsError
from mars.core.types import Bucket, MemberId, Range, RejectedRange, StoreEpoch, TaskName
from mars.core.windows.moments import HOUR_MS, MINUTE_MS, moment
from mars.engine.decode.limits import NOT_UNPACKED
from mars.process.life import Life
from mars.process.outliving import Outliving
from mars.process.telemetry import logs
from mars.protocol.ports import Incident, IncidentKind, IncidentLog
from mars.protocol.ports.notes import Root

WAITING_MAX = 1_000
"""Incidents that wait to be written while Kafka is away; further ones are only logged."""

RETRY_S = 1.0
"""Pause before a write is tried again."""

Tell = Callable[[Incident], None]


class IncidentTeller:
    """Writes incidents down, in order, each until it is written or the process stops."""

    def __init__(self, log: IncidentLog) -> None:
        self._incidents = log
        self._log = logs.logger("incidents")
        self._waiting: queue.Queue[Incident] = queue.Queue(WAITING_MAX)

    def tell(self, incident: Incident) -> None:
        """Write it down soon; returns at once."""
        try:
            self._waiting.put_nowait(incident)
        except queue.Full:
            logs.warning(self._log, incident.what, kind=incident.kind.value)

    def start(self, life: Life) -> None:
        """Begin to write; a daemon, because a write may wait for Kafka when the process stops."""
        threading.Thread(target=self._run, args=(life,), name="incidents", daemon=True).start()

    def _run(self, life: Life) -> None:
        rounds = Outliving("the teller of incidents", life.wait)
        while not life.stopping:
            rounds.round(lambda: self._write_one(life))

    def _write_one(self, life: Life) -> None:
        with suppress(queue.Empty):
            incident = self._waiting.get(timeout=RETRY_S)
            while not self._written(incident) and not life.wait(RETRY_S):
                pass

    def _written(self, incident: Incident) -> bool:
        try:
            self._incidents.put(incident)
        except MarsError as problem:
            logs.warning(
                self._log,
                "an incident could not be written yet; it is tried again",
                problem=str(problem),
            )
            return False
        return True


def untold(_incident: Incident) -> None:
    """Tells nobody: for those who have no topic to write to."""


# ------------------------------------------------------------------------------- happenings


def rewound(epoch: StoreEpoch, reason: str) -> Incident:
    """The leader has raised the store's epoch."""
    return Incident(
        id=f"rewound-{epoch}",
        time_ms=_now_ms(),
        kind=IncidentKind.REWOUND,
        what=f"The store was lost or went back ({reason}); it begins anew as epoch {epoch}.",
        means="Results wait until the rows of open windows are read again from Kafka; none is lost "
        "or comes twice.",
        do="Nothing for the results. If nobody restarted Redis, find out who or what empties it.",
    )


def failed(definition: TaskDefinition, revision: int) -> Incident:
    """A task is failed now; `revision` is the registry's, which grows with each change."""
    task, version = definition.name, definition.current
    means, do = _mendable(task) if resume_helps(definition.detail) else _beyond_mending(task)
    return Incident(
        id=f"failed-{task}-{version.created_ms}-{revision}",
        time_ms=_now_ms(),
        kind=IncidentKind.FAILED,
        what=f"Version {version.version} of the task stopped: {definition.detail}.",
        means=means,
        do=do,
        task=task,
    )


def _mendable(task: TaskName) -> tuple[str, str]:
    return (
        "It takes no rows and emits nothing until it is resumed. Other tasks go on.",
        "Do what the sentence says. If the cause lies outside the task, fix it, then run `mars "
        f"task resume {task}`.",
    )


def _beyond_mending(task: TaskName) -> tuple[str, str]:
    """What a task can never go on with, such as another topic of the same name."""
    return (
        "It takes no more rows, and its open windows will not come. Other tasks go on.",
        f"Run `mars task rm {task}`, then `mars task add --name {task}` with its query, and with "
        "`--start earliest` if the rows that are there already are to count.",
    )


def incomplete(task: TaskName, bucket: Bucket, part: RejectedRange) -> Incident:
    """Rows of a task were gone when they were to be read."""
    return _of_offsets(
        IncidentKind.INCOMPLETE,
        task,
        bucket,
        part,
        what=f"Kafka no longer had offsets {part.first} to {part.next - 1} of lane {part.lane} "
        "when they were to be read.",
        means="Windows that may lack these rows say mars-complete 0.",
        do="Set the topic's retention to more than window, delay and the longest outage together.",
    )


def undecodable(task: TaskName, bucket: Bucket, part: RejectedRange) -> Incident:
    """Messages of a task could not be unpacked."""
    return _of_offsets(
        IncidentKind.UNDECODABLE,
        task,
        bucket,
        part,
        what=f"{part.rows} messages of lane {part.lane}, from offset {part.first} to "
        f"{part.next - 1}, cannot be counted: {NOT_UNPACKED}.",
        means="Each of them is a bad row; reading goes on behind them.",
        do="Find out who writes such batches: producers with compression.type zstd and a large "
        "batch.size, or somebody who means harm. `mars dead` names the offsets.",
    )


def _of_offsets(
    kind: IncidentKind,
    task: TaskName,
    bucket: Bucket,
    part: RejectedRange,
    *,
    what: str,
    means: str,
    do: str,
) -> Incident:
    """One about a range of a lane; told again, it is the same."""
    return Incident(
        id=f"{kind}-{task}-{part.lane}-{part.first}-{part.next}",
        time_ms=_now_ms(),
        kind=kind,
        what=what,
        means=means,
        do=do,
        task=task,
        bucket=bucket,
        lane=part.lane,
        first=part.first,
        next=part.next,
    )


def panes_lost(task: TaskName, bucket: Bucket | None, detail: str) -> Incident:
    """Panes that were saved in Kafka are not there, when they were needed after a loss."""
    return Incident(
        id=_id_of(IncidentKind.INCOMPLETE, f"{task} {detail}"),
        time_ms=_now_ms(),
        kind=IncidentKind.INCOMPLETE,
        what=f"Saved open windows could not be read back: {detail}",
        means="Windows that may lack these rows say mars-complete 0.",
        do="Find out who deletes records of the state topic.",
        task=task,
        bucket=bucket,
    )


def fenced(bucket: Bucket | None, detail: str) -> Incident:
    """A reducer found that somebody else owns its bucket."""
    return Incident(
        id=f"fenced-{uuid.uuid4().hex}",
        time_ms=_now_ms(),
        kind=IncidentKind.FENCED,
        what=f"A reducer went on with a bucket that already had another owner: {detail}",
        means="Nothing: what it tried to write was refused, and the new owner goes on.",
        do="Nothing, unless it comes often: then look for reducers that hang or lose ZooKeeper.",
        bucket=bucket,
    )


def audit_mismatch(bucket: Bucket | None, detail: str) -> Incident:
    """The last emission is not in the output as it was written."""
    return Incident(
        id=_id_of(IncidentKind.AUDIT_MISMATCH, detail),
        time_ms=_now_ms(),
        kind=IncidentKind.AUDIT_MISMATCH,
        what=f"Rows that were emitted are not in the output as they were written: {detail}.",
        means="Consumers may miss these rows or see others. Later windows are not affected.",
        do="Find out who deletes from or writes to the output topic, or whether Kafka lost rows; "
        "`mars verify` says which windows differ.",
        bucket=bucket,
    )


def restored(bucket: Bucket | None, detail: str) -> Incident:
    """What a broker's restart had hidden can be read again."""
    return Incident(
        id=_id_of(IncidentKind.RESTORED, detail),
        time_ms=_now_ms(),
        kind=IncidentKind.RESTORED,
        what=f"A broker that restarted did not end a committed transaction everywhere: {detail}.",
        means="Consumers got these rows late, and none twice. Later windows are not affected.",
        do="Nothing for the results. Find out why the broker restarted, and run Kafka with several "
        "copies of each partition.",
        bucket=bucket,
    )


def withheld(task: TaskName, bucket: Bucket | None, detail: str) -> Incident:
    """A commit left results out that are larger than Kafka takes."""
    return Incident(
        id=_id_of(IncidentKind.WITHHELD, f"{task} {bucket} {detail}"),
        time_ms=_now_ms(),
        kind=IncidentKind.WITHHELD,
        what=f"Too large to be sent: {detail}.",
        means="These results are missing, and their rows count as emitted; the other results of "
        "their windows come. `mars.dead` names each of them.",
        do="Select less text, for example SUBSTR(name, 1, 1000) in place of name, or leave such "
        "rows out by WHERE.",
        task=task,
        bucket=bucket,
    )


def restarting(member: MemberId, host: str, times: int, within_ms: int) -> Incident:
    """A leader has seen a process begin so often; within an hour this is one incident."""
    now_ms = _now_ms()
    return Incident(
        id=f"{IncidentKind.RESTARTING.value}-{member}-{now_ms // HOUR_MS}",
        time_ms=now_ms,
        kind=IncidentKind.RESTARTING,
        what=f"{member} on {host} has started {times} times within "
        f"{within_ms // MINUTE_MS} minutes.",
        means="What it reads or owns waits whenever it is away. No row is lost or counted twice.",
        do="Read the end of its log. If it is killed for its memory, give it more. If it always "
        "ends while it reads one partition, a message there ends it: please report that.",
    )


def source_gone(definition: TaskDefinition) -> Incident:
    """The topic that a task reads was deleted, and not made again so far."""
    task, current = definition.name, definition.current
    topic = current.stream.topic
    return Incident(
        id=f"{IncidentKind.SOURCE_GONE.value}-{task}-{current.topic_id}",
        time_ms=_now_ms(),
        kind=IncidentKind.SOURCE_GONE,
        what=f"Kafka has no topic {topic} any more.",
        means="No further rows come. Those that were read before stay counted; what nobody had "
        "read is lost, and no window says so.",
        do=f"Run `mars task rm {task}`. If the topic was deleted by mistake, create it again, and "
        f"then add the task anew: `mars task add --name {task}` with its query. The offsets of the "
        "new topic are others.",
        task=task,
    )


def partial_lost(
    root: Root, ranges: Sequence[Range], buckets: Sequence[Bucket], closed_ms: int | None
) -> Incident:
    """A tracker found that a bucket has read past a partial; `buckets` are those that may have.

    Windows that end at or before `closed_ms` were emitted there by then (None: none was).
    """
    (task, epoch, version), seq = root
    named = f"bucket {buckets[0]}" if len(buckets) == 1 else f"some of the buckets {list(buckets)}"
    offsets = ", ".join(f"{part.first} to {part.next - 1} of lane {part.lane}" for part in ranges)
    part = ranges[0] if len(ranges) == 1 else None
    emitted = (
        "No window was emitted without them."
        if closed_ms is None
        else f"Windows that end by {moment(closed_ms)} were emitted already. They may lack these "
        "rows, and stay as they are."
    )
    return Incident(
        id=f"{IncidentKind.PARTIAL_LOST.value}-{task}-{epoch}-{version}-{seq}",
        time_ms=_now_ms(),
        kind=IncidentKind.PARTIAL_LOST,
        what=f"What {named} should have counted of offsets {offsets or 'not known'} was not in the "
        f"log when it was read (version {version}, entry {seq} of store epoch {epoch}).",
        means=f"Open windows read them again. {emitted} The ledger lacks them.",
        do="Find out who or what removes entries from Redis; `mars verify` says which windows "
        "differ.",
        task=task,
        bucket=buckets[0] if len(buckets) == 1 else None,
        lane=part.lane if part else None,
        first=part.first if part else None,
        next=part.next if part else None,
    )


def _id_of(kind: IncidentKind, detail: str) -> str:
    """The same for the same words: what is found again is no new incident."""
    return f"{kind.value}-{hashlib.blake2b(detail.encode(), digest_size=8).hexdigest()}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
