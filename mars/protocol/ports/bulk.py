"""Spark, as the process with the role `bulk` uses it: jobs that map much at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mars.core.definitions import FileHistory, TaskVersion
from mars.core.plan import Stream
from mars.core.types import Lane, Mapped, Range, RowCounts, TaskName
from mars.core.windows import Zone


@dataclass(frozen=True, slots=True)
class MapJob:
    """Rows to be mapped for one version of a task: `ranges` of its topic, or of files.

    `files` is None for the topic. All ranges are of lanes that are read in the same way.
    """

    id: str
    task: TaskName
    version: TaskVersion
    buckets: int
    ranges: tuple[Range, ...]
    files: FileHistory | None = None


@dataclass(frozen=True, slots=True)
class QueryJob:
    """A query over what lies in a topic or in files now: event times in `[from_ms, until_ms)`.

    None: no bound. More than `rows_max` result rows are an error that names the limit.
    """

    id: str
    sql: str
    options: Mapping[str, object]
    stream: Stream
    buckets: int
    ranges: tuple[Range, ...]
    from_ms: int | None
    until_ms: int | None
    rows_max: int
    files: FileHistory | None = None
    zone: Zone | None = None


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """Result rows as JSON texts, in the order of windows and keys, and where the rows went.

    `keys[i]` is the Kafka key of `rows[i]`, both as `mars.engine.finishing` writes them. `counted`:
    how many rows of each lane have numbers, where windows count them. Where these are of the rows
    of each key, those of `unfilled` keys are not full.
    """

    rows: tuple[bytes, ...]
    counts: RowCounts = field(default=RowCounts())
    keys: tuple[bytes, ...] = ()
    counted: Mapping[Lane, int] = field(default_factory=dict)
    unfilled: frozenset[bytes] = frozenset()


class BulkEngine(Protocol):
    """Runs jobs on a Spark cluster. Calls block, may come from several threads, and raise

    Unavailable (no session, cluster or topic: try again), JobCancelled (by `cancel` or `close`),
    JobFailed (the rows or the plan are at fault: trying again will not help).
    """

    def map(self, job: MapJob) -> Mapped:
        """One batch of all ranges: per bucket one partial, merged on the executors."""

    def query(self, job: QueryJob) -> QueryAnswer:
        """The finished rows of a query."""

    def cancel(self, job_id: str) -> None:
        """Stop a job; nothing happens where there is none of that id."""

    def close(self) -> None:
        """Stop the session and all jobs."""
