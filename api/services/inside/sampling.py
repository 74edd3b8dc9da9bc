"""Figures of all tasks, taken every few seconds: rates, lag, watermark, sizes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from api.services.compiling import TaskCompiler
from api.services.context import Ports
from api.services.inside.missing import Away, Missing
from api.services.inside.progress import Closing, ProgressTail
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import TopicRefused
from mars.core.types import TaskName, Topic, lane_partition, live_lane
from mars.inspect.evidence import total_ledger
from mars.inspect.history import History, history_of, state_for_people
from mars.protocol.ports import Head, Ledger
from mars.protocol.watermark import level_of

SAMPLE_INTERVAL_S = 2.0
"""Between two samples: what /metrics and /v1/cluster say is at most this old."""

RATE_SPAN_S = 30.0
"""Rates are over this much time: progress comes in steps of up to 10 s."""


RATE_STEP_S = 0.5
"""Measurements that come closer together (somebody asks all the time) are not remembered."""


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """One task at one moment; None where the server that knows did not answer.

    `state` as it is shown (`state_for_people`). `lag`: messages not yet taken live, per partition.
    `rows_per_second` counts rows read as committed, `messages_per_second` offsets taken of the
    topic, `history_per_second` those of backfills; a task without one has no `history`.
    `close_latency_ms`: from the end of the newest closed window until its rows were committed.
    """

    state: str
    version: int
    ledger: Ledger | None = None
    lag: Mapping[int, int] | None = None
    watermark_ms: int | None = None
    log_bytes: int | None = None
    close_latency_ms: int | None = None
    now_ms: int | None = None
    rows_per_second: float | None = None
    messages_per_second: float | None = None
    history: History | None = None
    history_per_second: float | None = None

    @property
    def history_end_ms(self) -> int | None:
        """When the history should be mapped, by the store's clock; None: it is, or who knows."""
        rate, history = self.history_per_second, self.history
        if history is None or history.finished or self.now_ms is None or not rate:
            return None
        return self.now_ms + round((history.total - history.done) / rate * 1_000)


@dataclass(frozen=True, slots=True)
class Sample:
    """All tasks at one moment; `missing` names the servers that did not answer."""

    tasks: Mapping[TaskName, TaskFigures] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Point:
    at_s: float
    counts: tuple[int | None, ...]


