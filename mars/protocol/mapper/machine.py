"""What a mapper reads and which batches it offers to which task (M1-M5).

Two readers serve a partition. The live reader, a member of the consumer group, reads each record
once for all tasks. A task that is behind it (new, resumed, refused for a while) is served by the
catch-up reader until it has met the live one, so that no task drags the others back:

    offsets   ···· c ············· t ·············· f ─────── n ····▶
                   │               │                └ live buffer [f, n), offered to every task
                   │               │                  whose next offset lies in it
                   └ catch-up ─────┴ task t is behind f: the catch-up reader serves it

There is no meeting protocol: a buffer is offered to the tasks whose next offset lies within it, and
the store's compare-and-set refuses whatever is not exactly next.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import assert_never

from mars.core.definitions import REGISTER_AGAIN
from mars.core.types import TaskName, Topic, live_lane
from mars.protocol.mapper.events import (
    CATCH_UP,
    LIVE,
    EndsConfirmed,
    Event,
    HeadsRead,
    Instruction,
    Offer,
    Offered,
    ReaderLane,
    ReaderName,
    ReadHeads,
    Report,
    SeekLane,
    Sourced,
    Subscribe,
    TasksChanged,
    Ticked,
)
from mars.protocol.mapper.idleness import Idleness
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.offering import Offering
from mars.protocol.mapper.state import RETRY_PAUSE_MS, MapperState, Partition
from mars.protocol.mapper.steering import LaneSteering
from mars.protocol.mapper.task_view import TaskView
from mars.protocol.ports import (
    Assigned,
    EndReached,
    Fetched,
    OffsetGone,
    PartitionReading,
    Revoked,
    SourceEvent,
)
from mars.protocol.runnable import topics_with_keys

HEAD_INTERVAL_MS = 1_000
"""How often a head is read of a task whose rows the store has not taken meanwhile: nothing else
tells that the store was lost and that the task is to be read again from further back."""

HEAD_INTERVAL_MS_MAX = 5_000
"""How often it is read of the others: a batch that is taken says that the store is of the epoch and
stands where it was thought to be, but not that a lane was added."""


class MapperMachine:
    """The machine of a mapper process; see `Offering` for what it is told."""

    def __init__(
        self, buckets: int, *, rows_max: int, bytes_max: int, linger_ms: int, rest_ms: int = 0
    ) -> None:
        self._state = MapperState()
        self._steering = LaneSteering(self._state)
        self._idleness = Idleness(self._state)
        self._offering = Offering(
            self._state,
            self._steering,
            buckets,
            rows_max=rows_max,
            bytes_max=bytes_max,
            linger_ms=linger_ms,
            rest_ms=rest_ms,
        )
        self._topics: frozenset[Topic] = frozenset()
        self._sources: set[tuple[Topic, str]] = set()
        self._keyed: frozenset[Topic] = frozenset()

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event; what comes back is to be done in this order."""
        match event:
            case TasksChanged():
                return self._tasks_changed(event)
            case HeadsRead():
                return self._heads_read(event)
            case Sourced():
                return self._sourced(event.reader, event.event)
            case Offered():
                return self._offering.answered(event)
            case EndsConfirmed():
                return self._idleness.ends_confirmed(event)
            case Ticked():
                return self._ticked(event)
            case _:
                assert_never(event)

    # ------------------------------------------------------------------------------------ tasks

    def _tasks_changed(self, event: TasksChanged) -> list[Instruction]:
        tasks = {name: task for name, task in event.tasks.items() if not task.deleted}
        self._state.views = {
            name: self._state.views[name].updated(task)
            if name in self._state.views
            else TaskView(task)
            for name, task in tasks.items()
        }
        topics = frozenset(view.topic for view in self._state.views.values())
        instructions: list[Instruction] = []
        if topics != self._topics:
            self._topics = topics
            instructions.append(Subscribe(tuple(sorted(topics))))
        instructions += self._made_anew()
        return [*instructions, *self._ask_heads(self._state.views.values())]

    def _made_anew(self) -> list[Instruction]:
        """Forget rows that were read before a task named the topic by another id: they may be of
        the topic before, and what is read from now on is not. Those that were read before a task
        reads their keys have none.
        """
        sources = {
            (view.topic, view.task.definition.current.topic_id)
            for view in self._state.views.values()
        }
        keyed = topics_with_keys(view.task for view in self._state.views.values())
        anew = {topic for topic, _id in sources - self._sources} | (keyed - self._keyed)
        self._sources |= sources
        self._keyed = keyed
        live = self._state.buffers[LIVE]
        lanes = {
            key: LaneBuffer(buffer.lane, paused=buffer.paused)
            for key, buffer in live.items()
            if key[0] in anew
        }
        instructions = self._revoked(lanes)
        live.update(lanes)
        return instructions

    def _ask_heads(
        self, views: Iterable[TaskView], offered: Container[TaskName] = ()
    ) -> list[Instruction]:
        """Whoever is asked for is not known until the answer comes, which it may not at once.

        Those to whom something is `offered` just before stay known: else nobody would want what
        comes next in their lanes when that is answered, and it would be read again.
        """
        asked = [view for view in views if view.task.begun()]
        for view in asked:
            if view.name not in offered:
                view.unlearn()
            view.asked_ms = self._state.now_ms
        return [ReadHeads(tuple(view.name for view in asked))] if asked else []

    def _heads_read(self, event: HeadsRead) -> list[Instruction]:
        for name, head in event.heads.items():
            if name in self._state.views:
                self._state.views[name].learn(head)
        return [
            given for key in list(self._state.buffers[LIVE]) for given in self._steering.steer(key)
        ]

    # ----------------------------------------------------------------------------------- source

    def _sourced(self, reader: ReaderName, event: SourceEvent) -> list[Instruction]:
        match event:
            case Assigned():
                return self._assigned(event.partitions)
            case Revoked():
                return self._revoked(event.partitions)
            case Fetched():
                return self._fetched(reader, event)
            case EndReached():
                buffer = self._state.buffers[reader].get((event.topic, event.partition))
                if buffer is not None and event.offset == buffer.next:
                    buffer.end = event.offset
                return []
            case OffsetGone():
                return self._gone(reader, event)
            case _:
                assert_never(event)

    def _assigned(self, partitions: Iterable[Partition]) -> list[Instruction]:
        topics = set()
        for key in partitions:
            self._state.buffers[LIVE][key] = LaneBuffer(live_lane(key[1]))
            topics.add(key[0])
        return self._ask_heads(view for view in self._state.views.values() if view.topic in topics)

    def _revoked(self, partitions: Iterable[Partition]) -> list[Instruction]:
        instructions: list[Instruction] = []
        for key in partitions:
            self._state.buffers[LIVE].pop(key, None)
            self._idleness.forget(key)
            instructions += self._steering.drop_catch_up(key)
            for view in self._state.tasks_of(key[0]):
                view.forget_lane(live_lane(key[1]))
        return instructions

    def _fetched(self, reader: ReaderName, event: Fetched) -> list[Instruction]:
        records = event.records
        key = (event.topic, int(records.lane))
        buffer = self._state.buffers[reader].get(key)
        if buffer is None or not buffer.sought:
            return []
        if buffer.closed:
            buffer.skipped = True
            return []
        if records.first != buffer.next:
            return [SeekLane(reader, key[0], key[1], buffer.next)]
        buffer.add(records, self._state.now_ms)
        return []

    def _gone(self, reader: ReaderName, event: OffsetGone) -> list[Instruction]:
        """Kafka deleted rows that tasks still needed: say so in each task's own log, and go on."""
        key = (event.topic, event.partition)
        buffer = self._state.buffers[reader].get(key)
        if buffer is None or buffer.closed:
            return []
        if event.available <= event.offset:
            return self._never_there(key, event)
        buffer.seek(event.offset)
        buffer.next = event.available
        # The reader has stopped where it could not go on; it is to be sought behind the gap.
        buffer.closed = buffer.gone = buffer.skipped = True
        text = (
            f"{event.topic} partition {event.partition}: offsets {event.offset} to "
            f"{event.available - 1} are no longer in Kafka; their rows are missing from the results"
        )
        return [Report("rows_gone", text), *self._offering.offer(reader, key, buffer)]

    def _never_there(self, key: Partition, event: OffsetGone) -> list[Instruction]:
        """The partition ends below what was read of it: offsets do not mean what they meant."""
        text = (
            f"{event.topic} partition {event.partition} has no offset {event.offset} any more, it "
            f"begins at {event.available}: the topic was made again, or its brokers lost rows; "
            f"{REGISTER_AGAIN}"
        )
        lane = live_lane(key[1])
        readers = [view for view in self._state.ready(key) if view.offsets[lane] == event.offset]
        return [given for view in readers for given in self._offering.fail(view, text)]

    # ------------------------------------------------------------------------------- offering

    def _ticked(self, event: Ticked) -> list[Instruction]:
        self._state.now_ms = event.now_ms
        instructions: list[Instruction] = []
        for reader in (LIVE, CATCH_UP):
            instructions += self._offering.flush(reader, drained=reader in event.drained)
        offered = {one.task for one in instructions if isinstance(one, Offer)}
        return (
            instructions
            + self._refresh_heads(offered)
            + self._idleness.confirm_ends()
            + self._idleness.hint()
        )

    # ------------------------------------------------------------------------- heads and idleness

    def _refresh_heads(self, offered: Container[TaskName]) -> list[Instruction]:
        """Ask again for all heads, the sooner where one is not known or was found inactive."""
        views = self._state.views.values()
        return self._ask_heads(
            (view for view in views if view.task.running and self._is_due(view)), offered
        )

    def _is_due(self, view: TaskView) -> bool:
        since_ms = self._state.now_ms - view.asked_ms
        if not view.known:
            return since_ms >= RETRY_PAUSE_MS
        quiet = self._state.now_ms - view.taken_ms >= HEAD_INTERVAL_MS
        return since_ms >= (HEAD_INTERVAL_MS if quiet else HEAD_INTERVAL_MS_MAX)

    # ----------------------------------------------------------------------------- for people

    @property
    def rows_mapped(self) -> int:
        """Rows of all batches that were taken."""
        return self._offering.rows_mapped

    def readings(self) -> tuple[PartitionReading, ...]:
        """How far each partition is, for the member's report."""
        return self._idleness.readings()

    @property
    def standing(self) -> dict[ReaderLane, bool]:
        """The lanes that are not read on, and whether it is the store that holds them back."""
        return self._steering.standing()

    @property
    def queue_bytes(self) -> int:
        """About how many bytes of messages were read and not yet taken by every task."""
        return sum(
            buffer.bytes for lanes in self._state.buffers.values() for buffer in lanes.values()
        )

    @property
    def slicing(self) -> bool:
        """True while rows that were read wait for their turn to be decoded."""
        return any(
            buffer.cut and buffer.closed and not buffer.outstanding
            for lanes in self._state.buffers.values()
            for buffer in lanes.values()
        )

    @property
    def catching_up(self) -> bool:
        """True while the catch-up reader has something to read."""
        return bool(self._state.buffers[CATCH_UP])
