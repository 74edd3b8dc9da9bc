"""The JSON that goes in and out; nothing outside `api` knows these classes.

Times are epoch milliseconds. Requests refuse unknown members.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# ------------------------------------------------------------------------------------ errors


class MemberProblem(BaseModel):
    """What is wrong with one member of a body, or one query parameter."""

    model_config = ConfigDict(frozen=True)

    member: str
    detail: str


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    title: str
    status: int
    detail: str
    line: int | None = Field(default=None, description="of the query, counted from 1")
    column: int | None = Field(default=None, description="of the query, counted from 1")
    errors: list[MemberProblem] | None = None
    service: str | None = Field(default=None, description="which server is not available")


# ---------------------------------------------------------------------------------- requests


class Request(BaseModel):
    """A body that comes in."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FieldRequest(Request):
    """A field of a stream: its type, and what of a record it is taken from."""

    type: str
    origin: str | None = Field(
        default=None,
        alias="from",
        description="$key (string), $timestamp (timestamp_ms), $partition or $offset (int64); "
        "null: the message",
    )


class StreamRequest(Request):
    """A stream to declare."""

    topic: str
    format: str = Field(description="json, ndjson, csv or arrow")
    fields: dict[str, str | FieldRequest] = Field(
        description="name -> type, in the order of a CSV row"
    )
    event_time: str = Field(
        description="the field with the time of the event, or $timestamp: Kafka's of the record"
    )
    csv_header: bool = False
    csv_delimiter: str = Field(default=",", description="between cells: one ASCII character")
    csv_quote: str = Field(default='"', description="around cells: one ASCII character")
    record_time: Literal["check", "ignore"] = Field(
        default="check",
        description="ignore: no row is judged by Kafka's time of its record, and nothing guards "
        "against rows that are far in the future",
    )
    name: str | None = Field(default=None, description="if given, the name in the path")


class StartAt(Request):
    """Start at the first rows that Kafka got at or after a time."""

    timestamp: int = Field(ge=0, le=2**53, description="epoch milliseconds")


class HistoryRequest(Request):
    """Files with rows that the topic no longer holds, as the API and Spark see them."""

    files: str = Field(
        min_length=1, max_length=4_096, description="a directory, or a pattern such as /data/*.csv"
    )
    format: Literal["parquet", "ndjson", "csv"]
    csv_header: bool = Field(default=False, description="each CSV file begins with one")
    until: int | None = Field(
        default=None,
        ge=-(2**53),
        le=2**53,
        description="epoch ms: rows with later event times are left out",
    )


OPTIONS = """`delay` (0s): how long to wait for rows that come out of order; `idle_after` (5s): a
partition silent for so long no longer holds windows back, and where all are, event time goes on
from the newest row as the clock does; `future_limit` (5min): a row so much after its Kafka
timestamp is not counted; `late` (drop): `drop` rows whose windows are closed, or
`revise` these windows for `lateness` (10min); `max_keys` (none): most groups of a window, up to
100,000; `over_max_keys` (fail): `fail`, or `fold` those that came last into one row, whose keys are
`__other__` (text) or null and whose header `mars-folded` is 1; `watermark` (partition): windows
close by the rows of the slowest `partition`, of a `bucket` of keys, or of each `key`, which may lag
by `key_lag` (1min) behind the partitions; `output_topic` (mars.results.NAME).
Durations are texts such as `500ms`, `1s`, `5min`."""
"""What a task's options are, for the documentation of the interface."""


class NewTaskRequest(Request):
    """A task to register."""

    name: str
    sql: str
    start: Literal["latest", "earliest"] | StartAt = Field(
        default="latest",
        description="of the topic's rows; what lies between it and now is computed by Spark if it "
        "is much",
    )
    options: dict[str, Any] = Field(default_factory=dict, description=OPTIONS)
    history: HistoryRequest | None = Field(
        default=None,
        description="files that hold all rows before the topic's; windows from them are complete",
    )


class TaskRequest(Request):
    """A new version of a task."""

    sql: str
    options: dict[str, Any] = Field(default_factory=dict, description=OPTIONS)


class ValidateRequest(Request):
    """A query to check."""

    sql: str
    options: dict[str, Any] = Field(default_factory=dict, description=OPTIONS)
    name: str | None = None


class NewKeyRequest(Request):
    """A key to be made; in patterns, `*` stands for any text."""

    role: Literal["reader", "operator", "admin"]
    reads: list[str] = Field(default=["*"], description="topics (and files) its tasks may read")
    writes: list[str] = Field(
        default=["*"], description="topics its tasks may write to, besides their own"
    )
    note: str = Field(default="", description="whose it is, what for")