class Sampler:
    """Takes samples and remembers a few, for rates. Safe for threads."""

    def __init__(
        self,
        ports: Ports,
        compiler: TaskCompiler,
        progress: ProgressTail,
        away: Away,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._progress = progress
        self._away = away
        self._monotonic_s = monotonic_s
        self._lock = Lock()
        self._points: dict[TaskName, deque[_Point]] = {}
        self._latest: Sample | None = None
        self._latest_s = float("-inf")

    def latest(self) -> Sample:
        """The last sample, or a new one if that is too old."""
        with self._lock:
            age_s = self._monotonic_s() - self._latest_s
            if self._latest is not None and age_s < 2 * SAMPLE_INTERVAL_S:
                return self._latest
        return self.sample()

    def sample(self) -> Sample:
        """Look at all tasks now. Raises nothing: what is missing is named."""
        missing = Missing(self._away())
        tasks = {
            name: task
            for name, task in (missing.ask("zookeeper", self._ports.registry.tasks) or {}).items()
            if task.state is not TaskState.DELETED
        }
        heads = missing.ask("redis", lambda: self._ports.log.head(list(tasks))) or {}
        ends = self._ends({Topic(task.current.stream.topic) for task in tasks.values()}, missing)
        missing.ask("kafka", self._progress.look)
        figures = {
            name: self._figures(
                task,
                heads.get(name),
                ends.get(Topic(task.current.stream.topic)),
                missing,
            )
            for name, task in tasks.items()
        }
        sample = Sample(figures, missing.services)
        with self._lock:
            if "zookeeper" not in missing.services:
                self._points = {
                    name: points for name, points in self._points.items() if name in tasks
                }
            self._latest, self._latest_s = sample, self._monotonic_s()
        return sample

    def one(self, definition: TaskDefinition) -> tuple[TaskFigures, tuple[str, ...]]:
        """One task now, and the sentences of the servers that did not answer."""
        missing = Missing(self._away())
        name, topic = definition.name, Topic(definition.current.stream.topic)
        head = missing.begin("redis", lambda: self._ports.log.head([name]).get(name))
        ends = missing.begin("kafka", partial(self._ends_of, topic))
        missing.ask("kafka", self._progress.look)
        return self._figures(definition, head(), ends(), missing), missing.sentences

    def states(self, tasks: Iterable[TaskDefinition]) -> dict[TaskName, str]:
        """The states of tasks as they are shown."""
        tasks = list(tasks)
        missing = Missing(self._away())
        names = [task.name for task in tasks if task.backfills and task.state is TaskState.RUNNING]
        heads = missing.ask("redis", lambda: self._ports.log.head(names)) if names else {}
        return {
            task.name: state_for_people(
                task, _history(task, heads) if heads and task.backfills else None
            )
            for task in tasks
        }

    def _ends(self, topics: set[Topic], missing: Missing) -> dict[Topic, dict[int, int]]:
        ends = {}
        for topic in topics:
            found = missing.ask("kafka", partial(self._ends_of, topic))
            if found is not None:
                ends[topic] = found
        return ends

    def _ends_of(self, topic: Topic) -> dict[int, int] | None:
        """None for a topic that is refused: its own tasks say so, and Kafka answers."""
        try:
            return self._ports.admin.ends(topic)
        except TopicRefused:
            return None

    def _figures(
        self,
        task: TaskDefinition,
        head: Head | None,
        ends: Mapping[int, int] | None,
        missing: Missing,
    ) -> TaskFigures:
        records = None if "kafka" in missing.services else self._progress.known(task)
        ledger = None if records is None else total_ledger(records)
        plan = self._compiler.plans(task).get(task.begun[-1].version if task.begun else 0)
        # Without the store nobody can say how far a history is.
        history = None if "redis" in missing.services else history_of(task, head)
        rows_rate, messages_rate, history_rate = self._rates(
            task.name,
            (
                ledger.read if ledger else None,
                _messages(head) if head else None,
                history.done if history and head else None,
            ),
        )
        return TaskFigures(
            state=state_for_people(task, history),
            version=task.current.version,
            ledger=ledger,
            lag=_lag(head, ends),
            watermark_ms=level_of(head, plan) if head and plan else None,
            log_bytes=head.log_bytes if head else None,
            close_latency_ms=_latency(self._progress.closing(task.name)),
            now_ms=head.now_ms if head else None,
            rows_per_second=rows_rate,
            messages_per_second=messages_rate,
            history=history,
            history_per_second=history_rate,
        )

    def _rates(self, name: TaskName, counts: tuple[int | None, ...]) -> list[float | None]:
        """How fast each of the counts grows."""
        point = _Point(self._monotonic_s(), counts)
        with self._lock:
            points = self._points.setdefault(name, deque())
            while points and point.at_s - points[0].at_s > RATE_SPAN_S:
                points.popleft()
            remembered = (*points, point)
            if not points or point.at_s - points[-1].at_s >= RATE_STEP_S:
                points.append(point)
        return [
            _rate([(each.at_s, each.counts[place]) for each in remembered])
            for place in range(len(counts))
        ]


def _rate(points: Sequence[tuple[float, int | None]]) -> float | None:
    """Per second; None without two measurements, and where the store went back."""
    known = [(at_s, count) for at_s, count in points if count is not None]
    if not known or points[-1][1] is None:
        return None
    span_s, grown = known[-1][0] - known[0][0], known[-1][1] - known[0][1]
    return round(grown / span_s, 1) if span_s > 0 and grown >= 0 else None


def _history(task: TaskDefinition, heads: Mapping[TaskName, Head | None]) -> History | None:
    return history_of(task, heads.get(task.name))


def _latency(closing: Closing | None) -> int | None:
    return None if closing is None else max(0, closing.at_ms - closing.end_ms)


def _messages(head: Head) -> int:
    """Offsets taken of the topic, live or by a backfill."""
    return sum(offset for lane, offset in head.offsets.items() if lane_partition(lane) is not None)


def _lag(head: Head | None, ends: Mapping[int, int] | None) -> dict[int, int] | None:
    if head is None or ends is None:
        return None
    return {
        partition: max(0, end - head.offsets.get(live_lane(partition), end))
        for partition, end in sorted(ends.items())
    }
