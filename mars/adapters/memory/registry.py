"""The task registry in memory: the twin of ZooKeeper's.

One `MemoryShelf` holds the nodes; each `MemoryRegistry` is one process's connection to it, which
can be told to fail by itself. Safe for threads; `changed` runs in the thread that makes the change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mars.adapters.memory.coordinator import MemoryLeadership
from mars.adapters.memory.faults import Faults, fallible
from mars.core.definitions import TaskDefinition, decode_definition, encode_definition
from mars.core.plan import Stream
from mars.core.types import StreamName, TaskName
from mars.protocol.ports import Leadership, TaskWrite


@dataclass(slots=True)
class MemoryShelf:
    """What is kept: streams, tasks with the versions of their nodes, and who watches.

    `step` is how many definitions are written as one.
    """

    streams: dict[StreamName, Stream] = field(default_factory=dict)
    tasks: dict[TaskName, tuple[TaskDefinition, int]] = field(default_factory=dict)
    watchers: list[Callable[[], None]] = field(default_factory=list)
    whole: bool = False
    step: int = 200
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryRegistry:
    """`Registry` in memory."""

    def __init__(self, shelf: MemoryShelf | None = None) -> None:
        self.faults = Faults("zookeeper")
        self._shelf = shelf or MemoryShelf()

    def connect(self) -> MemoryRegistry:
        """Another process's connection to the same registry."""
        return MemoryRegistry(self._shelf)

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    def ping(self) -> str | None:
        """Always None: the twin answers."""
        return None

    def wipe(self) -> None:
        """Lose everything."""
        with self._shelf.lock:
            self._shelf.streams.clear()
            self._shelf.tasks.clear()
            self._shelf.whole = False
        self._tell()

    @fallible
    def whole(self) -> bool:
        """False for a registry that was never used, or has lost everything."""
        return self._shelf.whole

    @fallible
    def make_whole(self, lead: Leadership | None = None) -> bool:
        """Leave the mark that goes when everything goes."""
        if not _holds(lead):
            return False
        self._shelf.whole = True
        return True

    @fallible
    def streams(self) -> dict[StreamName, Stream]:
        """All streams by name."""
        with self._shelf.lock:
            return dict(self._shelf.streams)

    @fallible
    def stream(self, name: StreamName) -> Stream | None:
        """One stream."""
        with self._shelf.lock:
            return self._shelf.streams.get(name)

    @fallible
    def put_stream(self, stream: Stream, lead: Leadership | None = None) -> bool:
        """Declare or replace a stream."""
        with self._shelf.lock:
            if not _holds(lead):
                return False
            self._shelf.streams[stream.name] = stream
            return True

    @fallible
    def delete_stream(self, name: StreamName) -> bool:
        """False if there was none."""
        with self._shelf.lock:
            return self._shelf.streams.pop(name, None) is not None

    @fallible
    def tasks(self) -> dict[TaskName, TaskDefinition]:
        """All definitions, deleted ones included."""
        with self._shelf.lock:
            return {name: definition for name, (definition, _) in self._shelf.tasks.items()}

    @fallible
    def versioned_tasks(self) -> dict[TaskName, tuple[TaskDefinition, int]]:
        """The same, each with the registry's version of it."""
        with self._shelf.lock:
            return dict(self._shelf.tasks)

    @fallible
    def task(self, name: TaskName) -> tuple[TaskDefinition, int] | None:
        """A definition and the registry's version of it."""
        with self._shelf.lock:
            return self._shelf.tasks.get(name)

    @fallible
    def create_task(self, definition: TaskDefinition, lead: Leadership | None = None) -> bool:
        """False if the name exists."""
        with self._shelf.lock:
            if not _holds(lead) or definition.name in self._shelf.tasks:
                return False
            self._shelf.tasks[definition.name] = (_kept(definition), 0)
        self._tell()
        return True

    @fallible
    def replace_task(
        self, definition: TaskDefinition, expected: int, lead: Leadership | None = None
    ) -> bool:
        """Write a definition if the registry's version still is `expected`; else False."""
        with self._shelf.lock:
            present = self._shelf.tasks.get(definition.name)
            if not _holds(lead) or present is None or present[1] != expected:
                return False
            self._shelf.tasks[definition.name] = (_kept(definition), expected + 1)
        self._tell()
        return True

    @fallible
    def write_tasks(self, writes: Sequence[TaskWrite]) -> int:
        """Write many definitions, `step` at a time."""
        done = 0
        for first in range(0, len(writes), self._shelf.step):
            step = writes[first : first + self._shelf.step]
            if not self._written(step):
                break
            done += len(step)
        self._tell()
        return done

    def _written(self, step: Sequence[TaskWrite]) -> bool:
        with self._shelf.lock:
            kept = self._shelf.tasks
            if any(_version(kept.get(one.definition.name)) != one.expected for one in step):
                return False
            for one in step:
                version = 0 if one.expected is None else one.expected + 1
                kept[one.definition.name] = (_kept(one.definition), version)
        return True

    def watch_tasks(self, changed: Callable[[], None]) -> None:
        """Call `changed` now, and after any change of any task."""
        with self._shelf.lock:
            self._shelf.watchers.append(changed)
        changed()

    def _tell(self) -> None:
        with self._shelf.lock:
            watchers = list(self._shelf.watchers)
        for changed in watchers:
            changed()


def _version(found: tuple[TaskDefinition, int] | None) -> int | None:
    return None if found is None else found[1]


def _holds(lead: Leadership | None) -> bool:
    """Whether what is written with this leadership may be written."""
    if lead is None:
        return True
    if not isinstance(lead, MemoryLeadership):
        raise TypeError("a leadership of another coordinator")
    return lead.holds()


def _kept(definition: TaskDefinition) -> TaskDefinition:
    """What is read back: as the real one, a definition goes through its JSON."""
    return decode_definition(encode_definition(definition))
