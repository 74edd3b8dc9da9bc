"""Which of several copies of a task in `mars.control` counts; both adapters of it ask here.

Each leader has a copy of a task that is its own, by its epoch, and the API has one. Any of them may
be made late, by a process that stood still meanwhile, and then be the last. So what counts is

- a copy with the newest version that any of them knows;
- of leaders' copies with it the highest leader's. Two leaders may have seen a version begin in two
  lives of the store, and only the later one has decided where. Where the later one says that it
  still waits, it saw that ZooKeeper had not got the beginning, and never will;
- of that one and the API's the one in which the version has begun, else the later one. What the API
  copies late says of a version that has begun that it waits.

Nothing in this asks for a copy that another one may have replaced when the topic is compacted.
"""

from __future__ import annotations

from mars.core.definitions import TaskDefinition
from mars.core.types import LeaderEpoch, TaskName


class TaskCopies:
    """All copies, in the order in which they were made."""

    def __init__(self) -> None:
        self._copies: dict[tuple[TaskName, LeaderEpoch | None], TaskDefinition] = {}

    def put(self, definition: TaskDefinition, leader: LeaderEpoch | None) -> None:
        """A copy that a leader made, or the API (None); it replaces the one made before."""
        self.remove(definition.name, leader)
        self._copies[definition.name, leader] = definition

    def remove(self, name: TaskName, leader: LeaderEpoch | None) -> None:
        """Take a copy away, if there is one."""
        self._copies.pop((name, leader), None)

    def of_leaders_before(self, name: TaskName, leader: LeaderEpoch) -> list[LeaderEpoch]:
        """The leaders below this one who have a copy of a task."""
        known = [epoch for each, epoch in self._copies if each == name and epoch is not None]
        return [epoch for epoch in known if epoch < leader]

    @property
    def leader(self) -> LeaderEpoch:
        """The highest leader who has made a copy; 0 if none has."""
        return max(
            (epoch for _, epoch in self._copies if epoch is not None), default=LeaderEpoch(0)
        )

    def newest(self) -> dict[TaskName, TaskDefinition]:
        """The copy of each task that counts."""
        deciding = self._deciding()
        chosen: dict[TaskName, TaskDefinition] = {}
        for (name, epoch), definition in self._copies.items():
            if epoch is not None and epoch != deciding[name]:
                continue
            if name not in chosen or _reached(definition) >= _reached(chosen[name]):
                chosen[name] = definition
        return chosen

    def _deciding(self) -> dict[TaskName, LeaderEpoch]:
        """Of each task, the leader whose copy counts among those of leaders."""
        best: dict[TaskName, tuple[int, LeaderEpoch]] = {}
        for (name, epoch), definition in self._copies.items():
            if epoch is not None:
                standing = definition.current.version, epoch
                best[name] = max(standing, best.get(name, standing))
        return {name: epoch for name, (_, epoch) in best.items()}


def _reached(definition: TaskDefinition) -> tuple[int, bool]:
    """How far a task has come in a copy: neither of the two ever goes back."""
    return definition.current.version, definition.current.starts is not None