REQUESTS: tuple[type[Request], ...] = (
    StreamRequest,
    NewTaskRequest,
    TaskRequest,
    ValidateRequest,
    NewKeyRequest,
)


# ----------------------------------------------------------------------------------- answers


class Answer(BaseModel):
    """A body that goes out."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class FieldView(Answer):
    """A field that is taken from the record."""

    type: str
    origin: str = Field(serialization_alias="from")


class StreamView(Answer):
    """A declared stream."""

    name: str
    topic: str
    format: str
    fields: dict[str, str | FieldView] = Field(description="types, in the order of a CSV row")
    event_time: str
    csv_header: bool
    csv_delimiter: str
    csv_quote: str
    record_time: str


class StreamList(Answer):
    """All streams, by name."""

    streams: list[StreamView]


class NamedType(Answer):
    """A column."""

    name: str
    type: str


class NamedExpression(Answer):
    """A column and how it is computed."""

    name: str
    type: str
    expression: str


class WindowView(Answer):
    """The shape of the windows."""

    kind: Literal["tumbling", "sliding"]
    size_ms: int
    slide_ms: int


class OrderView(Answer):
    """One ORDER BY item."""

    expression: str
    descending: bool


class PlanView(Answer):
    """A task compiled, for people; keys and aggregates are shown as expressions."""

    stream: str
    topic: str
    window: WindowView
    fields: list[NamedType] = Field(description="what is decoded of each row")
    filter: str | None
    keys: list[NamedExpression]
    aggregates: list[str]
    having: str | None
    order_by: list[OrderView]
    limit: int | None
    outputs: list[NamedExpression]
    options: dict[str, Any] = Field(description="as they take effect; durations in ms")


class OutputView(Answer):
    """What result rows look like: the members of the value, and what the key is made of."""

    topic: str
    key: list[str]
    columns: list[NamedType]


WARNINGS = "what to know before its results are read; nothing is refused because of it"


class Validation(Answer):
    """A query that can be registered."""

    plan: PlanView
    output: OutputView
    warnings: list[str] = Field(description=WARNINGS)


class Ledger(Answer):
    """Where rows went: read = counted + filtered + bad + future + late; counted = emitted + open.

    Counted rows of which some windows had closed are also in late_partly.
    """

    read: int
    filtered: int
    bad: int
    future: int
    late: int
    counted: int
    emitted: int
    open: int
    late_partly: int


class Rates(Answer):
    """How fast a task goes, over the last seconds; null until there are two measurements."""

    rows_per_second: float | None
    messages_per_second: float | None


class Lag(Answer):
    """Messages between a task's next offsets and the ends of the partitions."""

    rows: int
    partitions: dict[str, int]


class BackfillLane(Answer):
    """One lane of a backfill: offsets from first to end, of which those below next are done."""

    lane: str = Field(description="3@b1 is of partition 3, f@b2 of files")
    first: int
    next: int
    end: int


class BackfillView(Answer):
    """How far the history is that Spark computes for a task.

    Rows are offsets: messages of the topic, rows of Parquet files, bytes of text files.
    """

    rows_done: int
    rows_total: int
    percent: float = Field(description="rounded down: 100 means done")
    rows_per_second: float | None
    expected_end: int | None = Field(description="null: done, or nobody can say")
    lanes: list[BackfillLane]


class VersionView(Answer):
    """One version of a task: the current one, or one before it.

    Older ones are forgotten at the next change once they are closed.
    """

    version: int
    sql: str
    created: int
    begun: bool
    state: Literal["waiting", "active", "closing", "closed"] = Field(
        description="waiting: the leader has not decided yet where it begins; active: rows go to "
        "it; closing: rows go to the next one, and it has open windows; closed: it has none"
    )


class TaskSummary(Answer):
    """A task in a list."""

    name: str
    version: int
    state: str = Field(description="running, backfilling, paused, failed or deleted")
    detail: str
    sql: str
    options: dict[str, Any]
    stream: str
    created: int


class TaskView(TaskSummary):
    """A task. Figures are null where the server that has them does not answer (see missing)."""

    plan: PlanView | None = Field(description="null: a query that this release cannot read")
    output: OutputView | None
    versions: list[VersionView]
    rates: Rates
    lag: Lag | None
    watermark: int | None
    backfill: BackfillView | None = Field(description="null: the task has no history of its own")
    ledger: Ledger | None
    log_bytes: int | None
    missing: list[str]
    warnings: list[str] = Field(description=WARNINGS)


