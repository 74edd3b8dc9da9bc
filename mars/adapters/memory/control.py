"""The topic `mars.control` in memory: the twin of Kafka's."""

from __future__ import annotations

from mars.adapters.memory.faults import Faults, fallible
from mars.definitions import TaskDefinition
from mars.ports import ControlState
from mars.types import AssignmentEpoch, LeaderEpoch, StoreEpoch, TaskName


class MemoryControlLog:
    """`ControlLog` in memory, compacted at once."""

    def __init__(self) -> None:
        self.faults = Faults("kafka")
        self._tasks: dict[TaskName, TaskDefinition] = {}
        self._epochs = (LeaderEpoch(0), StoreEpoch(0), AssignmentEpoch(0))

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def put_task(self, definition: TaskDefinition) -> None:
        """Copy a definition."""
        self._tasks[definition.name] = definition

    @fallible
    def put_epochs(
        self, leader: LeaderEpoch, store: StoreEpoch, assignment: AssignmentEpoch
    ) -> None:
        """Note the highest epochs in use."""
        self._epochs = (leader, store, assignment)

    @fallible
    def read(self) -> ControlState:
        """Everything in the topic."""
        return ControlState(dict(self._tasks), *self._epochs)
