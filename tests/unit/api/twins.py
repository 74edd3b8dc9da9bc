"""What the API's tests run on: twins of all ports, and a client without a network.

World                   twins, services, application; `world.http` talks to it
world.run_batch(...)    what a mapper does: decode, map, append
world.commit(...)       what a reducer does: progress of one bucket
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

import httpx

from api.app import create_app
from api.routes.inside import Stopping
from api.services.access import AccessPolicy
from api.services.all import Services, build
from api.services.context import ClusterContext, Ports
from api.services.operation.health import Health
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.adapters.memory.incidents import MemoryIncidentLog
from mars.adapters.memory.keys import MemoryKeyRegistry
from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.memory.progress import MemoryProgressLog
from mars.adapters.memory.queries import MemoryQueryRegistry, MemoryQueryRows
from mars.adapters.memory.registry import MemoryRegistry
from mars.adapters.memory.source import MemorySource
from mars.adapters.memory.source_rows import MemorySourceRows
from mars.adapters.result_rows import lowest_first, newest_rows
from mars.core.definitions import FileHistory, HistoryFile, TaskDefinition
from mars.core.errors import Rejected, TopicRefused, Unavailable
from mars.core.plan import Plan, Stream
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Lane,
    LeaderEpoch,
    MemberId,
    Records,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
    live_lane,
)
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import (
    AppendOutcome,
    Assignment,
    BucketStatus,
    CommittedRow,
    ControlState,
    DeadLetter,
    DeadPage,
    Emission,
    Ledger,
    MemberInfo,
    Owner,
    PartitionReading,
    Progress,
    ProgressRecord,
    ProgressSlice,
    RecentRows,
    ResultGap,
    TaskStart,
    TopicInfo,
    WantedNumber,
    WantedWindow,
)

BUCKETS = 4
BODY_BYTES_MAX = 100_000
CLUSTER = ClusterContext("default", BUCKETS, history_rows_min=1_000, chunk_rows=400)
EPOCH = StoreEpoch(1)

FLOWS: dict[str, Any] = {
    "topic": "flows",
    "format": "json",
    "fields": {
        "timestamp": "timestamp_ms",
        "sip": "string",
        "type": "string",
        "bytes": "int64",
        "loss": "float64",
        "ok": "bool",
    },
    "event_time": "timestamp",
}
BY_SIP = "SELECT sip, count(*), sum(bytes) FROM flows GROUP BY sip WINDOWING 60 s"


class Broken:
    """A server that can be switched off."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.away = False

    def reach(self) -> None:
        if self.away:
            raise Unavailable(self._service, "switched off by a test")


@dataclass
class TwinKafka:
    """Topics, offsets, progress, control, results and dead letters, as far as the API sees them."""

    server: Broken = field(default_factory=lambda: Broken("kafka"))
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    end_offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    start_offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    timed_offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    definitions: dict[TaskName, TaskDefinition] = field(default_factory=dict)
    streams: dict[StreamName, Stream] = field(default_factory=dict)
    progress: dict[Bucket, list[ProgressRecord]] = field(default_factory=dict)
    times_ms: dict[Bucket, list[int]] = field(default_factory=dict)
    uncommitted: dict[Bucket, int] = field(default_factory=dict)
    rows: list[CommittedRow] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    followers: list[TwinFollower] = field(default_factory=list)

    def make_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = TopicInfo(f"id-of-{name}-{len(self.topics)}", partitions)
        self.end_offsets[name] = dict.fromkeys(range(partitions), 0)
        self.start_offsets[name] = dict.fromkeys(range(partitions), 0)
        self.timed_offsets[name] = dict.fromkeys(range(partitions), 0)


