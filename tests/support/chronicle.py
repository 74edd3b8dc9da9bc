"""What ZooKeeper said of some tasks over time: where each of their versions began, and what ended.

A definition keeps a version only until its windows are closed and the next change is made, and a
name that is given again nothing of the life before. Who looks before each request loses none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from mars.adapters.zookeeper import ZooKeeperConnection, ZooKeeperRegistry
from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.errors import Unavailable
from mars.core.settings import load
from mars.core.types import Lane, TaskName
from mars.process.tasks import fail_task
from tests.support.cluster import MarsCluster
from tests.support.queries import Query
from tests.support.versions import Life, Version

LOOK_S = 0.3
"""Between two looks of the one who looks all the time."""

QueryOf = Callable[[TaskVersion], Query]


@dataclass(slots=True)
class TaskStory:
    """All that was seen of one task."""

    name: str
    versions: dict[int, TaskVersion] = field(default_factory=dict)
    firsts: set[int] = field(default_factory=set)
    """The first version of each life."""

    newest: TaskDefinition | None = None

    @property
    def lives_on(self) -> bool:
        """Whether there is such a task now."""
        return self.newest is not None and self.newest.state is not TaskState.DELETED

    def note(self, definition: TaskDefinition) -> None:
        """Take one look. Fails where a version began twice, at different offsets."""
        self.firsts.add(definition.first_version)
        self.newest = definition
        for version in definition.versions:
            known = self.versions.get(version.version)
            if known is None or known.starts is None:
                self.versions[version.version] = version
                continue
            assert version.starts == known.starts, (
                f"{self.name} version {version.version} began at {known.starts}, and then at "
                f"{version.starts}"
            )

    def lives(self, query_of: QueryOf) -> list[Life]:
        """Each life with the versions that began in it. Fails where one was not seen."""
        if self.newest is None:
            return []  # never registered
        newest = max(self.versions)
        unseen = set(range(1, newest + 1)) - self.versions.keys()
        assert not unseen, f"{self.name}: nobody saw where versions {unseen} began"
        firsts = sorted(self.firsts)
        ends = [*firsts[1:], newest + 1]
        lives = zip(firsts, ends, strict=True)
        return [self._life(range(first, end), query_of) for first, end in lives]

    def _life(self, numbers: Sequence[int], query_of: QueryOf) -> Life:
        begun = [number for number in numbers if self.versions[number].starts is not None]
        assert begun == list(numbers)[: len(begun)], (
            f"{self.name}: of versions {list(numbers)} only {begun} were seen to begin"
        )
        ended = not (self.lives_on and max(self.versions) in numbers)
        assert ended or len(begun) == len(numbers), f"{self.name}: its newest version never began"
        return Life(self.name, tuple(self._version(one, query_of) for one in begun), ended)

    def _version(self, number: int, query_of: QueryOf) -> Version:
        found = self.versions[number]
        return Version(number, query_of(found), by_partition(found.starts or {}))


def by_partition(starts: Mapping[Lane, int]) -> dict[int, int]:
    """Offsets by partition. No task here has a history of Spark's: lanes are partitions."""
    return {int(lane): offset for lane, offset in starts.items()}


class Chronicle:
    """A context manager that looks all the time; `look` does so at once."""

    def __init__(self, mars: MarsCluster, names: Sequence[str]) -> None:
        settings = load(mars.data / "mars.toml", {})
        self._connection = ZooKeeperConnection.open(settings.zookeeper)
        self._registry = ZooKeeperRegistry(self._connection, settings.namespace)
        self.stories = {name: TaskStory(name) for name in names}
        self.problem: AssertionError | None = None
        self._looking = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="chronicle", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()

    def look(self, *names: str) -> None:
        """Look at these tasks, all of them if none is named. Raises Unavailable, AssertionError."""
        if self.problem is not None:
            raise self.problem
        with self._looking:
            for name in names or self.stories:
                found = self._registry.task(TaskName(name))
                if found is not None:
                    self.stories[name].note(found[0])

    def fail(self, name: str) -> None:
        """Say that a task has failed, as a process does that fails with it. Raises Unavailable."""
        found = self._registry.task(TaskName(name))
        assert found is not None, f"{name} is gone, and nobody has deleted it"
        fail_task(self._registry, TaskName(name), found[0].run, "a fault says so")

    def _follow(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self.look()
            except Unavailable:
                pass  # it is part of what is tried
            except AssertionError as problem:
                self.problem = problem
                return
