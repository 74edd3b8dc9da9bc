"""The topic `mars.control` in memory: the twin of Kafka's."""

from __future__ import annotations

from collections.abc import Sequence

from mars.adapters.copies import TaskCopies
from mars.adapters.memory.faults import Faults, fallible
from mars.core.definitions import TaskDefinition, with_deletions
from mars.core.plan import Stream
from mars.core.types import AssignmentEpoch, LeaderEpoch, StoreEpoch, StreamName, TaskName
from mars.protocol.ports import ControlState


class MemoryControlLog:
    """`ControlLog` in memory, compacted at once."""

    def __init__(self) -> None:
        self.faults = Faults("kafka")
        self._tasks = TaskCopies()
        self._deleted: dict[TaskName, TaskDefinition] = {}
        self._streams: dict[StreamName, Stream] = {}
        self._epochs: dict[LeaderEpoch, tuple[StoreEpoch, AssignmentEpoch]] = {}

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def put_task(self, definition: TaskDefinition, leader: LeaderEpoch | None = None) -> None:
        """Copy a definition, as a leader or for a user."""
        self._tasks.put(definition, leader)
        for epoch in self._tasks.of_leaders_before(definition.name, leader or LeaderEpoch(0)):
            self._tasks.remove(definition.name, epoch)

    @fallible
    def put_tasks(
        self, definitions: Sequence[TaskDefinition], leader: LeaderEpoch | None = None
    ) -> None:
        """Copy many definitions."""
        for definition in definitions:
            self.put_task(definition, leader)

    @fallible
    def put_deleted(self, definition: TaskDefinition) -> None:
        """Copy a deleted task for good."""
        self._deleted[definition.name] = definition

    @fallible
    def put_stream(self, stream: Stream) -> None:
        """Copy a stream."""
        self._streams[stream.name] = stream

    @fallible
    def delete_stream(self, name: StreamName) -> None:
        """Take the copy of a stream away."""
        self._streams.pop(name, None)

    @fallible
    def put_epochs(
        self, leader: LeaderEpoch, store: StoreEpoch, assignment: AssignmentEpoch
    ) -> None:
        """Note the highest epochs in use; those of leaders before this one are put away."""
        self._epochs[leader] = (store, assignment)
        for former in [one for one in self._epochs if one < leader]:
            del self._epochs[former]

    @fallible
    def read(self) -> ControlState:
        """Everything in the topic."""
        store = max((one for one, _ in self._epochs.values()), default=StoreEpoch(0))
        assignment = max((one for _, one in self._epochs.values()), default=AssignmentEpoch(0))
        tasks = with_deletions(self._tasks.newest(), self._deleted)
        highest = max([self._tasks.leader, *self._epochs])
        return ControlState(tasks, highest, store, assignment, dict(self._streams))