class TwinAdmin:
    def __init__(self, kafka: TwinKafka) -> None:
        self._kafka = kafka

    def describe(self, topic: Topic) -> TopicInfo | None:
        self._kafka.server.reach()
        return self._kafka.topics.get(topic)

    def ensure_internal(self, buckets: int) -> None:
        self._kafka.server.reach()

    def ensure_output(self, topic: Topic, partitions: int) -> TopicInfo:
        self._kafka.server.reach()
        if topic not in self._kafka.topics:
            self._kafka.make_topic(topic, partitions)
        return self._kafka.topics[topic]

    def ensure_outputs(
        self, topics: Iterable[Topic], partitions: int
    ) -> dict[Topic, TopicInfo | TopicRefused]:
        return {topic: self.ensure_output(topic, partitions) for topic in topics}

    def compacted(self, topic: Topic) -> bool:
        self._kafka.server.reach()
        return topic in self._kafka.compacted

    def ends(self, topic: Topic) -> dict[int, int]:
        self._kafka.server.reach()
        return dict(self._kafka.end_offsets.get(topic, {}))

    def starts(self, topic: Topic) -> dict[int, int]:
        self._kafka.server.reach()
        return dict(self._kafka.start_offsets[topic])

    def offsets_at(self, topic: Topic, timestamp_ms: int) -> dict[int, int]:
        self._kafka.server.reach()
        return dict(self._kafka.timed_offsets[topic])


class TwinControl:
    def __init__(self, kafka: TwinKafka) -> None:
        self._kafka = kafka

    def put_task(self, definition: TaskDefinition, leader: LeaderEpoch | None = None) -> None:
        del leader
        self._kafka.server.reach()
        self._kafka.definitions[definition.name] = definition

    def put_tasks(
        self, definitions: Sequence[TaskDefinition], leader: LeaderEpoch | None = None
    ) -> None:
        for definition in definitions:
            self.put_task(definition, leader)

    def put_deleted(self, definition: TaskDefinition) -> None:
        self.put_task(definition)

    def put_stream(self, stream: Stream) -> None:
        self._kafka.server.reach()
        self._kafka.streams[stream.name] = stream

    def delete_stream(self, name: StreamName) -> None:
        self._kafka.server.reach()
        del self._kafka.streams[name]

    def put_epochs(
        self, leader: LeaderEpoch, store: StoreEpoch, assignment: AssignmentEpoch
    ) -> None:
        self._kafka.server.reach()

    def read(self) -> ControlState:
        self._kafka.server.reach()
        return ControlState(dict(self._kafka.definitions), streams=dict(self._kafka.streams))


class TwinProgress:
    def __init__(self, kafka: TwinKafka) -> None:
        self._kafka = kafka

    def read(self, bucket: Bucket, first: int) -> ProgressSlice:
        self._kafka.server.reach()
        records = self._kafka.progress.get(bucket, [])
        times_ms = tuple(self._kafka.times_ms.get(bucket, [])[first:])
        return ProgressSlice(tuple(records[first:]), len(records), times_ms)

    def read_all(self, firsts: Mapping[Bucket, int]) -> dict[Bucket, ProgressSlice]:
        self._kafka.server.reach()
        return {bucket: self.read(bucket, first) for bucket, first in firsts.items()}

    def written(self, buckets: Iterable[Bucket]) -> dict[Bucket, int]:
        self._kafka.server.reach()
        return {
            each: len(self._kafka.progress.get(each, [])) + self._kafka.uncommitted.get(each, 0)
            for each in buckets
        }


class TwinFollower:
    def __init__(self, kafka: TwinKafka, after: Mapping[int, int] | None, *, whole: bool) -> None:
        self._kafka = kafka
        self._next = len(kafka.rows)
        self.after = dict(after or {})
        self.whole = whole
        self.gaps: list[ResultGap] = []
        self.starts = {0: 7, 1: 8, 2: 9} | self.after
        self.closed = False

    def poll(self, timeout_s: float) -> list[CommittedRow | ResultGap]:
        self._kafka.server.reach()
        rows = self._kafka.rows[self._next :]
        self._next += len(rows)
        gaps, self.gaps = self.gaps, []
        return [*gaps, *rows]

    def close(self) -> None:
        self.closed = True


