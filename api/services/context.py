"""The ports that the services work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mars.protocol.ports import (
    ControlLog,
    Coordinator,
    DeadLetters,
    IncidentLog,
    KeyRegistry,
    ListHistory,
    ProgressLog,
    QueryRegistry,
    QueryRows,
    Registry,
    ResultTail,
    SavedPanes,
    ShownLog,
    SourceReader,
    SourceRows,
    TopicAdmin,
)


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside this process; `now_ms` is its wall clock, `sleep` takes seconds.

    `open_reader` makes a reader of topics outside of any group, to be closed by who asked.
    """

    registry: Registry
    coordinator: Coordinator
    control: ControlLog
    admin: TopicAdmin
    log: ShownLog
    progress: ProgressLog
    saved: SavedPanes
    dead: DeadLetters
    results: ResultTail
    source_rows: SourceRows
    incidents: IncidentLog
    queries: QueryRegistry
    answers: QueryRows
    keys: KeyRegistry
    list_history: ListHistory
    open_reader: Callable[[], SourceReader]
    now_ms: Callable[[], int]
    sleep: Callable[[float], None]


class BucketCount:
    """B of the namespace, asked for once: it never changes."""

    def __init__(self, coordinator: Coordinator, cluster: ClusterContext) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        self._fixed: int | None = None

    def __call__(self) -> int:
        """B. Raises Unavailable as long as it was never answered."""
        if self._fixed is None:
            self._fixed = self._coordinator.buckets(self._cluster.buckets_wanted)
        return self._fixed

    @property
    def of_results(self) -> int:
        """Partitions of an output topic that is made now. Raises as a call does."""
        return self._cluster.results_partitions or self()


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """What is fixed for a namespace.

    `buckets_wanted` (B) counts only where the namespace is made just now. `results_partitions`:
    of output topics that are made here; 0: as many as buckets. A history of more than
    `history_rows_min` messages is left to Spark, which reads `chunk_rows` at a time. There may be
    `tasks_max` tasks, each with `log_bytes_max` of partials.
    """

    namespace: str
    buckets_wanted: int
    results_partitions: int = 0
    history_rows_min: int = 100_000
    chunk_rows: int = 2_000_000
    tasks_max: int = 1_000
    log_bytes_max: int = 256 * 1024 * 1024
