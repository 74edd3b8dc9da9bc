"""Figures of all tasks, taken every few seconds: rates, lag, watermark, sizes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from api.services.compiling import Compiler
from api.services.context import Ports
from api.services.missing import Away, Missing
from api.services.progress import ProgressTail
from mars.definitions import TaskDefinition, TaskState
from mars.machines.explaining import level_of
from mars.ports import Head, Ledger
from mars.types import TaskName, Topic, live_lane

SAMPLE_INTERVAL_S = 2.0
"""Between two samples: what /metrics and /v1/cluster say is at most this old."""

RATE_SPAN_S = 30.0
"""Rates are over this much time: progress comes in steps of up to 10 s."""


RATE_STEP_S = 0.5
"""Measurements that come closer together (somebody asks all the time) are not remembered."""


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """One task at one moment; None where the server that knows did not answer.

    `lag`: messages not yet taken, per partition. `rows_per_second` counts rows read as committed,
    `messages_per_second` offsets taken.
    """

    state: TaskState
    version: int
    ledger: Ledger | None = None
    lag: Mapping[int, int] | None = None
    watermark_ms: int | None = None
    log_bytes: int | None = None
    now_ms: int | None = None
    rows_per_second: float | None = None
    messages_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """All tasks at one moment; `missing` names the servers that did not answer."""

    tasks: Mapping[TaskName, TaskFigures] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Point:
    at_s: float
    rows: int | None
    messages: int | None


class Sampler:
    """Takes samples and remembers a few, for rates. Safe for threads."""

    def __init__(
        self,
        ports: Ports,
        compiler: Compiler,
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
        head = missing.ask("redis", lambda: self._ports.log.head([name]).get(name))
        ends = self._ends({topic}, missing).get(topic)
        return self._figures(definition, head, ends, missing), missing.sentences

    def _ends(self, topics: set[Topic], missing: Missing) -> dict[Topic, dict[int, int]]:
        ends = {}
        for topic in topics:
            found = missing.ask("kafka", partial(self._ports.admin.ends, topic))
            if found is not None:
                ends[topic] = found
        return ends

    def _figures(
        self,
        task: TaskDefinition,
        head: Head | None,
        ends: Mapping[int, int] | None,
        missing: Missing,
    ) -> TaskFigures:
        ledger = missing.ask("kafka", lambda: self._progress.ledger(task))
        plan = self._compiler.plans(task).get(task.begun[-1].version if task.begun else 0)
        messages = sum(head.offsets.values()) if head else None
        rows_rate, messages_rate = self._rates(task.name, ledger, messages)
        return TaskFigures(
            state=task.state,
            version=task.current.version,
            ledger=ledger,
            lag=_lag(head, ends),
            watermark_ms=level_of(head, plan) if head and plan else None,
            log_bytes=head.log_bytes if head else None,
            now_ms=head.now_ms if head else None,
            rows_per_second=rows_rate,
            messages_per_second=messages_rate,
        )

    def _rates(
        self, name: TaskName, ledger: Ledger | None, messages: int | None
    ) -> tuple[float | None, float | None]:
        point = _Point(self._monotonic_s(), ledger.read if ledger else None, messages)
        with self._lock:
            points = self._points.setdefault(name, deque())
            while points and point.at_s - points[0].at_s > RATE_SPAN_S:
                points.popleft()
            remembered = (*points, point)
            if not points or point.at_s - points[-1].at_s >= RATE_STEP_S:
                points.append(point)
        return (
            _rate([(each.at_s, each.rows) for each in remembered]),
            _rate([(each.at_s, each.messages) for each in remembered]),
        )


def _rate(points: Sequence[tuple[float, int | None]]) -> float | None:
    """Per second; None without two measurements, and where the store went back."""
    known = [(at_s, count) for at_s, count in points if count is not None]
    if not known or points[-1][1] is None:
        return None
    span_s, grown = known[-1][0] - known[0][0], known[-1][1] - known[0][1]
    return round(grown / span_s, 1) if span_s > 0 and grown >= 0 else None


def _lag(head: Head | None, ends: Mapping[int, int] | None) -> dict[int, int] | None:
    if head is None or ends is None:
        return None
    return {
        partition: max(0, end - head.offsets.get(live_lane(partition), end))
        for partition, end in sorted(ends.items())
    }
