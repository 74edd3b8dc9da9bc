"""Results and references, read back for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from mars.types import Bucket, Range, TaskName, Topic


@dataclass(frozen=True, slots=True)
class CommittedRow:
    """One committed result row as it lies in an output topic; `key` and `value` are JSON.

    `bucket`, `emit`, `complete`, `revision` and `ranges` are what its headers say; `ranges` is
    empty in rows of a release that did not write them.
    """

    partition: int
    offset: int
    key: bytes
    value: bytes
    version: int
    revision: int
    complete: bool
    bucket: Bucket = Bucket(0)
    emit: int = 0
    ranges: tuple[Range, ...] = ()


class ResultFollower(Protocol):
    """Result rows of one task as they are committed, from some offsets on."""

    @property
    def starts(self) -> Mapping[int, int]:
        """The offset per partition at which it began."""

    def poll(self, timeout_s: float) -> list[CommittedRow]:
        """What was committed since the last call; waits up to `timeout_s` for something."""

    def close(self) -> None:
        """Free everything."""


class ResultTail(Protocol):
    """The output topics, read from their ends; committed rows only."""

    def recent(
        self, topic: Topic, task: TaskName, rows_max: int, window_start_ms: int | None
    ) -> list[CommittedRow]:
        """The newest rows of a task (of one window), per partition in offset order.

        At most `rows_max` of each partition; nothing if there is no such topic. A window is looked
        for among the newest rows only: the adapter states among how many.
        """

    def follow(
        self, topic: Topic, task: TaskName, after: Mapping[int, int] | None = None
    ) -> ResultFollower:
        """Rows that are committed from now on; in the partitions of `after`, those from there on.

        What Kafka has deleted meanwhile is passed over.
        """


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One reference in `mars.dead`: `rows` rows in `[first, next)` that were not counted.

    `window_start_ms` is set for late rows, `partition` for all that came from Kafka.
    """

    task: TaskName
    topic: Topic
    partition: int | None
    first: int
    next: int
    reason: str
    rows: int
    window_start_ms: int | None = None


class DeadLetters(Protocol):
    """The newest references in `mars.dead`."""

    def recent(self, task: TaskName, limit: int) -> list[DeadLetter]:
        """The newest references of a task, newest first; the adapter states how far it looks."""