class FigurePoint(Answer):
    """Figures at one moment; null: not known at that moment, or of all tasks together."""

    at: int = Field(description="by the clock of the API")
    rows_per_second: float | None
    lag: int | None = Field(description="messages not yet taken")
    watermark: int | None
    watermark_delay_ms: int | None = Field(description="how far it is behind the store's clock")
    close_latency_ms: int | None = Field(
        description="from the end of the newest closed window until its rows were committed; null: "
        "none closed since the API started"
    )
    log_bytes: int | None


class FigureList(Answer):
    """The figures of one task over the last minutes, the oldest first."""

    points: list[FigurePoint]


class AllFigures(Answer):
    """The figures of all tasks together over the last minutes, and the newest of each task."""

    points: list[FigurePoint]
    tasks: dict[str, FigurePoint]


class TaskListed(TaskSummary):
    """A task in the list of all; its figures are at most some seconds old, null: none yet."""

    plan: PlanView | None = Field(
        description="null: a query that this release cannot read, or a deleted task"
    )
    rates: Rates
    lag: Lag | None
    watermark: int | None
    figures: FigurePoint | None = Field(description="the newest point of its charts")


class TaskList(Answer):
    """All tasks, by name."""

    tasks: list[TaskListed]


class WindowRows(Answer):
    """The rows of one window; each is the value of a result row."""

    window_start: int
    window_end: int
    version: int
    complete: bool
    groups: int = Field(description="rows of the window that match, shown or not")
    folded: bool = Field(description="true if one row stands for all groups over `max_keys`")
    rows: list[dict[str, Any]]


class OpenWindows(Answer):
    """Open windows with their values as of now, oldest first."""

    windows: list[WindowRows]
    truncated: bool = Field(description="true if rows were left out because of the limit")
    more: int = Field(description="open windows that are not listed")


class WindowSource(Answer):
    """Where the source rows lie that one bucket of a window counts: `[first, next)` by lane."""

    bucket: int
    rows: int = Field(description="source rows that were counted")
    ranges: dict[str, tuple[int, int]]
    revision: int = Field(description="0: emitted when the window closed, more: for late rows")
    deleted: bool = Field(description="true for groups that HAVING lets pass no more")


class FinishedWindow(Answer):
    """Committed rows of one window: of each group the newest revision."""

    window_start: int
    window_end: int
    version: int
    complete: bool
    revision: int = Field(description="the highest of these rows; 0: no late row has come")
    rows: list[dict[str, Any]]
    truncated: bool = Field(description="true if it has more rows than these")
    sources: list[WindowSource] = Field(description="of the buckets whose rows are shown")


class RevisedWindow(Answer):
    """A window that is not shown, and whose rows are not what they were at first."""

    window_start: int
    version: int
    revision: int = Field(description="the highest of its rows")


class FinishedWindows(Answer):
    """The last finished windows, newest first."""

    windows: list[FinishedWindow]
    truncated: bool = Field(
        description="true if older windows were left out because of the limit, or rows of the "
        "newest one, if it alone has more; any other is here with all its rows, as last revised"
    )
    revised: list[RevisedWindow] = Field(
        description="windows that late rows have changed of late and that are left out: ask for "
        "each with window_start"
    )


class HeldBy(Answer):
    """What keeps a window open: a lane, a bucket, or the whole task."""

    lane: str | None = Field(description="3 is partition 3, 3@b1 its backfill, f@b2 that of files")
    partition: int | None
    bucket: int | None
    reason: str
    member: str | None
    watermark: int | None
    lag: int | None


class PartitionWhy(Answer):
    """One partition as a window sees it, or what is left of its backfill."""

    lane: str = Field(description="3 is partition 3, 3@b1 its backfill, f@b2 that of files")
    partition: int | None = Field(description="null for a backfill from files")
    watermark: int | None
    lag: int | None
    idle: bool
    reason: str
    member: str | None


class WindowWhy(Answer):
    """Why one window is still open."""

    window_start: int
    window_end: int
    version: int
    rows: int
    watermark: int | None
    expected_close: int | None
    held_by: HeldBy
    partitions: list[PartitionWhy]


class DroppedSample(Answer):
    """Where a row lies that was not counted; next is behind the last of several."""

    partition: int | None
    offset: int
    next: int
    rows: int
    reason: str


class Dropped(Answer):
    """Rows that were not counted."""

    bad: int
    future: int
    late: int
    samples: list[DroppedSample]


