"""What users do meanwhile: tasks are made, paused, resumed, changed, deleted and made again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from mars.adapters.memory.progress import MemoryProgressLog
from mars.core.definitions import Backfill, LaneSpan, TaskDefinition, TaskState, TaskVersion
from mars.core.types import Bucket, Lane, TaskName, Topic, backfill_lane, lane_partition, live_lane
from mars.protocol.outlived import done_versions, needed_versions
from mars.protocol.ports import Progress, put_copies
from mars.protocol.windows.turns import WINDOWS_AT_ONCE
from tests.simulation.cluster import BUCKETS, Servers
from tests.simulation.rows import (
    COUNTING,
    CUMULATING,
    DELAY_MS,
    DISORDER_MS,
    FILTERED,
    LANDMARK,
    SESSIONS,
    SLIDING,
    STREAM,
    STRICT,
    TOPIC,
    TUMBLING,
    Query,
    Span,
    revised,
)
from tests.simulation.strands import Scheduler
from tests.simulation.weather import Weather

FLAT = TaskName("flat")
"""The task that exists from the start; the others come and go."""

OVERFULL = TaskName("overfull")
"""The task that some runs have besides, and that fails by itself: nobody touches it."""

TASKS_MAX = 3


FOLDING_SHARE = 0.3
"""How often the tasks of a run fold."""

OVERFULL_SHARE = 0.2
"""How often a run has a task that fails."""


REVISING_SHARE = 0.5
"""How often the tasks of a run revise windows; those that fold do not."""

LATENESSES_MS = (DISORDER_MS, 12_000, 40_000)
"""For how long."""


ONE_TASK_SHARE = 0.5
"""How often a change that a run asks for most is one of its first task: it gets many versions."""

COPIES_LATE_MS = (100, 3_000)
"""How long the API stands still before it copies a definition."""


CUMULATING_SHARE = 0.4
"""How often windows of a task that is added, or changed, cumulate."""

LANDMARK_SHARE = 0.2
"""How often they are those since a landmark."""
COUNTING_SHARE = 0.0
"""How often they count rows: a run with such tasks is another one (`test_counting_tasks.py`)."""
SESSION_SHARE = 0.0
"""How often they are sessions, in the same way."""


class Keys(StrEnum):
    """Which keys the rows of a run have, and by whose rows its tasks close windows."""

    ANY = "any"
    """Any lane has any key; windows close by partition."""
    OWN = "own"
    """Each lane has keys of its own, one of them slow; windows close by key, and no row is late."""
    STRAY = "stray"
    """Any lane has any key, far out of order; windows close by key or bucket, and rows are late."""

    @classmethod
    def at_the_end_of(cls, arguments: list[str]) -> Keys:
        """Takes the last argument of a command if it names keys."""
        return cls(arguments.pop()) if arguments and arguments[-1] in list(cls) else cls.ANY


@dataclass(frozen=True, slots=True)
class Limits:
    """Options of the tasks in a run: how many groups those have that fold, whether one more task
    fails, and for how long tasks revise closed windows, how many at once.
    """

    max_keys: int | None
    overfull: bool
    lateness_ms: int
    windows_at_once: int
    keys: Keys = Keys.ANY
    idle_after_ms: int = 0

    @classmethod
    def draw(cls, seed: int, *, revising: bool = True, keys: Keys = Keys.ANY) -> Limits:
        """Of a chance of their own, so that runs without limits are what they were without them.

        `revising`: whether tasks may revise; a seed where they might gives another run if not.
        """
        chance = random.Random(f"limits {seed}")
        if keys is not Keys.ANY:
            return cls(None, False, 0, chance.choice((1, 2, WINDOWS_AT_ONCE)), keys)
        max_keys = chance.choice((1, 2, 3)) if chance.random() < FOLDING_SHARE else None
        overfull = chance.random() < OVERFULL_SHARE
        revises = revising and chance.random() < REVISING_SHARE and max_keys is None
        if not revises:
            return cls(max_keys, overfull, 0, WINDOWS_AT_ONCE)
        at_once = chance.choice((2, 5, WINDOWS_AT_ONCE))
        return cls(max_keys, overfull, chance.choice(LATENESSES_MS), at_once)

    @classmethod
    def none(cls, idle_after_ms: int = 0) -> Limits:
        """Tasks without any: none folds, fails or revises. 0: no lane is ever idle."""
        return cls(None, False, 0, WINDOWS_AT_ONCE, idle_after_ms=idle_after_ms)

    @property
    def disorder_ms(self) -> int:
        """How far rows are out of order in this run."""
        return DISORDER_MS if self.lateness_ms else DELAY_MS


class Users:
    """Does what the API does, at once and without failing."""

    def __init__(
        self,
        servers: Servers,
        scheduler: Scheduler,
        note: Callable[[str], None],
        limits: Limits,
        *,
        apart: random.Random,
        shapes: random.Random,
        weather: Weather,
    ) -> None:
        self._limits = limits
        self._apart = apart
        self._shapes = shapes
        self._weather = weather
        self._uncopied: list[TaskDefinition] = []
        self._forgotten: dict[TaskName, dict[int, TaskVersion]] = {}
        """Versions that changes have left out of definitions since."""
        self._servers = servers
        self._scheduler = scheduler
        self._note = note
        self._queries: dict[tuple[TaskName, int], Query] = {}
        self._gone: list[tuple[TaskDefinition, dict[int, Query]]] = []

    # ------------------------------------------------------------------------------- requests

    def create(self, chance: random.Random) -> None:
        """The first task, from the beginning of the topic."""
        self._create(FLAT, TUMBLING, self._starts(latest=False), self._chunks(chance))
        if self._limits.overfull:
            self._create(OVERFULL, STRICT, self._starts(latest=False), 0)

    def ask(self, chance: random.Random) -> None:
        """Some request; refused while ZooKeeper lacks what it held."""
        if not self._servers.registry.whole():
            return
        tasks = self._servers.registry.tasks()
        assert FLAT in tasks, "ZooKeeper is whole, and lacks a task that was registered"
        tasks.pop(OVERFULL, None)
        request = chance.choice((self._toggle, self._toggle, self._change, self._renew, self._add))
        share = self._weather.changes
        if share and self._apart.random() < share:
            request = self._change
            if self._apart.random() < ONE_TASK_SHARE:
                tasks = {name: task for name, task in tasks.items() if name == FLAT} or tasks
        request(chance, tasks)

    def _toggle(self, chance: random.Random, tasks: Mapping[TaskName, TaskDefinition]) -> None:
        name = chance.choice(sorted(tasks))
        state = tasks[name].state
        if state is TaskState.RUNNING:
            self._write(replace(tasks[name], state=TaskState.PAUSED))
        elif state is TaskState.PAUSED:
            self._write(tasks[name].resumed())

    def _change(self, chance: random.Random, tasks: Mapping[TaskName, TaskDefinition]) -> None:
        task = tasks[chance.choice(sorted(tasks))]
        if task.state is TaskState.DELETED or task.current.starts is None:
            return
        number = task.current.version + 1
        known = chance.choice((TUMBLING, FILTERED, SLIDING))
        query = self._limited(self._any_shape(known), number)
        if query.maps_in_order and task.backfills:
            return  # refused: histories come in no order of a partition
        self._queries[task.name, number] = query
        version = self._version(number, query, None)
        self._write(replace(task, versions=(*self._needed(task), version)))

    def _needed(self, task: TaskDefinition) -> tuple[TaskVersion, ...]:
        """The versions that a change leaves in a definition, as the API does it."""
        log = MemoryProgressLog(self._servers.broker)
        buckets = [Bucket(number) for number in range(BUCKETS)]
        records = {
            (record.version, record.bucket): record
            for bucket in buckets
            for record in log.read(bucket, 0).records
            if isinstance(record, Progress) and record.task == task.name
        }
        needed = needed_versions(task, done_versions(task, records.values(), buckets))
        self._forgotten.setdefault(task.name, {}).update(
            {one.version: one for one in task.begun if one not in needed}
        )
        return needed

    def _with_forgotten(self, task: TaskDefinition) -> TaskDefinition:
        """A task with all versions that it ever had in this life."""
        known = dict(self._forgotten.get(task.name, {}))
        known |= {one.version: one for one in task.versions}
        own = [known[number] for number in sorted(known) if number >= task.first_version]
        return replace(task, versions=tuple(own))

    def _renew(self, chance: random.Random, tasks: Mapping[TaskName, TaskDefinition]) -> None:
        """Delete a task; most often make it again at once."""
        name = chance.choice(sorted(tasks))
        if tasks[name].state is TaskState.DELETED or name == FLAT:
            return
        self._delete(tasks[name])
        if chance.random() < 0.7:
            latest = chance.random() < 0.5
            query = self._any_shape(SLIDING)
            self._create(name, query, self._starts(latest=latest), self._chunks(chance))

    def _add(self, chance: random.Random, tasks: Mapping[TaskName, TaskDefinition]) -> None:
        name = TaskName(f"other{chance.randrange(TASKS_MAX - 1)}")
        if name in tasks and tasks[name].state is not TaskState.DELETED:
            return
        query = self._any_shape(chance.choice((TUMBLING, SLIDING)))
        latest = chance.random() < 0.5
        self._create(name, query, self._starts(latest=latest), self._chunks(chance))

    def resume_all(self) -> None:
        """At the end everything runs."""
        for task in self._servers.registry.tasks().values():
            if task.state is TaskState.PAUSED:
                self._write(task.resumed())

    # ---------------------------------------------------------------------------- what they do

    def _starts(self, *, latest: bool) -> dict[Lane, int]:
        partitions = self._servers.broker.topics[Topic(TOPIC)].partitions
        return {
            live_lane(number): partition.stable_end if latest else 0
            for number, partition in enumerate(partitions)
        }

    def _create(
        self, name: TaskName, query: Query, starts: Mapping[Lane, int], chunks: int
    ) -> None:
        """A task; what lies in the topic between `starts` and now is a backfill of so many chunks,
        unless they are 0.
        """
        registry = self._servers.registry
        found = registry.task(name)
        number = 1 if found is None else found[0].current.version + 1
        query = self._limited(query, number)
        self._queries[name, number] = query
        backfills = self._backfills(starts, 0 if query.maps_in_order else chunks)
        for backfill in backfills:
            fences = {lane: self._fence(lane) for lane in starts}
            starts = {**fences, **{lane: span.first for lane, span in backfill.lanes.items()}}
        version = self._version(number, query, starts)
        task = TaskDefinition(
            name, TaskState.RUNNING, (version,), first_version=number, backfills=backfills
        )
        if found is None:
            self._note(f"USER creates {name} at {dict(starts)}")
            assert registry.create_task(task)
            self._copy(task)
        else:
            self._write(task)

    def _any_shape(self, query: Query) -> Query:
        """The query, or one whose windows begin together, or count rows."""
        # What windows of rows may hold where rows are gone, `test_counting.py` says; and what rows
        # that come after a silence would do to windows by time, says nothing of them.
        # Sessions that lack rows which are gone cannot go on.
        plain = not (self._weather.retention_ms or self._weather.silence_ms)
        if plain and COUNTING_SHARE and self._shapes.random() < COUNTING_SHARE:
            return COUNTING
        plain = plain and self._limits.keys is Keys.ANY
        if plain and SESSION_SHARE and self._shapes.random() < SESSION_SHARE:
            return SESSIONS
        drawn = self._shapes.random()
        if drawn < CUMULATING_SHARE:
            return CUMULATING
        return query if drawn < 1 - LANDMARK_SHARE else LANDMARK

    def _limited(self, query: Query, version: int) -> Query:
        """The query, which folds or revises in a run where tasks do: in every other version, so
        that some versions are in one bucket and some in all.
        """
        if query.counts is not None:
            return query
        query = replace(query, delay_ms=self._limits.disorder_ms)
        if query.most_ms:
            return query
        if self._limits.idle_after_ms:
            known = query if query.is_tumbling else TUMBLING
            return replace(known, idle_after_ms=self._limits.idle_after_ms)
        if self._limits.keys is not Keys.ANY:
            by_bucket = self._limits.keys is Keys.STRAY and version % 3 == 0
            known = query if query.is_tumbling else TUMBLING
            return replace(known, watermark="bucket" if by_bucket else "key")
        if query.max_keys is not None or query.landmark_ms or version % 2 == 0:
            return query
        if self._limits.lateness_ms:
            return revised(query, self._limits.lateness_ms)
        # Windows that cumulate fold nothing.
        return query if query.step_ms else replace(query, max_keys=self._limits.max_keys)

    def _fence(self, lane: Lane) -> int:
        number = lane_partition(lane)
        assert number is not None
        return self._servers.broker.partition(Topic(TOPIC), number).stable_end

    def _backfills(self, starts: Mapping[Lane, int], chunks: int) -> tuple[Backfill, ...]:
        spans = {
            backfill_lane(int(lane), "b1"): LaneSpan(first, self._fence(lane))
            for lane, first in starts.items()
            if first < self._fence(lane)
        }
        return (Backfill("b1", spans, chunks, 0),) if chunks and spans else ()

    def _chunks(self, chance: random.Random) -> int:
        """In how many chunks history is mapped; 0: the mappers read all of it."""
        return chance.choice((0, 1, 2, 3, 7)) if self._limits.keys is Keys.ANY else 0

    def _delete(self, task: TaskDefinition) -> None:
        whole = self._with_forgotten(task)
        versions = {one.version: self._queries[task.name, one.version] for one in whole.begun}
        self._gone.append((whole, versions))
        self._write(replace(task, state=TaskState.DELETED, versions=task.versions[-1:]))

    def _write(self, task: TaskDefinition) -> None:
        versions = [(one.version, one.starts and dict(one.starts)) for one in task.versions]
        self._note(f"USER writes {task.name} {task.state} {versions}")
        found = self._servers.registry.task(task.name)
        assert found is not None
        if task.state is TaskState.DELETED:
            self._servers.control.put_task(task)
        assert self._servers.registry.replace_task(task, found[1])
        self._copy(task)

    def _copy(self, task: TaskDefinition) -> None:
        """To mars.control; perhaps the API stands still before it does that."""
        self._uncopied.append(task)
        share = self._weather.copies_late
        if share and self._apart.random() < share:
            late_ms = self._apart.randint(*COPIES_LATE_MS)
            self._scheduler.after(late_ms, lambda: self._copied(task))
        else:
            self._copied(task)

    def _copied(self, task: TaskDefinition) -> None:
        if any(each is task for each in self._uncopied):
            self._uncopied = [each for each in self._uncopied if each is not task]
            put_copies(self._servers.control, [task])

    def copy_all(self) -> None:
        """ZooKeeper is about to lose everything: what was not copied yet was never answered, and
        nobody would know whether it counts.
        """
        for task in list(self._uncopied):
            self._copied(task)

    # --------------------------------------------------------------------------- what is there

    def all_begun(self) -> bool:
        """Every version of every living task has its start."""
        if not self._servers.registry.whole():
            return False
        tasks = self._servers.registry.tasks().values()
        failed = [task for task in tasks if task.state is TaskState.FAILED]
        assert not [task for task in failed if task.name != OVERFULL], f"a task failed: {failed}"
        return all(
            task.current.starts is not None for task in tasks if task.state is not TaskState.DELETED
        )

    def overfull_failed(self) -> bool:
        """Whether the task that must fail has done so."""
        found = self._servers.registry.task(OVERFULL)
        return found is not None and found[0].state is TaskState.FAILED

    def spans(self) -> list[Span]:
        """All versions that ever took rows."""
        living = [
            task
            for task in self._servers.registry.tasks().values()
            if task.state is not TaskState.DELETED
        ]
        spans = [
            span
            for task in map(self._with_forgotten, living)
            for span in self._spans(task, whole=task.name != OVERFULL)
        ]
        return spans + [span for task, _ in self._gone for span in self._spans(task, whole=False)]

    def _version(self, number: int, query: Query, starts: Mapping[Lane, int] | None) -> TaskVersion:
        topic_id = self._servers.broker.topics[Topic(TOPIC)].topic_id
        return TaskVersion(number, query.sql, query.options, STREAM, topic_id, 0, starts)

    def _spans(self, task: TaskDefinition, *, whole: bool) -> list[Span]:
        begun = task.begun
        ends = [version.starts for version in begun[1:]]
        return [
            Span(
                task.name,
                version.version,
                self._queries[task.name, version.version],
                version.starts or {},
                end,
                whole,
                task.ends,
            )
            for version, end in zip(begun, [*ends, None], strict=True)
        ]