class TwinResults:
    def __init__(self, kafka: TwinKafka) -> None:
        self._kafka = kafka

    def recent(
        self,
        topic: Topic,
        task: TaskName,
        rows_max: int,
        wanted: WantedWindow | WantedNumber | None,
    ) -> RecentRows:
        self._kafka.server.reach()
        rows = tuple(self._kafka.rows)
        if wanted is not None:
            return RecentRows(tuple(row for row in rows if wanted.shows(row)))
        newest = tuple(newest_rows(rows, rows_max))
        return RecentRows(newest, lowest_first(newest) if len(newest) < len(rows) else None)

    def follow(
        self,
        topic: Topic,
        task: TaskName,
        after: Mapping[int, int] | None = None,
        *,
        whole: bool = False,
    ) -> TwinFollower:
        self._kafka.server.reach()
        follower = TwinFollower(self._kafka, after, whole=whole)
        self._kafka.followers.append(follower)
        return follower


class TwinDead:
    def __init__(self, kafka: TwinKafka) -> None:
        self._kafka = kafka

    def recent(self, task: TaskName, limit: int) -> list[DeadLetter]:
        self._kafka.server.reach()
        own = [letter for letter in self._kafka.letters if letter.task == task]
        return own[::-1][:limit]

    def page(
        self, task: TaskName, reason: str | None, after: Mapping[int, int], limit: int
    ) -> DeadPage:
        self._kafka.server.reach()
        first = after.get(0, 0)
        behind = min(first + limit, len(self._kafka.letters))
        found = self._kafka.letters[first:behind]
        wanted = [one for one in found if one.task == task and reason in (None, one.reason)]
        more = behind < len(self._kafka.letters)
        return DeadPage(tuple(wanted), {0: behind} if more else None)