class Why(Answer):
    """Why no result is coming."""

    windows: list[WindowWhy]
    more: int = Field(description="open windows that are not listed")
    dropped: Dropped
    summary: str


class PartitionView(Answer):
    """How far a mapper is in a partition."""

    topic: str
    partition: int
    position: int
    state: str
    lag: int | None = Field(description="messages ahead, as far as the mapper knows")


class BucketLoadView(Answer):
    """What a bucket costs its owner; the rates are smoothed."""

    use: float = Field(description="CPU seconds a second, of one core")
    rows_per_second: float
    bytes_per_second: float
    backlog_bytes: int


class BucketView(Answer):
    """What a reducer does with a bucket."""

    bucket: int
    epoch: int
    state: str
    load: BucketLoadView | None = Field(description="null: next to nothing")


class MemberView(Answer):
    """A live process."""

    id: str
    role: str
    host: str
    pid: int
    started: int
    reported: int | None = Field(description="when it last said so, by its own clock")
    load: dict[str, float]
    missing: list[str]
    partitions: list[PartitionView]
    buckets: list[BucketView]
    age_s: float | None = Field(
        description="of all this, by the leader's clock; what it does not watch, and while nobody"
        " leads, by the clocks of both machines"
    )
    leaving: bool = Field(description="it stops once its buckets have gone elsewhere")


class WantedView(Answer):
    """How many members of a role the load asks for."""

    role: str
    present: int
    wanted: int
    reason: str
    kind: str = Field(description="the load is above, capped, within, lull, below or unknown")


class MoveView(Answer):
    """A bucket changed hands."""

    bucket: int
    source: str | None
    target: str
    reason: str
    at: int
    kind: str = Field(description="because of members, use, pressure, or return after that")


class AssistedView(Answer):
    """A bucket whose log others help to merge, and why."""

    bucket: int
    assistants: list[str]
    reason: str


class AssistantChangeView(Answer):
    """Who merged a bucket's log from then on, perhaps nobody, and why."""

    bucket: int
    assistants: list[str]
    reason: str
    at: int


class StrategyChangeView(Answer):
    """How buckets were spread from then on, and why."""

    strategy: str
    reason: str
    at: int


class LentView(Answer):
    """A bucket that was moved to relieve its home, to which it goes back."""

    bucket: int
    home: str
    borrower: str


class BalanceView(Answer):
    """What the leader makes of the loads; moves and changes are the last ones, oldest first."""

    mean_use: float
    deviation: float
    pressure: dict[str, float]
    wanted: list[WantedView]
    moves: list[MoveView]
    moves_total: int = Field(description="since this leader began")
    moves_by_kind: dict[str, int]
    strategy: str = Field(description="how buckets are spread: hash, greedy, weighted, split")
    strategy_reason: str
    strategy_kind: str = Field(description="set, unknown, hot, uneven, even or between")
    rows_ratio: float = Field(description="max/min of the reducers' rows, by capacity")
    assisted: list[AssistedView]
    lent: list[LentView] = Field(description="64 at the most")
    lent_total: int
    assistant_changes: list[AssistantChangeView]
    strategy_changes: list[StrategyChangeView]


class LeaderView(Answer):
    """Who leads the reducers, and in which epoch."""

    member: str | None
    epoch: int


class OwnerView(Answer):
    """Which reducer owns a bucket, and since which epoch."""

    bucket: int
    member: str
    epoch: int


class TaskBacklog(Answer):
    """What one task has not done yet."""

    task: str
    log_bytes: int
    lag: int


class Backlog(Answer):
    """What has not been done yet, in all and by task."""

    log_bytes: int
    lag: int
    tasks: list[TaskBacklog]


class ClusterView(Answer):
    """The state of the cluster."""

    namespace: str
    version: str
    buckets: int
    store_epoch: int | None
    leader: LeaderView | None
    members: list[MemberView]
    assignment: list[OwnerView]
    balance: BalanceView | None = Field(description="null while nobody leads")
    backlog: Backlog
    missing: list[str]


class Alive(Answer):
    """The process runs."""

    status: Literal["alive"] = "alive"


class Readiness(Answer):
    """Each server: ok, or what is missing."""

    status: Literal["ready", "not ready"]
    services: dict[str, str]


class KeyView(BaseModel):
    """What is known of a key."""

    id: str
    role: str
    ending: str = Field(description="its last characters")
    reads: list[str]
    writes: list[str]
    note: str
    created: int


class NewKeyView(KeyView):
    """A key that was just made; `key` is shown here and never again."""

    key: str


class KeyList(BaseModel):
    """All keys, oldest first."""

    keys: list[KeyView]
