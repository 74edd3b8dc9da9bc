"""What is kept in the task registry: streams and tasks as their users declared them.

These values are stored as JSON in ZooKeeper and copied to the topic `mars.control`; they hold the
query as text. A process compiles them into plans as soon as it has read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

import msgspec

from mars.core.errors import Rejected
from mars.core.plan import Field, Stream
from mars.core.types import Lane, Range, TaskName, lane_backfill
from mars.core.windows import Zone

RULES = 3
"""The number of the rules by which a release judges rows: what is a row of a message, what is a
value of a field's type, what is bad. A release that judges any row otherwise raises it.

1: before numbers with a fraction, arrays, byte order marks and long keys were judged as now.
2: before an Arrow message of several streams was bad; of these the first one was read.
"""

REGISTER_AGAIN = "delete the task and register it again"
"""How the detail of a failure ends that no resume mends, for one of a topic that was made anew:
the task would go on at offsets that mean other rows by now."""


TaskRun = tuple[int, int]
"""Which run of a task: the first version of the task that bears the name, and how often that was
resumed. Later runs are higher. A failure names the run that it ended, and is none of a later one.
"""


class TaskState(StrEnum):
    """What a task is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class TaskVersion:
    """One version of a task.

    `starts` says, per lane, the first offset that belongs to this version; a lane that is not
    named starts at 0 (a partition made later). None: the leader has not yet decided where the
    version before it ends. Windows that begin before `complete_from_ms` or end after
    `complete_until_ms` (None: no bound) lack rows and are marked incomplete, and so are those that
    touch `unread_ms`, the time [from, to) between its files and the topic. `rules` are those of the
    release that registered it, see RULES. `zone` is the time zone of its windows as it was
    known then: what changes in it later is for new versions. `landmark_ms` is when its windows
    begin that are since a landmark. `rows_before`: how many rows of each lane the version before
    has counted, where its windows count rows.
    """

    version: int
    sql: str
    options: Mapping[str, object]
    stream: Stream
    topic_id: str
    created_ms: int
    starts: Mapping[Lane, int] | None
    complete_from_ms: int | None = None
    complete_until_ms: int | None = None
    unread_ms: tuple[int, int] | None = None
    rules: int = 1
    zone: Zone | None = None
    landmark_ms: int | None = None
    rows_before: Mapping[Lane, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file of a backfill: offsets `[first, next)` of the lane lie in it.

    An offset is a row for Parquet, a byte for text. `earliest_ms`: no row's event time lies before
    it. `changed_ns`: when it was written last. None where that is not known.
    """

    path: str
    first: int
    next: int
    earliest_ms: int | None = None
    changed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class FileHistory:
    """Files as a task's history: rows with event times before `until_ms` (None: all) are its input.

    `format` is one of `parquet`, `ndjson`, `csv`.
    """

    format: str
    files: tuple[HistoryFile, ...]
    csv_header: bool = False
    until_ms: int | None = None


def check_in_files(fields: Iterable[Field]) -> None:
    """Raise Rejected where some of the fields are no part of what files hold."""
    for one in fields:
        if one.origin is not None:
            raise Rejected(
                f"field {one.name} is {one.origin.value} of a record, which rows of files do not "
                "have: leave it out of the query, or have the history computed from the topic"
            )


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """Offsets `[first, end)` of a backfill's lane; `end` is the fence."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Backfill:
    """History that Spark maps, in lanes of its own, before a task's live rows (`3@b1`, `f@b2`).

    It is read in `chunks` steps, each of which takes an equal share of every lane: so equal offsets
    mean equal chunks, whoever reads them and however often. `files` is None for what lies in the
    task's topic.
    """

    id: str
    lanes: Mapping[Lane, LaneSpan]
    chunks: int
    created_ms: int
    files: FileHistory | None = None

    def chunk(self, number: int) -> tuple[Range, ...]:
        """The ranges of a chunk, 0 to `chunks` - 1; a lane without offsets in it is left out."""
        ranges = []
        for lane, span in self.lanes.items():
            size = span.end - span.first
            first = span.first + size * number // self.chunks
            after = span.first + size * (number + 1) // self.chunks
            if first < after:
                ranges.append(Range(lane, first, after))
        return tuple(ranges)


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task: its state, and its versions in order, the last being the current one.

    Older versions stay until all their windows are closed. `detail` says why a task failed.
    A deleted task keeps its last version, because version numbers of a name never restart: those
    of the task that now bears the name begin with `first_version`. `backfills` are those of that
    task, fixed when it was registered. Below the offsets of `catch_up` lanes are a bulk process's,
    and mappers leave them alone. `set_name` is the set of tasks that made it, empty for none.
    `resumes`: how often it was resumed.
    """

    name: TaskName
    state: TaskState
    versions: tuple[TaskVersion, ...]
    detail: str = ""
    first_version: int = 1
    backfills: tuple[Backfill, ...] = ()
    catch_up: Mapping[Lane, int] = field(default_factory=dict)
    set_name: str = ""
    resumes: int = 0

    @property
    def current(self) -> TaskVersion:
        """The newest version, whether it has begun or not."""
        return self.versions[-1]

    @property
    def begun(self) -> tuple[TaskVersion, ...]:
        """The versions whose start is decided, oldest first."""
        return tuple(version for version in self.versions if version.starts is not None)

    @property
    def run(self) -> TaskRun:
        """The run that it is in, or was in last."""
        return self.first_version, self.resumes

    def resumed(self) -> TaskDefinition:
        """It goes on in another run; as it is if it runs."""
        if self.state is TaskState.RUNNING:
            return self
        return replace(self, state=TaskState.RUNNING, detail="", resumes=self.resumes + 1)

    @property
    def ends(self) -> Mapping[Lane, int]:
        """Where the lanes of backfills end."""
        return {
            lane: span.end for backfill in self.backfills for lane, span in backfill.lanes.items()
        }

    def files_of(self, lane: Lane) -> FileHistory | None:
        """The files that a lane reads; None for one that reads Kafka."""
        name = lane_backfill(lane)
        return next((one.files for one in self.backfills if one.id == name), None)

    def has(self, version: int) -> bool:
        """Whether it is one of these; a task that was deleted had others under the same name."""
        return any(one.version == version for one in self.versions)

    def version_at(self, lane: Lane, offset: int) -> tuple[int, int | None]:
        """Which version a row belongs to, and the offset at which the next one begins (or None)."""
        begun = self.begun
        for older, newer in pairwise(begun):
            boundary = (newer.starts or {}).get(lane, 0)
            if offset < boundary:
                return older.version, boundary
        return begun[-1].version, None


def made_anew(topic: str) -> str:
    """Why a task fails whose source topic is another one under the same name."""
    return f"topic {topic} was deleted and made again, so its offsets are others: {REGISTER_AGAIN}"


def resume_helps(detail: str) -> bool:
    """Whether a task that failed so may go on when it is resumed."""
    return not detail.rstrip(".").endswith(REGISTER_AGAIN)


def with_deletions(
    tasks: Mapping[TaskName, TaskDefinition], deleted: Mapping[TaskName, TaskDefinition]
) -> dict[TaskName, TaskDefinition]:
    """The copies of tasks, those put away that are deleted for good and do not know it.

    A name that was given again has versions above those of the task that was deleted.
    """
    gone = {
        name: definition
        for name, definition in deleted.items()
        if name not in tasks or tasks[name].current.version <= definition.current.version
    }
    return {**tasks, **gone}


def encode_definition(definition: TaskDefinition) -> bytes:
    """The JSON of a task definition."""
    return msgspec.json.encode(definition)


def decode_definition(raw: bytes) -> TaskDefinition:
    """The task definition that `encode_definition` wrote."""
    return msgspec.json.decode(raw, type=TaskDefinition)


def encode_stream(stream: Stream) -> bytes:
    """The JSON of a stream declaration."""
    return msgspec.json.encode(stream)


def decode_stream(raw: bytes) -> Stream:
    """The stream declaration that `encode_stream` wrote."""
    return msgspec.json.decode(raw, type=Stream)
