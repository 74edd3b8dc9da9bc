"""What the REST API answers, as values: one for each kind of JSON object.

Times are epoch milliseconds. Members that this release does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import polars as pl

Row = dict[str, Any]
"""A result row by column."""

# Frames are loaded by who wants them: it takes longer than most commands do.


class _Answer(msgspec.Struct, frozen=True):
    """What comes back; unknown members are ignored."""


class FieldOfRecord(_Answer, frozen=True):
    """A field that is taken from each record: `$key`, `$timestamp`, `$partition` or `$offset`."""

    type: str
    origin: str = msgspec.field(name="from")


class Stream(_Answer, frozen=True):
    """A declared stream; `fields` are types by name, in the order of a CSV row."""

    name: str
    topic: str
    format: str
    fields: dict[str, str | FieldOfRecord]
    event_time: str
    csv_header: bool
    csv_delimiter: str = ","
    csv_quote: str = '"'
    record_time: str = "check"


class Streams(_Answer, frozen=True):
    """All streams."""

    streams: list[Stream]


class Column(_Answer, frozen=True):
    """A column."""

    name: str
    type: str


class ComputedColumn(_Answer, frozen=True):
    """A column and how it is computed."""

    name: str
    type: str
    expression: str


class Window(_Answer, frozen=True):
    """The shape of the windows; `kind` is tumbling or sliding."""

    kind: str
    size_ms: int
    slide_ms: int


class Order(_Answer, frozen=True):
    """One ORDER BY item."""

    expression: str
    descending: bool


class Plan(_Answer, frozen=True):
    """A task compiled."""

    stream: str
    topic: str
    window: Window
    fields: list[Column]
    filter: str | None
    keys: list[ComputedColumn]
    aggregates: list[str]
    having: str | None
    order_by: list[Order]
    limit: int | None
    outputs: list[ComputedColumn]
    options: dict[str, Any]


class Output(_Answer, frozen=True):
    """What result rows look like."""

    topic: str
    key: list[str]
    columns: list[Column]


class Validation(_Answer, frozen=True):
    """A query that can be registered."""

    plan: Plan
    output: Output
    warnings: list[str] = []


class PreviewCounts(_Answer, frozen=True):
    """Where the rows of a preview went."""

    read: int
    counted: int
    filtered: int
    bad: int
    future: int


class PreviewWindow(_Answer, frozen=True):
    """One window as far as the rows of a preview fill it."""

    window_start: int
    window_end: int
    groups: int
    rows: list[Row]


class PreviewRejected(_Answer, frozen=True):
    """A row that would not be counted."""

    partition: int
    offset: int
    reason: str
    detail: str
    sample: str


class LateShare(_Answer, frozen=True):
    """What part of the rows, 0 to 1, would be late with a delay."""

    delay_ms: int
    share: float


class Predictions(_Answer, frozen=True):
    """What a task would cost, and how its delay should be; None: unknown."""

    rows_per_second: float | None
    groups_per_window: int | None
    groups_at_least: bool
    redis_bytes: int | None
    redis_bytes_merged: int | None
    redis_bytes_max: int
    late: list[LateShare]
    late_by_key: list[LateShare]
    disorder_max_ms: int | None
    suggested_delay_ms: int | None
    sentences: list[str]


class Preview(_Answer, frozen=True):
    """What a query gives over some rows; `source` is last_seconds, newest or rows."""

    source: str
    messages: int
    bytes: int
    truncated: bool
    counts: PreviewCounts
    windows: list[PreviewWindow]
    more_windows: bool
    rejected: list[PreviewRejected]
    predictions: Predictions
    notes: list[str]
    output: Output


class Ledger(_Answer, frozen=True):
    """Where rows went."""

    read: int
    filtered: int
    bad: int
    future: int
    late: int
    counted: int
    emitted: int
    open: int
    late_partly: int


class Rates(_Answer, frozen=True):
    """How fast a task goes; None until there are two measurements."""

    rows_per_second: float | None
    messages_per_second: float | None


class Lag(_Answer, frozen=True):
    """Messages not yet taken, in all and by partition."""

    rows: int
    partitions: dict[str, int]


class BackfillLane(_Answer, frozen=True):
    """One lane of a backfill: offsets from `first` to `end`, those below `next` are done."""

    lane: str
    first: int
    next: int
    end: int


class Backfill(_Answer, frozen=True):
    """How far the history of a task is; `expected_end` None: done, or nobody can say."""

    rows_done: int
    rows_total: int
    percent: float
    rows_per_second: float | None
    expected_end: int | None
    lanes: list[BackfillLane]


class TaskVersion(_Answer, frozen=True):
    """One version of a task; `state` is waiting, active, closing or closed."""

    version: int
    sql: str
    created: int
    begun: bool
    state: str = "active"


class TaskSummary(_Answer, frozen=True):
    """A task in a list."""

    name: str
    version: int
    state: str
    detail: str
    sql: str
    options: dict[str, Any]
    stream: str
    created: int


class Task(TaskSummary, frozen=True):
    """A task; figures are None where the server that has them is `missing`."""

    plan: Plan | None
    output: Output | None
    versions: list[TaskVersion]
    rates: Rates
    lag: Lag | None
    watermark: int | None
    ledger: Ledger | None
    log_bytes: int | None
    missing: list[str]
    backfill: Backfill | None = None
    warnings: list[str] = []


class FigurePoint(_Answer, frozen=True):
    """Figures at one moment; None: not known."""

    at: int
    rows_per_second: float | None
    lag: int | None
    watermark: int | None
    watermark_delay_ms: int | None
    close_latency_ms: int | None
    log_bytes: int | None


class FigureList(_Answer, frozen=True):
    """The figures of one task over the last minutes, the oldest first."""

    points: list[FigurePoint]


class AllFigures(_Answer, frozen=True):
    """The figures of all tasks together over the last minutes, and the newest of each task."""

    points: list[FigurePoint]
    tasks: dict[str, FigurePoint]


class TaskListed(TaskSummary, frozen=True):
    """A task in the list of all; figures are those that the API saw last, None before the first.

    `plan` is None for a query that the API cannot read, and for a deleted task.
    """

    plan: Plan | None = None
    rates: Rates = Rates(None, None)
    lag: Lag | None = None
    watermark: int | None = None
    figures: FigurePoint | None = None


class Tasks(_Answer, frozen=True):
    """All tasks."""

    tasks: list[TaskListed]


class QueryCounts(_Answer, frozen=True):
    """Where the rows of a query went; those outside of its range of time are filtered."""

    read: int
    counted: int
    filtered: int
    bad: int
    future: int


class QueryProgress(_Answer, frozen=True):
    """How far a query is: how much it reads, and for how long it has run."""

    input: int | None
    elapsed_ms: int | None


class Query(_Answer, frozen=True):
    """An ad-hoc query; `state` is waiting, running, done, failed or cancelled."""

    id: str
    state: str
    detail: str
    error: str | None
    sql: str
    options: dict[str, Any]
    stream: str
    files: str | None
    rows_max: int
    timeout: float
    output_topic: str | None
    created: int
    started: int | None
    ended: int | None
    attempt: int
    member: str | None
    rows: int | None
    counts: QueryCounts | None
    progress: QueryProgress
    from_ms: int | None = msgspec.field(name="from", default=None)
    until_ms: int | None = msgspec.field(name="until", default=None)

    @property
    def ended_well(self) -> bool:
        """Whether its rows are there."""
        return self.state == "done"

    @property
    def goes_on(self) -> bool:
        """Whether there is something to wait for."""
        return self.state in {"waiting", "running"}


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """A query that is done, and its rows (`arrow`: as an Arrow IPC stream)."""

    query: Query
    arrow: bytes = field(repr=False)

    @property
    def rows(self) -> list[Row]:
        """The rows by column; windows begin and end at times in UTC."""
        return self.df().to_dicts()

    def df(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        from mars.frames import frame_of_arrow  # noqa: PLC0415

        return frame_of_arrow(self.arrow)

    def pandas(self) -> Any:
        """The rows as a pandas frame. Raises MarsError where pandas is not installed."""
        from mars.frames import to_pandas  # noqa: PLC0415

        return to_pandas(self.df())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.df()._repr_html_()


class Queries(_Answer, frozen=True):
    """Ad-hoc queries, newest first."""

    queries: list[Query]


class OpenWindow(_Answer, frozen=True):
    """The rows of an open window as of now; `groups` counts those left out too."""

    window_start: int
    window_end: int
    version: int
    complete: bool
    groups: int
    folded: bool
    rows: list[Row]


class OpenWindows(_Answer, frozen=True):
    """Open windows, oldest first."""

    windows: list[OpenWindow]
    truncated: bool
    more: int

    def df(self) -> pl.DataFrame:
        """All rows as a polars frame."""
        from mars.frames import frame_of_rows  # noqa: PLC0415

        return frame_of_rows(_rows_of(self.windows))


class WindowSource(_Answer, frozen=True):
    """Where the source rows lie that one bucket of a window counts: `[first, next)` by lane."""

    bucket: int
    rows: int
    ranges: dict[str, tuple[int, int]]
    revision: int = 0
    deleted: bool = False


class FinishedWindow(_Answer, frozen=True):
    """Committed rows of one window: of each group the newest revision, unless it is deleted.

    `truncated`: it has more rows than these.
    """

    window_start: int
    window_end: int
    version: int
    complete: bool
    revision: int
    rows: list[Row]
    sources: list[WindowSource] = []
    truncated: bool = False


class RevisedWindow(_Answer, frozen=True):
    """A window that was left out, and whose rows are not what they were at first."""

    window_start: int
    version: int
    revision: int


class FinishedWindows(_Answer, frozen=True):
    """The last finished windows, newest first: each with all its rows, as last revised.

    Only the newest may be `truncated`, if it alone is over the limit. `truncated` here says that
    older windows were left out, or rows of that one; `revised` names those left out that late rows
    have changed of late.
    """

    windows: list[FinishedWindow]
    truncated: bool
    revised: list[RevisedWindow] = []

    def df(self) -> pl.DataFrame:
        """All rows as a polars frame: what holds, so without groups that a revision deleted."""
        from mars.frames import frame_of_rows  # noqa: PLC0415

        return frame_of_rows(_rows_of(self.windows))


def _rows_of(windows: Sequence[OpenWindow | FinishedWindow]) -> list[Row]:
    return [
        {"window_start": window.window_start, "window_end": window.window_end, **row}
        for window in windows
        for row in window.rows
    ]


class HeldBy(_Answer, frozen=True):
    """What keeps a window open."""

    partition: int | None
    bucket: int | None
    reason: str
    member: str | None
    watermark: int | None
    lag: int | None
    lane: str | None = None


class PartitionWhy(_Answer, frozen=True):
    """One partition as a window sees it, or what is left of its backfill (`3@b1`)."""

    partition: int | None
    watermark: int | None
    lag: int | None
    idle: bool
    reason: str
    member: str | None
    lane: str = ""


class WindowWhy(_Answer, frozen=True):
    """Why one window is still open."""

    window_start: int
    window_end: int
    version: int
    rows: int
    watermark: int | None
    expected_close: int | None
    held_by: HeldBy
    partitions: list[PartitionWhy]


class DroppedSample(_Answer, frozen=True):
    """Where a row lies that was not counted."""

    partition: int | None
    offset: int
    next: int
    rows: int
    reason: str


class Dropped(_Answer, frozen=True):
    """Rows that were not counted."""

    bad: int
    future: int
    late: int
    samples: list[DroppedSample]


class Why(_Answer, frozen=True):
    """Why no result is coming; `summary` is a sentence for a person."""

    windows: list[WindowWhy]
    more: int
    dropped: Dropped
    summary: str


class Partition(_Answer, frozen=True):
    """How far a mapper is in a partition."""

    topic: str
    partition: int
    position: int
    state: str
    lag: int | None = None


class BucketLoad(_Answer, frozen=True):
    """What a bucket costs its owner, a second; `use` in CPU seconds."""

    use: float
    rows_per_second: float
    bytes_per_second: float
    backlog_bytes: int


class Bucket(_Answer, frozen=True):
    """What a reducer does with a bucket; no load: next to nothing."""

    bucket: int
    epoch: int
    state: str
    load: BucketLoad | None = None


class Member(_Answer, frozen=True):
    """A live process."""

    id: str
    role: str
    host: str
    pid: int
    started: int
    load: dict[str, float]
    missing: list[str]
    partitions: list[Partition]
    buckets: list[Bucket]
    reported: int | None = None
    age_s: float | None = None
    leaving: bool = False


class Wanted(_Answer, frozen=True):
    """How many members of a role the load asks for."""

    role: str
    present: int
    wanted: int
    reason: str
    kind: str = "unknown"


class Move(_Answer, frozen=True):
    """A bucket changed hands."""

    bucket: int
    source: str | None
    target: str
    reason: str
    at: int
    kind: str = "members"


class Assisted(_Answer, frozen=True):
    """A bucket whose log others help to merge, and why."""

    bucket: int
    assistants: list[str]
    reason: str


class AssistantChange(_Answer, frozen=True):
    """Who merged a bucket's log from then on, perhaps nobody, and why."""

    bucket: int
    assistants: list[str]
    reason: str
    at: int