class TwinFiles:
    """Directories by their paths; each holds one file of so many offsets."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.links: dict[str, str] = {}

    def __call__(
        self,
        location: str,
        format: str,
        stream: Stream,
        *,
        csv_header: bool,
        until_ms: int | None,
    ) -> FileHistory:
        if location not in self.sizes:
            raise Rejected(f"{location} is neither a file nor a directory with files")
        place = self.links.get(location, location)
        file = HistoryFile(f"{place}/one", 0, self.sizes[location])
        return FileHistory(format, (file,), csv_header=csv_header, until_ms=until_ms)


class LoopTransport(httpx.BaseTransport):
    """Requests of a plain client, answered by an application in an event loop of its own."""

    def __init__(self, app: Any) -> None:
        self._asgi = httpx.ASGITransport(app=app)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def answered() -> httpx.Response:
            response = await self._asgi.handle_async_request(request)
            body = await response.aread()
            return httpx.Response(response.status_code, headers=response.headers, content=body)

        return asyncio.run_coroutine_threadsafe(answered(), self._loop).result()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Current:
    """The services of the world in use: describing the paths of an application takes longer than
    most tests, so all worlds share one application."""

    world: World

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world.services, name)


class CurrentStopping(Stopping):
    """The same for the word that the process stops."""

    def __init__(self, current: Current) -> None:
        self._current = current

    @property
    def is_set(self) -> bool:  # type: ignore[override]
        return self._current.world.stopping.is_set


CURRENT = Current()


@cache
def application() -> Any:
    return create_app(
        cast("Services", CURRENT),
        version="1.2.3",
        body_bytes_max=BODY_BYTES_MAX,
        stopping=CurrentStopping(CURRENT),
    )


class World:
    """Everything around one API process. `now_ms` is the clock of all of it."""

    def __init__(
        self, access: AccessPolicy | None = None, cluster: ClusterContext = CLUSTER
    ) -> None:
        self.now_ms = 1_000_000
        self.slept_s: list[float] = []
        self.on_sleep: Callable[[float], None] = self.slept_s.append
        self.kafka = TwinKafka()
        self.kafka.make_topic("flows", 2)
        self.registry = MemoryRegistry()
        self.ensemble = MemoryEnsemble()
        self.keys = MemoryKeyRegistry()
        self.queries = MemoryQueryRegistry()
        self.broker = MemoryBroker(lambda: self.now_ms)
        self.broker.create_topic(Topic("mars.queries"), 1)
        self.broker.create_topic(Topic("mars.incidents"), 1)
        self.broker.create_topic(Topic("flows"), 2)
        self.answers = MemoryQueryRows(self.broker)
        self.incidents = MemoryIncidentLog(self.broker)
        self.source_rows = MemorySourceRows(self.broker)
        self.saved = MemoryProgressLog(self.broker)
        self.broker.create_topic(Topic("mars.state"), BUCKETS)
        self.readers: list[MemorySource] = []
        self.files = TwinFiles()
        self.log = MemoryPartialLog(lambda: self.now_ms, buckets=BUCKETS)
        self.health = Health({"kafka": lambda: None, "redis": lambda: None})
        self.stopping = Stopping()
        self.services = self._services(access, cluster)
        self.services.access.ring.watch()
        CURRENT.world = self
        self.transport = LoopTransport(application())
        self.http = httpx.Client(transport=self.transport, base_url="http://mars")

    def close(self) -> None:
        self.http.close()
        self.transport.close()

    def _services(
        self, access: AccessPolicy | None = None, cluster: ClusterContext = CLUSTER
    ) -> Services:
        ports = Ports(
            registry=self.registry,
            coordinator=self.coordinator("api-1"),
            control=TwinControl(self.kafka),
            admin=TwinAdmin(self.kafka),
            log=self.log,
            progress=TwinProgress(self.kafka),
            saved=self.saved,
            dead=TwinDead(self.kafka),
            results=TwinResults(self.kafka),
            source_rows=self.source_rows,
            incidents=self.incidents,
            queries=self.queries,
            answers=self.answers,
            keys=self.keys,
            list_history=self.files,
            open_reader=self.open_reader,
            now_ms=lambda: self.now_ms,
            sleep=self.sleep,
        )
        return build(ports, cluster, self.health, "1.2.3", access)

    def open_reader(self) -> MemorySource:
        self.readers.append(MemorySource(self.broker))
        return self.readers[-1]

    def sleep(self, seconds: float) -> None:
        self.on_sleep(seconds)

    def coordinator(self, member: str) -> MemoryCoordinator:
        return MemoryCoordinator(self.ensemble, MemberId(member))

    # -------------------------------------------------------------------------- users

    def declare(self, name: str = "flows", **changes: object) -> httpx.Response:
        return self.http.put(f"/v1/streams/{name}", json={**FLOWS, **changes})

    def register(self, name: str = "by_sip", **changes: object) -> httpx.Response:
        return self.http.post("/v1/tasks", json={"name": name, "sql": BY_SIP, **changes})

    def definition(self, name: str = "by_sip") -> TaskDefinition:
        found = self.registry.task(TaskName(name))
        assert found is not None
        return found[0]

    def alter(self, name: str = "by_sip", **changes: Any) -> None:
        """Change a definition behind the API's back, as the leader or a reducer does."""
        found = self.registry.task(TaskName(name))
        assert found is not None
        assert self.registry.replace_task(replace(found[0], **changes), found[1])

    def begin_newest(self, name: str = "by_sip", starts: Mapping[Lane, int] | None = None) -> None:
        """The leader decides where the newest version begins."""
        *older, newest = self.definition(name).versions
        begun = replace(newest, starts=starts or {live_lane(0): 0, live_lane(1): 0})
        self.alter(name, versions=(*older, begun))

    # -------------------------------------------------------------- leader, mapper, reducer

    def start_in_store(self, name: str = "by_sip", epoch: StoreEpoch = EPOCH) -> None:
        """What the leader does for a new task."""
        definition = self.definition(name)
        current, ends = definition.current, definition.ends
        start = TaskStart(current.version, True, dict(current.starts or {}), {}, {}, ends)
        assert self.log.initialise(TaskName(name), epoch, start)

    def plan(self, name: str = "by_sip") -> Plan:
        definition = self.definition(name)
        return self.services.compiler.stored(definition.name, definition.current)

    def run_batch(
        self,
        rows: Sequence[Mapping[str, object] | bytes],
        *,
        name: str = "by_sip",
        partition: int = 0,
        first: int = 0,
    ) -> AppendOutcome:
        """What a mapper does with rows of one partition."""
        values = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        next_offset = first + len(values)
        records = Records(
            live_lane(partition),
            first,
            next_offset,
            values,
            range(first, next_offset),
            [-1] * len(values),
        )
        plan = self.plan(name)
        head = self.log.head([TaskName(name)])[TaskName(name)]
        known = {} if head is None else head.rows
        number = known.get(records.lane, 0) if plan.counts_rows else None
        mapped = map_batch(plan, BUCKETS, decode(plan.stream, plan.fields, records), number)
        self.kafka.end_offsets["flows"][partition] = next_offset
        return self.log.append(TaskName(name), EPOCH, plan.version, mapped)

    def commit(
        self,
        bucket: int,
        *,
        name: str = "by_sip",
        version: int = 1,
        closed_ms: int | None = None,
        ahead_ms: int | None = None,
        merged: Mapping[Lane, int] | None = None,
        deleted: bool = False,
        emit: int = 1,
        emits: bool = False,
        owed: tuple[int, ...] = (),
        **rows: int,
    ) -> None:
        """What a reducer commits for one bucket, with result rows if it `emits`."""
        rows_at = Emission(Topic(f"mars.results.{name}"), bucket, emit, 0, 0, 1, 0)
        record = Progress(
            task=TaskName(name),
            version=version,
            bucket=Bucket(bucket),
            assignment_epoch=AssignmentEpoch(1),
            store_epoch=EPOCH,
            emit=emit,
            closed_ms=closed_ms,
            ahead_ms=ahead_ms,
            merged=merged or {},
            needed=merged or {},
            ledger=Ledger(**rows),
            deleted=deleted,
            emission=rows_at if emits else None,
            owed=owed,
        )
        self.kafka.progress.setdefault(Bucket(bucket), []).append(record)
        self.kafka.times_ms.setdefault(Bucket(bucket), []).append(self.now_ms)

    def join_mapper(self, *states: str, member: str = "mapper-1") -> None:
        readings = tuple(
            PartitionReading(Topic("flows"), partition, 0, state)
            for partition, state in enumerate(states)
        )
        self._join(MemberInfo(MemberId(member), "mapper", "host", 1, 0, partitions=readings))

    def join_reducer(
        self, member: str = "reducer-1", *, leads: bool = True, **changes: Any
    ) -> None:
        statuses = tuple(
            BucketStatus(Bucket(bucket), AssignmentEpoch(1), "owning") for bucket in range(BUCKETS)
        )
        load = {"rows_per_second": 5.0, "cpu_seconds_total": 1.5, "resident_bytes": 4096.0}
        if leads:
            load["leader_epoch"] = 3.0
        info = MemberInfo(MemberId(member), "reducer", "host", 2, 0, load, buckets=statuses)
        self._join(replace(info, **changes))
        owners = {
            Bucket(bucket): Owner(MemberId(member), AssignmentEpoch(1)) for bucket in range(BUCKETS)
        }
        self.ensemble.assignment = Assignment(LeaderEpoch(3), EPOCH, owners)

    def _join(self, info: MemberInfo) -> None:
        self.coordinator(info.id).join(info)


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document of a refused request."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert document["title"]
    return document


def known_world() -> Iterator[World]:
    """A world with the task `known` over the stream `flows`, some rows, and all servers there."""
    made = World()
    for service in ("kafka", "redis"):
        made.health.check(service)
    made.declare()
    assert made.register("known", start="earliest").status_code == 201
    made.start_in_store("known")
    made.run_batch([{"timestamp": 1, "sip": sip, "bytes": 5} for sip in "abc"], name="known")
    yield made
    made.close()
