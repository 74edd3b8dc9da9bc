"""Ad-hoc queries: what was asked, how far it is, and the rows that came out.

A query is a node in ZooKeeper that changes by compare-and-set only: the API makes it and may cancel
it, a process with the role `bulk` takes it, runs it and says how it ended.

    waiting ──taken──▶ running ──▶ done | failed
       │                 │ its process died: taken again, at most `ATTEMPTS_MAX` times in all
       └──── cancelled ◀─┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

import msgspec

from mars.core.definitions import FileHistory
from mars.core.plan import Stream
from mars.core.types import MemberId, RowCounts, Topic
from mars.core.windows import Zone

QueryId = NewType("QueryId", str)

ATTEMPTS_MAX = 3
"""How often a query is begun: one whose processes die each time most likely kills them."""

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of an answer's rows: what an API process of 512 MB can hand out to two clients at once."""


class QueryState(StrEnum):
    """How far a query is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True once it will not change any more."""
        return self not in {QueryState.WAITING, QueryState.RUNNING}


@dataclass(frozen=True, slots=True)
class AnswerSlot:
    """Where an answer will be written: none of its records lies below `first` of the partition."""

    partition: int
    first: int


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Where an answer lies in the topic of answers: its committed records are in `[first, next)`.

    Those of others may lie among them. `rows` and `size_bytes` are those of the answer.
    """

    partition: int
    first: int
    next: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Query:
    """What was asked for: rows of a stream with event times in `[from_ms, until_ms)`.

    None: no bound. `files` is None where the stream's topic is read. `output_topic` gets the rows
    too, if there is one. `timeout_ms` runs from the moment it is taken for the first time. `zone`
    is the time zone of its windows, as it was known when it was asked.
    """

    id: QueryId
    sql: str
    options: Mapping[str, object]
    stream: Stream
    created_ms: int
    from_ms: int | None
    until_ms: int | None
    rows_max: int
    timeout_ms: int
    files: FileHistory | None = None
    output_topic: Topic | None = None
    zone: Zone | None = None


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query, and how far it is.

    `attempt` counts how often it was taken, by `member` the last time. `input_offsets` is how much
    there is to read: messages of Kafka, rows of Parquet, bytes of text. `detail` says why it
    failed.
    """

    query: Query
    state: QueryState = QueryState.WAITING
    attempt: int = 0
    member: MemberId | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    slot: AnswerSlot | None = None
    input_offsets: int | None = None
    counts: RowCounts | None = None
    place: AnswerPlace | None = None
    detail: str = ""


class QueryRegistry(Protocol):
    """Queries in ZooKeeper. Versions are the registry's own, for compare-and-set."""

    def create(self, record: QueryRecord) -> bool:
        """False if the id exists."""

    def all(self) -> list[QueryRecord]:
        """All that are kept, in no order."""

    def get(self, query: QueryId) -> tuple[QueryRecord, int] | None:
        """A query and the registry's version of it."""

    def replace(self, record: QueryRecord, expected: int) -> bool:
        """Write a query if the registry's version still is `expected`; else False."""

    def delete(self, query: QueryId) -> bool:
        """False if there was none."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` (from another thread) after any change of any query."""


@dataclass(frozen=True, slots=True)
class OutputRow:
    """A row for a topic of the user's."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Rows that go to one partition of a topic of the user's."""

    topic: Topic
    partition: int
    rows: Sequence[OutputRow]


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query as JSON texts, and where the rows that were read went."""

    query: QueryId
    rows: Sequence[bytes]
    counts: RowCounts
    output: OutputRows | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """An answer that is committed."""

    place: AnswerPlace
    counts: RowCounts


class QueryRows(Protocol):
    """The topic `mars.queries`: answers, each in one transaction with what else it writes.

    The transactional id is the query's. Whoever writes fences the others first, and then looks
    whether one of them has committed an answer: so an answer is there once or not at all.
    """

    def reserve(self, query: QueryId) -> AnswerSlot:
        """Where an answer that is written from now on will lie."""

    def recover(self, query: QueryId, slot: AnswerSlot) -> Written | None:
        """The answer if it was committed; whoever may still be writing it is fenced."""

    def write(self, answer: Answer, slot: AnswerSlot) -> Written:
        """Commit an answer, or find the one that was committed before.

        Raises JobFailed if it can never be written, Unavailable if it is not known to be
        committed: the same call may be made again.
        """

    def read(self, query: QueryId, place: AnswerPlace) -> list[bytes]:
        """The rows of an answer. Raises NotFound once Kafka has deleted them."""


class ListHistory(Protocol):
    """Finds the files of a backfill or a query."""

    def __call__(
        self,
        location: str,
        format: str,
        stream: Stream,
        *,
        csv_header: bool,
        until_ms: int | None,
    ) -> FileHistory:
        """The files of a directory or a pattern; `format` is `parquet`, `ndjson` or `csv`.

        There is at least one, with at least one offset. Raises Rejected, saying what is wrong.
        """


def encode_query(record: QueryRecord) -> bytes:
    """The JSON of a query."""
    return msgspec.json.encode(record)


def decode_query(raw: bytes) -> QueryRecord:
    """The query that `encode_query` wrote."""
    return msgspec.json.decode(raw, type=QueryRecord)
