"""Golden cases through the machines of a reducer: delay, watermarks, closing, and a restart.

    messages, a little out of order ──▶ two lanes ──▶ random batches ──▶ kernel ──▶ store
                                                                                      │
         result rows ◀── topics ◀── commits ◀── reducer that is replaced once ◀───────┘

Store and topics are the twins in memory, which hold what a reducer leaves to the next.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.plan import Plan
from mars.core.types import Lane, Mapped, Partial, Range, RowCounts, Topic
from mars.engine.codec.canonical import bucket_of_task
from mars.engine.decode.usable import usable_rows
from mars.engine.kernel import decode
from mars.protocol.ports import Applied, Backpressure, Ledger
from mars.protocol.runnable import RunnableTask
from tests.golden.golden_cases import Case, Row, mapped, records_of
from tests.unit.machines.reducing_world import Reducer, World

LANES = (Lane("0"), Lane("1"))
BY_TIME_SHARE = 0.7
"""How often messages come by time."""

REACH = 4
"""How many places a message may change with others."""

BATCH_MAX = 6
"""Messages of a batch; golden cases have some twenty."""

BUDGETS_BYTES = (10_000, 10**9)
"""Of the log, for each bucket: with the smaller one it is merged again and again."""

SAVE_EVERY_MS = (100, 10**9)
"""Open panes are saved with nearly every commit, or never."""

TRIES = 5
"""The log has room again when the reducer has merged it, with its next commit or the one after."""

ELAPSED_MS = 100
ROUNDS_AT_END = 20
"""After the last row: enough for progress records, which come each ten seconds at the latest."""


def reduced(case: Case, chance: random.Random) -> tuple[list[Row], list[Ledger]]:
    """The result rows and the ledgers of all buckets, after one random run.

    Rows of one window and bucket are in the order in which they were sent.
    """
    plan = case.plan()
    messages = _shaken(case, plan, chance)
    delay_ms = _disorder_ms(_times_ms(case, plan, messages))
    plan = replace(plan, options=replace(plan.options, delay_ms=delay_ms))
    run = _Run(case, plan, messages, chance)
    run.run()
    return list(run.rows()), [record.ledger for record in run.world.newest()]


def _shaken(case: Case, plan: Plan, chance: random.Random) -> list[bytes]:
    """The messages as they lie in the file, or by time, so that windows close while more come; a
    little out of order.
    """
    messages = case.messages
    if chance.random() < BY_TIME_SHARE:
        messages = sorted(messages, key=lambda one: min(_times_ms(case, plan, [one]), default=0))
    places = sorted(range(len(messages)), key=lambda at: at + chance.uniform(0, REACH))
    return [messages[place] for place in places]


def _times_ms(case: Case, plan: Plan, messages: list[bytes]) -> list[int]:
    rows = usable_rows(plan, decode(case.stream, plan.fields, records_of(messages))).rows
    return list(rows.get_column(case.stream.event_time))


def _disorder_ms(times: list[int]) -> int:
    """How far a row lies behind the newest one before it, at most."""
    newest = accumulate(times, max)
    return max((top - time for top, time in zip(newest, times, strict=True)), default=0)


@dataclass
class _Feed:
    """One lane: its messages, and the offset of the next.

    A row that passes no filter ends it, so late that it closes all windows; and one more after a
    loss of the store, which forgets the mark of rows that are not read again.
    """

    messages: list[bytes]
    next: int = 0
    cuts: tuple[int, ...] = ()
    ended: bool = False


class _Run:
    def __init__(
        self, case: Case, plan: Plan, messages: list[bytes], chance: random.Random
    ) -> None:
        self._case, self._plan, self._chance = case, plan, chance
        starts = dict.fromkeys(LANES, 0)
        version = TaskVersion(1, case.sql, {}, case.stream, "topic-id", 0, starts)
        definition = TaskDefinition(plan.task, TaskState.RUNNING, (version,), first_version=1)
        task = RunnableTask(definition, {1: plan}, {plan.options.output_topic: 2})
        buckets = chance.randint(1, 8)
        self.world = World(
            task,
            buckets=buckets,
            log_bytes_max=buckets * chance.choice(BUDGETS_BYTES),
            snapshot_every_ms=chance.choice(SAVE_EVERY_MS),
        )
        self._feeds = {lane: _Feed([]) for lane in LANES}
        for message in messages:
            self._feeds[chance.choice(LANES)].messages.append(message)
        times = _times_ms(case, plan, messages)
        span_ms = 2 * plan.window.kept_ms + plan.options.delay_ms
        self._end_ms = max(times, default=0) + span_ms
        self._reducer = self._new_reducer("r1")
        self._restart_before = chance.randint(1, len(messages))

    def run(self) -> None:
        """Feed everything, with a restart in the middle; then all windows close."""
        restarted = False
        while feeds := [lane for lane, feed in self._feeds.items() if not feed.ended]:
            fed = sum(feed.next for feed in self._feeds.values())
            if fed >= self._restart_before and not restarted:
                restarted = True
                self._restart()
                continue
            self._append(self._chance.choice(feeds))
            self._reducer.run(self._chance.randint(0, 2), ELAPSED_MS)
        self._reducer.run(ROUNDS_AT_END, 10 * ELAPSED_MS)
        assert not self._reducer.failed

    def rows(self) -> Iterator[Row]:
        """All rows that were committed, no (window, key) twice."""
        keys = set()
        topic = self.world.broker.topics[Topic(self._plan.options.output_topic)]
        for partition in topic.partitions:
            for record in partition.committed(0, partition.stable_end):
                assert record.key not in keys, record.key
                keys.add(record.key)
                yield json.loads(record.value or b"")

    # ----------------------------------------------------------------------------- the mapper

    def _append(self, lane: Lane) -> None:
        feed = self._feeds[lane]
        first, count = feed.next, len(feed.messages)
        if first >= count:
            self._add(self._last(lane, first))
            feed.next, feed.ended = first + 1, True
            return
        stops = [cut for cut in (*feed.cuts, count) if cut > first]
        next_ = min(*stops, first + self._chance.randint(1, BATCH_MAX))
        records = records_of(feed.messages[first:next_], lane, first)
        self._add(mapped(self._case, self._plan, records, self.world.buckets))
        feed.next = next_

    def _add(self, batch: Mapped) -> None:
        """Put a batch into the store, once the log has room."""
        world = self.world
        for _ in range(TRIES):
            outcome = world.store.append(self._plan.task, world.store_epoch, 1, batch)
            if not isinstance(outcome, Backpressure):
                break
            self._reducer.run(1, ELAPSED_MS)
        assert isinstance(outcome, Applied), outcome

    def _last(self, lane: Lane, offset: int) -> Mapped:
        """What the kernel makes of a row that passes no filter."""
        home = bucket_of_task(self._plan.task, self.world.buckets)
        partial = Partial(home, RowCounts(filtered=1), (), b"")
        return Mapped((Range(lane, offset, offset + 1),), {lane: self._end_ms}, (partial,))

    # ---------------------------------------------------------------------------- the reducer

    def _new_reducer(self, name: str) -> Reducer:
        self.world.assign(dict.fromkeys(range(self.world.buckets), name))
        return Reducer(self.world, name)

    def _restart(self) -> None:
        """Another reducer goes on with what lies in the store, or after the store was lost."""
        if self._chance.random() < 0.5:
            self._reducer = self._new_reducer("r2")
            return
        self.world.lose_store({}, also=self._replace)
        start = self.world.start_of(self.world.tasks[self._plan.task])
        for lane, feed in self._feeds.items():
            feed.next, feed.cuts, feed.ended = start.offsets[lane], start.cuts[lane], False

    def _replace(self) -> None:
        self._reducer = self._new_reducer("r2")
