"""A task compiled: everything the kernel and the reducers need to know, and no SQL text.

`mars.sql` makes plans; nothing else does. All values are immutable, comparable and picklable, so
that a plan can travel to Spark executors as it is.

A query is cut in two at the aggregation:

    rows ── filter ──▶ keys k0 k1 .. ──▶ aggregates a0 a1 ..      columns of the stream (kernel)
    groups ── having ──▶ order, limit ──▶ outputs                 k*, a*, window_* (reducer)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from mars.core.types import StreamName, TaskName
from mars.core.windows import Counting, CountingByKey, Session, WindowShape

WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOW_PARTITION = "partition"
WINDOW_NUMBER = "window_number"
WINDOW_FIRST_OFFSET = "window_first_offset"
WINDOW_LAST_OFFSET = "window_last_offset"
OF_COUNTED = (WINDOW_PARTITION, WINDOW_NUMBER, WINDOW_FIRST_OFFSET, WINDOW_LAST_OFFSET)
"""Which rows a window counts; in rows of windows that do."""

WINDOW_LOCAL = "window_local"
"""When a window begins by the clock of its zone; in rows of windows that have one."""


class FieldType(StrEnum):
    """How a field is written in a record."""

    STRING = "string"
    INT64 = "int64"
    FLOAT64 = "float64"
    BOOL = "bool"
    TIMESTAMP_MS = "timestamp_ms"
    TIMESTAMP_US = "timestamp_us"
    TIMESTAMP_S = "timestamp_s"
    TIMESTAMP_ISO = "timestamp_iso"

    @property
    def value_type(self) -> ValueType:
        """The type of the decoded column; all timestamps become epoch milliseconds."""
        if self.name.startswith("TIMESTAMP"):
            return ValueType.TIMESTAMP
        return ValueType(self.value)


class ValueType(StrEnum):
    """The type of an expression. INTEGER is an exact integer of up to 128 bits (sums)."""

    STRING = "string"
    INT64 = "int64"
    INTEGER = "integer"
    FLOAT64 = "float64"
    BOOL = "bool"
    TIMESTAMP = "timestamp"


class Format(StrEnum):
    """How a message of a stream is to be read."""

    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"


class RecordTime(StrEnum):
    """What Kafka's own time of a record is used for."""

    CHECK = "check"
    """An event time too far after it is not counted: see `Options.future_limit_ms`."""
    IGNORE = "ignore"
    """Nothing. Then nothing guards against a row that is far in the future."""


class Origin(StrEnum):
    """What of a record a field is taken from instead of its message."""

    KEY = "$key"
    TIMESTAMP = "$timestamp"
    PARTITION = "$partition"
    OFFSET = "$offset"


