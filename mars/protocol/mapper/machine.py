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

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import assert_never

from mars.core.definitions import REGISTER_AGAIN
from mars.core.errors import TaskLimit
from mars.core.types import (
    Mapped,
    Range,
    Topic,
    live_lane,
)
from mars.protocol.mapper.batches import Batches
from mars.protocol.mapper.events import (
    CATCH_UP,
    LIVE,
    EndConfirmed,
    Event,
    FailTask,
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
from mars.protocol.mapper.side_by_side import Shared, SideBySide
from mars.protocol.mapper.state import RETRY_PAUSE_MS, MapperState, Partition
from mars.protocol.mapper.steering import LaneSteering
from mars.protocol.mapper.task_view import TaskView
from mars.protocol.ports import (
    AppendOutcome,
    Applied,
    Assigned,
    Backpressure,
    Cut,
    EndReached,
    Fetched,
    NoTask,
    OffsetGone,
    PartitionReading,
    Revoked,
    SourceEvent,
    Stale,
    TaskPaused,
    WrongEpoch,
    WrongVersion,
)

HEAD_INTERVAL_MS = 1_000
"""How often every head is read: while no rows come, nothing else tells that the store was lost and
that the task is to be read again from further back."""

REST_MS_A_TASK = 10
REST_MS_OF_MANY = 2_000
"""Each task makes a batch of its own of the same rows, so the rows of a topic that many tasks read
rest longer: as long for 200 tasks as keeps the batches of a lane at a hundred a second."""

UNKNOWN_LANE_PAUSE_MS = 1_000
"""Pause before a lane that the task does not have yet is offered again: the leader adds it."""


def outcome_of_all(outcome: AppendOutcome | None) -> bool:
    """Whether an answer concerns the task, not a lane of it: its head is to be read again."""
    return outcome is None or isinstance(outcome, NoTask | WrongEpoch | WrongVersion | TaskPaused)


class MapperMachine:
    """The machine of a mapper process.

    `rows_max` and `bytes_max` bound what one reader holds. While records lie ahead it collects up
    to that, or for `linger_ms`; near the end of what is there, for `rest_ms`, or longer for many
    tasks, and not at all if the rows may close a window.
    """

    def __init__(
        self, buckets: int, *, rows_max: int, bytes_max: int, linger_ms: int, rest_ms: int = 0
    ) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._linger_ms = linger_ms
        self._rest_ms = rest_ms
        self._state = MapperState()
        self._steering = LaneSteering(self._state)
        self._idleness = Idleness(self._state)
        self._batches = Batches(buckets)
        self._side_by_side = SideBySide(buckets)
        self._topics: frozenset[Topic] = frozenset()
        self.rows_mapped = 0

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
                return self._offered(event)
            case EndConfirmed():
                return self._idleness.end_confirmed(event)
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
        return [*instructions, *self._ask_heads(self._state.views.values())]

    def _ask_heads(self, views: Iterable[TaskView]) -> list[Instruction]:
        """Whoever is asked for is not known until the answer comes, which it may not at once."""
        asked = [view for view in views if view.task.begun()]
        for view in asked:
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
        return [Report("rows_gone", text), *self._offer(reader, key, buffer)]

    def _never_there(self, key: Partition, event: OffsetGone) -> list[Instruction]:
        """The partition ends below what was read of it: offsets do not mean what they meant."""
        text = (
            f"{event.topic} partition {event.partition} has no offset {event.offset} any more, it "
            f"begins at {event.available}: the topic was made again, or its brokers lost rows; "
            f"{REGISTER_AGAIN}"
        )
        lane = live_lane(key[1])
        readers = [view for view in self._state.ready(key) if view.offsets[lane] == event.offset]
        return [given for view in readers for given in self._fail(view, text)]

    # ------------------------------------------------------------------------------- offering

    def _ticked(self, event: Ticked) -> list[Instruction]:
        self._state.now_ms = event.now_ms
        instructions: list[Instruction] = []
        for reader in (LIVE, CATCH_UP):
            instructions += self._flush(reader, drained=reader in event.drained)
        return (
            instructions
            + self._refresh_heads()
            + self._idleness.confirm_ends()
            + self._idleness.hint()
        )

    def _flush(self, reader: ReaderName, *, drained: bool) -> list[Instruction]:
        buffers = self._state.buffers[reader]
        full = (
            sum(buffer.rows for buffer in buffers.values()) >= self._rows_max
            or sum(buffer.bytes for buffer in buffers.values()) >= self._bytes_max
        )
        instructions: list[Instruction] = []
        ripe: defaultdict[Topic, list[Partition]] = defaultdict(list)
        for key, buffer in list(buffers.items()):
            if not self._may_go(buffer):
                continue
            if buffer.closed:
                instructions += self._offer(reader, key, buffer)
            elif full or self._ripe(key, buffer, drained=drained):
                ripe[key[0]].append(key)
        for topic, keys in ripe.items():
            instructions += self._offer_beside(reader, topic, keys)
        return instructions

    def _may_go(self, buffer: LaneBuffer) -> bool:
        return not (buffer.empty or buffer.outstanding or self._state.now_ms < buffer.retry_at_ms)

    def _offer_beside(
        self, reader: ReaderName, topic: Topic, ripe: Sequence[Partition]
    ) -> list[Instruction]:
        """Offer ripe buffers of a topic, and beside them what was read of its other lanes."""
        buffers = {
            key: buffer
            for key, buffer in self._state.buffers[reader].items()
            if key[0] == topic and self._may_go(buffer) and not (buffer.closed or buffer.gone)
        }
        made: Sequence[Shared] = ()
        if len(buffers) > 1:
            views, among = self._state.tasks_of(topic), list(buffers.values())
            made = self._side_by_side.make(views, among, self._state.now_ms)
        instructions: list[Instruction] = []
        for one in made:
            epoch = self._state.views[one.task].epoch
            instructions.append(Offer(reader, topic, one.task, epoch, one.version, one.mapped))
            for part in one.mapped.ranges:
                buffer = buffers[topic, int(part.lane)]
                buffer.closed = True
                buffer.outstanding += 1
        for key in ripe:
            if not buffers[key].outstanding:
                instructions += self._offer(reader, key, buffers[key])
        return instructions

    def _ripe(self, key: Partition, buffer: LaneBuffer, *, drained: bool) -> bool:
        """Whether a buffer has collected long enough.

        A small batch costs as much as one of some thousand rows, in the reducers too: only where a
        window waits for it is it worth that. A draft is, as long as no rest is longer for it.
        """
        age_ms = self._state.now_ms - buffer.oldest_ms
        if not drained:
            return age_ms >= self._linger_ms
        takers = self._state.within(key, buffer)
        rest_ms = self._rest(len(takers))
        drafted = rest_ms <= self._rest_ms
        return age_ms >= rest_ms or any(
            view.may_close(buffer.lane, buffer.newest_ms, drafted=drafted) for view in takers
        )

    def _rest(self, takers: int) -> int:
        if not self._rest_ms:
            return 0
        return max(self._rest_ms, min(takers * REST_MS_A_TASK, REST_MS_OF_MANY))

    def _offer(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """Offer the buffer to every task whose next offset lies in it."""
        buffer.closed = True
        takers = [
            view
            for view in self._state.within(key, buffer)
            if not view.blocked(buffer.lane, self._state.now_ms)
        ]
        made = self._batches.make(takers, buffer)
        instructions: list[Instruction] = []
        for view in takers:
            if view.name in made:
                instructions += self._offer_to(view, reader, key, buffer, *made[view.name])
        buffer.outstanding = sum(isinstance(given, Offer) for given in instructions)
        return (
            instructions if buffer.outstanding else instructions + self._settle(reader, key, buffer)
        )

    def _offer_to(
        self,
        view: TaskView,
        reader: ReaderName,
        key: Partition,
        buffer: LaneBuffer,
        version: int,
        mapped: Mapped | Exception,
    ) -> list[Instruction]:
        """Offer what was made for a task; a task's failure stops that task only."""
        if isinstance(mapped, Exception):
            buffer.failed.add(view.name)
            limit = isinstance(mapped, TaskLimit)
            detail = str(mapped) if limit else f"unexpected {type(mapped).__name__}: {mapped}"
            return self._fail(view, detail)
        buffer.offers[view.name] = version, mapped
        return [Offer(reader, key[0], view.name, view.epoch, version, mapped)]

    def _fail(self, view: TaskView, detail: str) -> list[Instruction]:
        view.stop()
        return [FailTask(view.name, view.task.definition.current.version, detail)]

    def _offered(self, event: Offered) -> list[Instruction]:
        offer, outcome = event.offer, event.outcome
        view = self._state.views.get(offer.task)
        if isinstance(outcome, Applied):
            self.rows_mapped += sum(partial.counts.read for partial in offer.mapped.partials)
        elif view is not None and outcome_of_all(outcome):
            view.unlearn()
        instructions: list[Instruction] = []
        for part in offer.mapped.ranges:
            key = (offer.topic, int(part.lane))
            buffer = self._state.buffers[offer.reader].get(key)
            if buffer is None:
                continue
            if view is not None:
                self._answered(view, buffer, offer.mapped, part, outcome)
            buffer.outstanding -= 1
            if buffer.outstanding <= 0:
                instructions += self._settle(offer.reader, key, buffer)
        return instructions

    def _answered(
        self,
        view: TaskView,
        buffer: LaneBuffer,
        mapped: Mapped,
        part: Range,
        outcome: AppendOutcome | None,
    ) -> None:
        """What an answer says of one lane of a batch; of others it may say something else."""
        lane = part.lane
        if not isinstance(outcome, Backpressure):
            buffer.offers.pop(view.name, None)
        match outcome:
            case Applied():
                view.offsets[lane] = part.next
                if lane in mapped.marks_ms:
                    view.saw_rows(lane, self._state.now_ms)
                    view.marked(lane, mapped.marks_ms[lane], buffer.newest_ms)
            case Stale(lane=behind, current=current) if behind == lane:
                if current < 0:
                    view.block(lane, self._state.now_ms + UNKNOWN_LANE_PAUSE_MS)
                    view.unlearn()
                else:
                    view.offsets[lane] = current
            case Cut(lane=cut, offset=offset) if cut == lane:
                view.cuts[lane] = offset
            case Backpressure() if len(mapped.ranges) == 1:
                view.block(lane, self._state.now_ms + RETRY_PAUSE_MS)

    def _settle(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """All offers of a buffer are answered: offer the rest, hold it, or go on behind it."""
        within = self._state.within(key, buffer)
        if any(not view.blocked(buffer.lane, self._state.now_ms) for view in within):
            if buffer.cut:  # many rows, a part of them at each tick
                return self._steering.pause(reader, key, buffer)
            return self._offer(reader, key, buffer)
        ready = self._state.ready(key)
        if (within and not self._steering.wanted_elsewhere(reader, key, buffer)) or not ready:
            return self._steering.hold(reader, key, buffer)
        buffer.release()
        return self._steering.go_on(reader, key, buffer) + self._steering.steer(key)

    # ------------------------------------------------------------------------- heads and idleness

    def _refresh_heads(self) -> list[Instruction]:
        """Ask again for all heads, the sooner where one is not known or was found inactive."""
        return self._ask_heads(
            view
            for view in self._state.views.values()
            if view.task.running
            and self._state.now_ms - view.asked_ms
            >= (HEAD_INTERVAL_MS if view.known else RETRY_PAUSE_MS)
        )

    # ----------------------------------------------------------------------------- for people

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