class StrategyChange(_Answer, frozen=True):
    """How buckets were spread from then on, and why."""

    strategy: str
    reason: str
    at: int


class Lent(_Answer, frozen=True):
    """A bucket that was moved to relieve its home, to which it goes back."""

    bucket: int
    home: str
    borrower: str


class Balance(_Answer, frozen=True):
    """What the leader makes of the loads; moves and changes are the last ones, oldest first."""

    mean_use: float
    deviation: float
    pressure: dict[str, float]
    wanted: list[Wanted]
    moves: list[Move]
    strategy: str = ""
    strategy_reason: str = ""
    rows_ratio: float = 1.0
    assisted: list[Assisted] = []
    moves_total: int = 0
    moves_by_kind: dict[str, int] = {}
    strategy_kind: str = ""
    lent: list[Lent] = []
    lent_total: int = 0
    assistant_changes: list[AssistantChange] = []
    strategy_changes: list[StrategyChange] = []


class Leader(_Answer, frozen=True):
    """Who leads the reducers, and in which epoch."""

    member: str | None
    epoch: int


class Owner(_Answer, frozen=True):
    """Which reducer owns a bucket."""

    bucket: int
    member: str
    epoch: int


class TaskBacklog(_Answer, frozen=True):
    """What one task has not done yet."""

    task: str
    log_bytes: int
    lag: int