ORIGIN_TYPES = {
    Origin.KEY: FieldType.STRING,
    Origin.TIMESTAMP: FieldType.TIMESTAMP_MS,
    Origin.PARTITION: FieldType.INT64,
    Origin.OFFSET: FieldType.INT64,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field of a stream; `origin` is None for one that messages hold."""

    name: str
    type: FieldType
    origin: Origin | None = None


RECORD_TIME_FIELD = Field(Origin.TIMESTAMP.value, FieldType.TIMESTAMP_MS, Origin.TIMESTAMP)
"""The event time of a stream that declares none of its fields as that, but `$timestamp`."""


OFFSET_FIELD = Field(Origin.OFFSET.value, FieldType.INT64, Origin.OFFSET)
"""What windows that count rows read besides: each row's offset."""


def reads_keys(fields: Iterable[Field]) -> bool:
    """Whether records must carry their keys, which costs reading them."""
    return any(one.origin is Origin.KEY for one in fields)


@dataclass(frozen=True, slots=True)
class Stream:
    """A Kafka topic with declared fields; `event_time` names one of them, a timestamp.

    Where it is Kafka's own time of each record, RECORD_TIME_FIELD is the last of the fields.
    Cells of CSV lie between `csv_delimiter`, and in `csv_quote` where they hold one of both.
    """

    name: StreamName
    topic: str
    format: Format
    fields: tuple[Field, ...]
    event_time: str
    csv_header: bool = False
    csv_delimiter: str = ","
    csv_quote: str = '"'
    record_time: RecordTime = RecordTime.CHECK

    @property
    def message_fields(self) -> tuple[Field, ...]:
        """The fields that messages hold, in declared order; there is one at least."""
        return tuple(one for one in self.fields if one.origin is None)

    def field(self, name: str) -> Field | None:
        """The declared field of that name."""
        return next((declared for declared in self.fields if declared.name == name), None)


class Function(StrEnum):
    """The scalar functions and operators that plans may contain."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    MODULO = "%"
    NEGATE = "negate"
    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    AND = "and"
    OR = "or"
    NOT = "not"
    IN = "in"  # value, then the candidates
    LIKE = "like"  # value, pattern literal, escape literal or nothing
    IS_NULL = "is_null"
    CASE = "case"  # when, then, when, then, ..., else
    COALESCE = "coalesce"
    NULLIF = "nullif"
    ABS = "abs"
    ROUND = "round"  # value, digits literal or nothing
    FLOOR = "floor"
    CEIL = "ceil"
    LOWER = "lower"
    UPPER = "upper"
    LENGTH = "length"
    SUBSTR = "substr"  # value, start counted from 1, length or nothing
    CONCAT = "concat"
    CAST = "cast"  # to the type of the call


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name: a field of the stream, or `k<i>`, `a<i>`, `window_start`, `window_end`."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is the NULL of its type."""

    value: str | int | float | bool | None
    type: ValueType


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to arguments; `type` is the type of the result."""

    function: Function
    arguments: tuple[Expression, ...]
    type: ValueType


Expression = Column | Literal | Call


class AggregateFunction(StrEnum):
    """The aggregates; each has a mergeable state in `mars.engine.aggregates`."""

    COUNT_ALL = "count_all"
    COUNT = "count"
    COUNT_DISTINCT = "count_distinct"
    COUNT_IF = "count_if"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    VAR_SAMP = "var_samp"
    VAR_POP = "var_pop"
    STDDEV_SAMP = "stddev_samp"
    STDDEV_POP = "stddev_pop"
    ANY_VALUE = "any_value"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a plan; its results are the column `slot` (`a0`, `a1` ...).

    `argument` is None for COUNT_ALL only. Rows for which `filter` is not true do not count.
    """

    slot: str
    function: AggregateFunction
    argument: Expression | None
    filter: Expression | None
    type: ValueType


@dataclass(frozen=True, slots=True)
class Key:
    """One group key, over the columns of the stream; its values are the column `slot`."""

    slot: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Output:
    """One item of the SELECT list, over `k*`, `a*`, `window_start` and `window_end`."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Order:
    """One ORDER BY item; NULLs come last in both directions."""

    expression: Expression
    descending: bool


class LatePolicy(StrEnum):
    """What becomes of a row whose windows are all closed."""

    DROP = "drop"
    REVISE = "revise"
    """For some time its groups are emitted again, with all their rows."""


class Emit(StrEnum):
    """Which groups a window has that begins with others."""

    ALL = "all"
    """All that have rows in it."""
    CHANGED = "changed"
    """Those that got rows since the last window."""


class WatermarkScope(StrEnum):
    """Whose rows tell that a window is over."""

    PARTITION = "partition"
    """All rows of the slowest partition."""
    BUCKET = "bucket"
    """The rows of a bucket's keys; at the latest those of the partitions, `key_lag` later."""
    KEY = "key"
    """The rows of each key; at the latest those of the partitions, `key_lag` later."""


class OverMaxKeys(StrEnum):
    """What becomes of a task that has more than `max_keys` groups in a window."""

    FAIL = "fail"
    FOLD = "fold"
    """Groups beyond the first `max_keys` become one; see `mars.engine.aggregates.others`."""


class TaskBuckets(StrEnum):
    """In which buckets of the cluster the groups of a task lie."""

    ALL = "all"
    ONE = "one"
    """That of the task's name: what each bucket of a task costs is paid once, by one reducer."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may set for a task; durations in milliseconds.

    `max_keys` is the most groups that a window may have, None: as many as the budget of the task's
    log holds. `lateness_ms` is how long after closing a window is revised; 0 with LatePolicy.DROP.
    `key_lag_ms` is how far keys may lag behind the partitions; 0 with WatermarkScope.PARTITION.
    """

    output_topic: str
    delay_ms: int = 0
    idle_after_ms: int = 5_000
    future_limit_ms: int = 300_000
    late: LatePolicy = LatePolicy.DROP
    lateness_ms: int = 0
    max_keys: int | None = None
    over_max_keys: OverMaxKeys = OverMaxKeys.FAIL
    watermark: WatermarkScope = WatermarkScope.PARTITION
    key_lag_ms: int = 0
    emit: Emit = Emit.ALL
    buckets: TaskBuckets = TaskBuckets.ALL


@dataclass(frozen=True, slots=True)
class Plan:
    """A task compiled.

    `keys` stand in the order of the result key: those selected, in SELECT order, then the rest.
    The event-time field is never a key: in SELECT and GROUP BY it means the window's start.
    """

    task: TaskName
    version: int
    stream: Stream
    window: WindowShape
    keys: tuple[Key, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[Output, ...]
    options: Options
    filter: Expression | None = None
    having: Expression | None = None
    order_by: tuple[Order, ...] = ()
    limit: int | None = None
    fields: tuple[Field, ...] = field(default=())
    """The declared fields that the kernel must decode, event time included, in declared order."""

    @property
    def single_bucket(self) -> bool:
        """True where the whole task lives in one bucket, chosen by its name.

        Buckets do not know of each other, so only there can the groups of a window be ordered, or
        counted against a limit, or a window be emitted for a row of any group. Besides, a task may
        ask for it.
        """
        asked = self.options.buckets is TaskBuckets.ONE
        limited = self.limit is not None or self.options.max_keys is not None
        by_any_row = self.window.by_any_row and not self.emits_changed
        return asked or not self.keys or bool(self.order_by) or limited or by_any_row

    @property
    def window_columns(self) -> tuple[Column, ...]:
        """What each result row says of its window, before its items."""
        bounds = tuple(Column(name, ValueType.TIMESTAMP) for name in (WINDOW_START, WINDOW_END))
        if self.counts_rows:
            return (*bounds, *(Column(name, ValueType.INT64) for name in OF_COUNTED))
        if self.window.zone is None:
            return bounds
        return (*bounds, Column(WINDOW_LOCAL, ValueType.STRING))

    @property
    def emits_changed(self) -> bool:
        """True where windows have those groups alone that got rows since the last one."""
        return self.options.emit is Emit.CHANGED

    @property
    def counts_rows(self) -> bool:
        """True where windows are of so many rows, and go by no time."""
        return isinstance(self.window, Counting)

    @property
    def counts_by_key(self) -> bool:
        """True where the rows of each key are counted by themselves."""
        return isinstance(self.window, CountingByKey)

    @property
    def has_sessions(self) -> bool:
        """True where windows are sessions, of each group its own."""
        return isinstance(self.window, Session)

    @property
    def maps_in_order(self) -> bool:
        """True where each batch is of one lane, read by mappers alone: its rows are counted in the
        order of their offsets, or some of sessions may have been late that others of it were not.
        """
        return self.counts_rows or self.has_sessions

    @property
    def closes_by_key(self) -> bool:
        """True where the groups of a window may close at times of their own."""
        return self.options.watermark is WatermarkScope.KEY

    @property
    def folds(self) -> bool:
        """True where groups beyond `max_keys` become one."""
        options = self.options
        return options.max_keys is not None and options.over_max_keys is OverMaxKeys.FOLD
