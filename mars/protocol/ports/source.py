"""Topics of the users, as mappers read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from mars.core.errors import TopicRefused
from mars.core.types import Records, Topic
from mars.protocol.ports.control import TopicAdmin


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions that this member of the group now reads; it must seek before records come."""

    partitions: tuple[tuple[Topic, int], ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """Partitions that another member may read from now on."""

    partitions: tuple[tuple[Topic, int], ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition; `records.first` is where the last ones (or the seek) ended."""

    topic: Topic
    records: Records


@dataclass(frozen=True, slots=True)
class EndReached:
    """The broker confirmed that nothing committed lies at or after `offset` at this moment."""

    topic: Topic
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetGone:
    """The sought offset does not exist in Kafka any more; `available` is the lowest that does."""

    topic: Topic
    partition: int
    offset: int
    available: int


SourceEvent = Assigned | Revoked | Fetched | EndReached | OffsetGone


class SourceReader(Protocol):
    """Reads partitions, either as a member of a consumer group or those it is told to.

    Committed rows only (`read_committed`). A partition delivers nothing before its first `seek`.
    """

    def subscribe(self, topics: Sequence[Topic]) -> None:
        """Read these topics as a group member; `Assigned` and `Revoked` come out of `poll`."""

    def want_keys(self, topics: Collection[Topic]) -> None:
        """Let the records of these topics carry their keys, and those of no others.

        Of a topic that joins them no record without its key is delivered behind the next seek of a
        partition; what was read before it may be.
        """

    def seek(self, topic: Topic, partition: int, offset: int) -> None:
        """Go on from `offset`; a reader outside a group starts to read the partition by it."""

    def drop(self, topic: Topic, partition: int) -> None:
        """Stop to read a partition (a reader outside a group only)."""

    def pause(self, topic: Topic, partition: int) -> None:
        """Deliver no more records of a partition; membership and heartbeats go on."""

    def resume(self, topic: Topic, partition: int, offset: int) -> None:
        """Deliver records of a paused partition again, from `offset`."""

    def poll(self, records_max: int, timeout_s: float) -> list[SourceEvent]:
        """Wait until there is something, at most `timeout_s`; a topic comes in offset order."""

    def lags(self) -> dict[tuple[Topic, int], int]:
        """How many messages are known to lie ahead in each partition, without asking anybody."""

    def confirm_ends(self, ends: Mapping[tuple[Topic, int], int]) -> set[tuple[Topic, int]]:
        """Ask the brokers where nothing committed lies at or after these offsets."""

    def hint(self, positions: Mapping[tuple[Topic, int], int]) -> None:
        """Commit group offsets, best effort: a lag figure for other tools, never read back."""

    def close(self) -> None:
        """Leave the group and free everything."""


def ends_by_topic(admin: TopicAdmin, topics: Iterable[Topic]) -> dict[Topic, dict[int, int]]:
    """Where these topics end, without those that Kafka refuses: none waits for them (I7)."""
    ends: dict[Topic, dict[int, int]] = {}
    for topic in topics:
        with suppress(TopicRefused):
            ends[topic] = admin.ends(topic)
    return ends
