"""The topic `mars.control`, and topics, partitions and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import TopicRefused
from mars.core.plan import Stream
from mars.core.types import (
    AssignmentEpoch,
    LeaderEpoch,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
)


class ControlLog(Protocol):
    """The compacted topic `mars.control`: what survives the loss of ZooKeeper."""

    def put_task(self, definition: TaskDefinition, leader: LeaderEpoch | None = None) -> None:
        """Copy a definition; returns once the broker has it.

        `leader` is the epoch of the leader who does so, None for a user's change. A copy that comes
        late, from a former leader or after the task has come further, has no effect.
        """

    def put_tasks(
        self, definitions: Sequence[TaskDefinition], leader: LeaderEpoch | None = None
    ) -> None:
        """The same of many definitions at once; returns once the broker has all."""

    def put_deleted(self, definition: TaskDefinition) -> None:
        """Copy a deleted task for good; returns once the broker has it.

        A copy of one of its versions that somebody puts later, not knowing, has no effect.
        """

    def put_stream(self, stream: Stream) -> None:
        """Copy a stream; returns once the broker has it."""

    def delete_stream(self, name: StreamName) -> None:
        """Take the copy of a stream away; returns once the broker knows."""

    def put_epochs(
        self, leader: LeaderEpoch, store: StoreEpoch, assignment: AssignmentEpoch
    ) -> None:
        """Note the highest epochs in use; returns once the broker has them."""

    def read(self) -> ControlState:
        """Everything in the topic."""


def put_copies(
    control: ControlLog, definitions: Iterable[TaskDefinition], leader: LeaderEpoch | None = None
) -> None:
    """Copy many definitions as they are; those that live at once."""
    copies = tuple(definitions)
    for deleted in [one for one in copies if one.state is TaskState.DELETED]:
        control.put_deleted(deleted)
    control.put_tasks([one for one in copies if one.state is not TaskState.DELETED], leader)


@dataclass(frozen=True, slots=True)
class ControlState:
    """What `mars.control` says: tasks and streams by name, and the highest epochs.

    `leader_epoch` is the highest of those who published an assignment or copied a task.
    """

    tasks: Mapping[TaskName, TaskDefinition] = field(default_factory=dict)
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    store_epoch: StoreEpoch = StoreEpoch(0)
    assignment_epoch: AssignmentEpoch = AssignmentEpoch(0)
    streams: Mapping[StreamName, Stream] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """True for a namespace in which nothing was ever declared or assigned."""
        return self == ControlState()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's unique id and its number of partitions."""

    topic_id: str
    partitions: int


class TopicAdmin(Protocol):
    """Topics, partitions and offsets of Kafka."""

    def describe(self, topic: Topic) -> TopicInfo | None:
        """None if there is no such topic. Raises TopicRefused: that of no other topic is."""

    def ensure_internal(self, buckets: int) -> None:
        """Make the topics of Mars itself where they are missing."""

    def ensure_output(self, topic: Topic, partitions: int) -> TopicInfo:
        """Make an output topic where it is missing. Raises TopicRefused, as above."""

    def ensure_outputs(
        self, topics: Iterable[Topic], partitions: int
    ) -> dict[Topic, TopicInfo | TopicRefused]:
        """The same of many topics; what Kafka refuses stands in its place."""

    def compacted(self, topic: Topic) -> bool:
        """Whether a topic keeps the newest record of each key alone; False where there is none.

        Raises TopicRefused.
        """

    def ends(self, topic: Topic) -> dict[int, int]:
        """The offset behind the last committed record, per partition."""

    def starts(self, topic: Topic) -> dict[int, int]:
        """The lowest available offset per partition."""

    def offsets_at(self, topic: Topic, timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a time, per partition; the end where there is none."""
