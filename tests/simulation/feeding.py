"""The rows of a run as they come: some while things go wrong, the rest when all is healed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from mars.core.types import Topic
from tests.simulation.cluster import Servers
from tests.simulation.rows import (
    EVENT_START_MS,
    TOPIC,
    Row,
    last_row,
    make_keyed_rows,
    make_rows,
    newest_of,
    own_key,
)
from tests.simulation.strands import Scheduler
from tests.simulation.users import Keys, Limits

HISTORY_ROWS_MAX = 20
"""Rows of history, per partition."""

SILENCES = (1.2, 4.0)
"""How long a lane is silent at least and at most, in times of `idle_after`."""

ALL_SILENT_SHARE = 0.4
"""How often it is all lanes at once."""


@dataclass(frozen=True, slots=True)
class Appended:
    """A row that can be read, and when it came."""

    now_ms: int
    lane: int
    offset: int
    time_ms: int


class Feed:
    """Writes rows into the source topic, and remembers them.

    In a run whose lanes fall silent one never does by itself, so that some lane tells the time,
    unless all do.
    """

    def __init__(
        self,
        chance: random.Random,
        apart: random.Random,
        scheduler: Scheduler,
        servers: Servers,
        limits: Limits,
        counts: tuple[int, int],
        more_lanes: int = 0,
    ) -> None:
        self._chance = chance
        self._apart = apart
        self._scheduler = scheduler
        self._servers = servers
        self._limits = limits
        self._storm = True
        self._ended = False
        partitions = chance.randint(2, 4) + more_lanes
        servers.broker.create_topic(Topic(TOPIC), partitions)
        self._waiting = [
            self._rows(number, chance.randint(*counts)) for number in range(partitions)
        ]
        self.written: dict[int, dict[int, Row]] = {number: {} for number in range(partitions)}
        self.appended: list[Appended] = []
        self._silent_until_ms: dict[int, int] = {}

    def history(self) -> None:
        """Rows that lie in the topic before the first task is made."""
        for number in self.written:
            for _ in range(self._chance.randint(0, HISTORY_ROWS_MAX)):
                self._append(number)

    def storm(self) -> None:
        """Some rows now, and some later."""
        lanes = [number for number, rows in enumerate(self._waiting) if rows]
        steady = self._limits.idle_after_ms > 0
        if not (lanes or steady) or not self._storm:
            return
        if steady:
            self._tell_the_time()
        for number in lanes:
            for _ in range(self._chance.randint(0, 3)):
                self._append(number)
        self._scheduler.after(self._chance.randint(50, 900), self.storm)

    def _tell_the_time(self) -> None:
        """One more row of the lane that never falls silent by itself, one that can be read."""
        if self._is_silent(0):
            return
        self._waiting[0] = self._waiting[0] or self._next_rows(0)
        row = self._waiting[0].pop(0)
        self._append(0, replace(row, key=row.key or "k0"))

    def heal(self) -> None:
        """The storm is over."""
        self._storm = False

    def trickle(self) -> None:
        """A lane in which nothing comes would hold the others, where none is ever idle."""
        if self._ended:
            return
        for number in self.written:
            if not self._waiting[number]:
                self._waiting[number] = self._next_rows(number)
            self._append(number)
        self._scheduler.after(self._chance.randint(200, 800), self.trickle)

    def all_left(self) -> None:
        """All rows that are left, but for the ones that end the lanes."""
        self._ended = True
        self._silent_until_ms.clear()
        for number in self.written:
            while self._waiting[number]:
                self._append(number)

    def rest(self) -> None:
        """All that is left, and the row that ends each lane."""
        self._ended = True
        self._silent_until_ms.clear()
        for number in self.written:
            while self._waiting[number]:
                self._append(number)
            self._append(number, self._last_row(number))

    def one_more(self) -> None:
        """One more row a lane, at the very end."""
        for number in self.written:
            self._append(number, self._last_row(number))

    def fall_silent(self) -> None:
        """A lane, or all, get no rows for a while, and then some of the present or of the past."""
        lanes = [self._apart.randrange(1, len(self.written))]
        if self._apart.random() < ALL_SILENT_SHARE:
            lanes = list(self.written)
        idle_ms = self._limits.idle_after_ms
        silence_ms = int(self._apart.uniform(*SILENCES) * idle_ms)
        for number in lanes:
            self._silent_until_ms[number] = self._scheduler.now_ms + silence_ms
        if self._apart.random() < 0.5:
            self._scheduler.after(silence_ms, lambda: self._all_catch_up(lanes))

    def _is_silent(self, number: int) -> bool:
        return self._silent_until_ms.get(number, 0) > self._scheduler.now_ms

    def _all_catch_up(self, lanes: list[int]) -> None:
        for number in lanes:
            self._catch_up(number)

    def _catch_up(self, number: int) -> None:
        """What comes next in the lane is of the present."""
        newest_ms = max((one.time_ms for one in self.appended), default=EVENT_START_MS)
        waiting = self._waiting[number]
        behind_ms = newest_ms - (waiting[0].time_ms if waiting else newest_ms)
        if behind_ms > 0:
            self._waiting[number] = [
                replace(row, time_ms=row.time_ms + behind_ms) for row in waiting
            ]

    def _next_rows(self, number: int) -> list[Row]:
        return self._rows(number, 1, newest_of(number, self.written[number].values()))

    def _rows(self, number: int, count: int, newest_ms: int = EVENT_START_MS) -> list[Row]:
        """Rows of a lane, after those that are there."""
        keys = self._limits.keys
        if keys is Keys.ANY:
            return make_rows(self._chance, count, self._limits.disorder_ms, newest_ms)
        stray = keys is Keys.STRAY
        return make_keyed_rows(self._chance, number, count, newest_ms, stray=stray)

    def _last_row(self, number: int) -> Row:
        return last_row(own_key(number, 1)) if self._limits.keys is Keys.OWN else last_row()

    def _append(self, number: int, row: Row | None = None) -> None:
        broker, topic = self._servers.broker, Topic(TOPIC)
        if row is None and self._is_silent(number):
            return
        if self._chance.random() < 0.1:
            broker.append_aborted(topic, number, [b"never seen"])
        if row is None and not self._waiting[number]:
            return
        fed = row or self._waiting[number].pop(0)
        offset = broker.append(topic, number, fed.encode())
        self.written[number][offset] = fed
        if fed.key:
            now_ms = self._scheduler.now_ms
            self.appended.append(Appended(now_ms, number, offset, fed.time_ms))
