"""The JSON that comes in; nothing outside `api` knows these classes.

Times are epoch milliseconds. Requests refuse unknown members.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)


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
    warnings: list[str] = Field(default=[], description="as an answer has them; not looked at")


class StartAt(Request):
    """Start at the first rows that Kafka got at or after a time."""

    timestamp: int = Field(ge=0, le=2**53, description="epoch milliseconds")


def _start(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """What pydantic says of a union names each of its types, which nobody knows who writes JSON."""
    try:
        return handler(value)
    except ValidationError:
        raise ValueError(
            'write "latest", "earliest" or {"timestamp": epoch milliseconds}'
        ) from None


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
by `key_lag` (1min) behind the partitions; `emit` (all): where windows begin together, `all` groups
since then or those that `changed` since the last window; `output_topic` (mars.results.NAME).
Durations are texts such as `500ms`, `1s`, `5min`."""
"""What a task's options are, for the documentation of the interface."""


TASKS_MAX = 10_000
"""Of one set: more than a namespace should have."""


class NewTaskRequest(Request):
    """A task to register."""

    name: str
    sql: str
    start: Annotated[Literal["latest", "earliest"] | StartAt, WrapValidator(_start)] = Field(
        default="latest",
        description="of the topic's rows; what lies between it and now is computed by Spark if it "
        "is much",
    )
    options: dict[str, Any] = Field(default_factory=dict, description=OPTIONS)
    history: HistoryRequest | None = Field(
        default=None,
        description="files that hold all rows before the topic's; windows from them are complete",
    )


class NamedSetRequest(Request):
    """The set that tasks belong to."""

    name: str
    output_topic: str | None = Field(
        default=None,
        description="of all tasks of the set that name none: the header mars-task tells them apart",
    )


class TaskSetRequest(Request):
    """Tasks that are to be as they stand here."""

    tasks: list[NewTaskRequest] = Field(
        max_length=TASKS_MAX,
        description="start and history are of tasks that are new",
    )
    set: NamedSetRequest | None = None
    prune: bool = Field(
        default=False, description="delete what the same set has made and is not among the tasks"
    )
    dry_run: bool = Field(default=False, description="check, and say what would change")


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
    TaskSetRequest,
    TaskRequest,
    ValidateRequest,
    NewKeyRequest,
)
