"""Figures of tasks over the last minutes, for charts: kept in memory, followed as they are taken.

sampler ──every 2 s──▶ one point a task, one of all together ──▶ rings ──▶ event streams
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

import anyio
import anyio.to_thread

from api.http.answering import event
from api.http.places import Places
from api.services.inside.sampling import Sample, Sampler, TaskFigures
from mars.client.answers import AllFigures, Answer, FigureList, FigurePoint
from mars.core.definitions import TaskState
from mars.core.errors import TooMany
from mars.core.types import TaskName

STANDING = frozenset({TaskState.PAUSED.value, TaskState.FAILED.value})
"""States in which a task takes no rows: its lag grows, and nobody is to work it off."""

POINTS_KEPT = 150
"""Per task: 5 minutes. With 1,000 tasks some tens of megabytes."""

FOLLOWERS_MAX = 200
"""Event streams of figures at once; each costs a connection and no thread."""

LOOK_S = 0.25
"""How often a stream looks for a new sample, and whether its client has gone."""

HEARTBEAT_S = 15.0
"""A comment is sent when nothing else was for so long, because proxies cut silent streams."""

Gone = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class _Ring:
    """The points of one task, and what the newest is made of."""

    points: deque[FigurePoint] = field(default_factory=lambda: deque(maxlen=POINTS_KEPT))
    figures: TaskFigures | None = None


class FigureService:
    """Takes samples and remembers their points. Safe for threads."""

    def __init__(self, sampler: Sampler, now_ms: Callable[[], int]) -> None:
        self._sampler = sampler
        self._now_ms = now_ms
        self._lock = Lock()
        self._rings: dict[TaskName, _Ring] = {}
        self._totals: deque[FigurePoint] = deque(maxlen=POINTS_KEPT)
        self._taken = 0
        self._places = Places(
            FOLLOWERS_MAX,
            f"{FOLLOWERS_MAX} clients follow figures already: close some dashboards, or ask for "
            "figures without following them",
        )

    def take(self) -> None:
        """Look at all tasks now. Raises nothing."""
        self._remember(self._sampler.sample())

    def _remember(self, sample: Sample) -> None:
        at_ms = self._now_ms()
        with self._lock:
            if "zookeeper" not in sample.missing:
                self._rings = {name: self._rings.get(name, _Ring()) for name in sample.tasks}
            for name, figures in sample.tasks.items():
                ring = self._rings.setdefault(name, _Ring())
                ring.figures = figures
                ring.points.append(point_of(figures, at_ms))
            self._totals.append(_total(at_ms, sample.tasks.values()))
            self._taken += 1

    def newest(self) -> dict[TaskName, FigurePoint]:
        """The newest point of each task; takes one if there is none yet."""
        if not self._taken:
            self.take()
        with self._lock:
            return {name: ring.points[-1] for name, ring in self._rings.items() if ring.points}

    def seen(self) -> dict[TaskName, TaskFigures]:
        """What the newest points were made of."""
        with self._lock:
            return {name: ring.figures for name, ring in self._rings.items() if ring.figures}

    @property
    def taken(self) -> int:
        """How many samples were taken: what is shown changes with it."""
        return self._taken

    def of_task(self, name: TaskName) -> FigureList:
        """The points of one task, the oldest first."""
        self.newest()
        with self._lock:
            ring = self._rings.get(name)
            return FigureList(points=list(ring.points) if ring else [])

    def of_all(self) -> AllFigures:
        """The points of all tasks together, and the newest of each."""
        tasks = self.newest()
        with self._lock:
            return AllFigures(points=list(self._totals), tasks=dict(sorted(tasks.items())))

    # ---------------------------------------------------------------------------- following

    def follow_task(self, name: TaskName, gone: Gone) -> AsyncIterator[bytes]:
        """Events named `figures`: the points of a task, then each new one. TooMany."""

        def newest() -> FigureList:
            return FigureList(points=self.of_task(name).points[-1:])

        return self._follow(lambda: self.of_task(name), newest, gone)

    def follow_all(self, gone: Gone) -> AsyncIterator[bytes]:
        """The same of all tasks together."""

        def newest() -> AllFigures:
            found = self.of_all()
            return AllFigures(points=found.points[-1:], tasks=found.tasks)

        return self._follow(self.of_all, newest, gone)

    def _follow(
        self, first: Callable[[], Answer], newest: Callable[[], Answer], gone: Gone
    ) -> AsyncIterator[bytes]:
        self._places.take()()  # before the first event; the place itself is of the stream
        return self._events(first, newest, gone)

    async def _events(
        self, first: Callable[[], Answer], newest: Callable[[], Answer], gone: Gone
    ) -> AsyncIterator[bytes]:
        try:
            give_back = self._places.take()
        except TooMany:
            return  # others took the last ones in the meantime; who asks again is told
        try:
            seen = self._taken
            yield event("figures", await anyio.to_thread.run_sync(first))
            silent_since = anyio.current_time()
            while not await gone():
                if self._taken > max(seen, 1):
                    seen, silent_since = self._taken, anyio.current_time()
                    yield event("figures", newest())
                elif anyio.current_time() - silent_since >= HEARTBEAT_S:
                    silent_since = anyio.current_time()
                    yield b": nothing new\n\n"
                await anyio.sleep(LOOK_S)
        finally:
            give_back()


def point_of(figures: TaskFigures, at_ms: int) -> FigurePoint:
    """One task at one moment, as charts show it."""
    behind = None
    if figures.watermark_ms is not None and figures.now_ms is not None:
        behind = max(0, figures.now_ms - figures.watermark_ms)
    return FigurePoint(
        at=at_ms,
        rows_per_second=figures.rows_per_second,
        lag=None if figures.lag is None else sum(figures.lag.values()),
        watermark=figures.watermark_ms,
        watermark_delay_ms=behind,
        close_latency_ms=figures.close_latency_ms,
        log_bytes=figures.log_bytes,
    )


def _total(at_ms: int, tasks: Iterable[TaskFigures]) -> FigurePoint:
    """All tasks together; what cannot be added up is left out, and the lag of those that stand."""
    known = list(tasks)
    rates = [one.rows_per_second for one in known if one.rows_per_second is not None]
    return FigurePoint(
        at=at_ms,
        rows_per_second=round(sum(rates), 1) if rates else None,
        lag=sum(
            sum(one.lag.values())
            for one in known
            if one.lag is not None and one.state not in STANDING
        ),
        watermark=None,
        watermark_delay_ms=None,
        close_latency_ms=None,
        log_bytes=sum(one.log_bytes or 0 for one in known),
    )