class Backlog(_Answer, frozen=True):
    """What has not been done yet."""

    log_bytes: int
    lag: int
    tasks: list[TaskBacklog]


class Cluster(_Answer, frozen=True):
    """The state of the cluster."""

    namespace: str
    version: str
    buckets: int
    store_epoch: int | None
    leader: Leader | None
    members: list[Member]
    assignment: list[Owner]
    backlog: Backlog
    missing: list[str]
    balance: Balance | None = None


class Readiness(_Answer, frozen=True):
    """Each server: ok, or what is missing."""

    status: str
    services: dict[str, str]


class Key(_Answer, frozen=True):
    """What is known of an API key; `ending` are its last characters."""

    id: str
    role: str
    ending: str
    reads: list[str]
    writes: list[str]
    note: str
    created: int


class NewKey(Key, frozen=True):
    """A key that was just made: `key` is its text, which nobody can show again."""

    key: str


class Keys(_Answer, frozen=True):
    """All keys, oldest first."""

    keys: list[Key]


class ResultEvent(msgspec.Struct, frozen=True):
    """One result row as it was committed.

    `raw` is its JSON, `id` what `Client.tail` goes on by, `source` says where it was counted from.
    """

    partition: int
    offset: int
    raw: bytes
    id: str = ""
    source: WindowSource | None = None

    @property
    def row(self) -> Row:
        """The row by column."""
        decoded: Row = msgspec.json.decode(self.raw)
        return decoded
