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

from collections.abc import Iterable, Iterator
from typing import assert_never

from mars.errors import TaskLimit
from mars.kernel import Decoded, decode, map_batch
from mars.machines.lane_buffer import LaneBuffer
from mars.machines.mapping_events import (
    CATCH_UP,
    LIVE,
    ConfirmEnd,
    DropLane,
    EndConfirmed,
    Event,
    FailTask,
    HeadsRead,
    Hint,
    Instruction,
    Offer,
    Offered,
    PauseLane,
    ReaderName,
    ReadHeads,
    RenewIdle,
    Report,
    ResumeLane,
    SeekLane,
    Sourced,
    Subscribe,
    TasksChanged,
    Ticked,
)
from mars.machines.task_view import TaskView
from mars.plan import Field, Plan, Stream
from mars.ports import (
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
from mars.types import (
    Bucket,
    Lane,
    Mapped,
    Partial,
    Range,
    Reason,
    RejectedRange,
    Rejections,
    RowCounts,
    TaskName,
    Topic,
    lane_partition,
    live_lane,
)

RETRY_PAUSE_MS = 100
"""Pause before a refused batch is offered again, or an unknown head read again."""

HEAD_INTERVAL_MS = 1_000
"""How often every head is read: while no rows come, nothing else tells that the store was lost and
that the task is to be read again from further back."""

UNKNOWN_LANE_PAUSE_MS = 1_000
"""Pause before a lane that the task does not have yet is offered again: the leader adds it."""

IDLE_RENEWAL_MS = 1_000
"""An idle lease lasts 3 s; it is renewed this often."""

HINT_INTERVAL_MS = 5_000
"""How often group offsets are committed, for lag figures only."""

Partition = tuple[Topic, int]


class Mapping:
    """The machine of a mapper process.

    `rows_max` and `bytes_max` bound what one reader holds. While records lie ahead it collects up
    to that, or for `linger_ms`; near the end of what is there, for `rest_ms`, and not at all if the
    rows may close a window.
    """

    def __init__(
        self, buckets: int, *, rows_max: int, bytes_max: int, linger_ms: int, rest_ms: int = 0
    ) -> None:
        self._buckets = buckets
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._linger_ms = linger_ms
        self._rest_ms = rest_ms
        self._now_ms = 0
        self._views: dict[TaskName, TaskView] = {}
        self._buffers: dict[ReaderName, dict[Partition, LaneBuffer]] = {LIVE: {}, CATCH_UP: {}}
        self._topics: frozenset[Topic] = frozenset()
        self._idle_asked_ms: dict[Partition, int] = {}
        self._hinted_ms = 0
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
                return self._end_confirmed(event)
            case Ticked():
                return self._ticked(event)
            case _:
                assert_never(event)

    # ------------------------------------------------------------------------------------ tasks

    def _tasks_changed(self, event: TasksChanged) -> list[Instruction]:
        tasks = {name: task for name, task in event.tasks.items() if not task.deleted}
        self._views = {
            name: self._views[name].updated(task) if name in self._views else TaskView(task)
            for name, task in tasks.items()
        }
        topics = frozenset(view.topic for view in self._views.values())
        instructions: list[Instruction] = []
        if topics != self._topics:
            self._topics = topics
            instructions.append(Subscribe(tuple(sorted(topics))))
        return [*instructions, *self._ask_heads(self._views.values())]

    def _ask_heads(self, views: Iterable[TaskView]) -> list[Instruction]:
        """Whoever is asked for is not known until the answer comes, which it may not at once."""
        asked = [view for view in views if view.task.begun()]
        for view in asked:
            view.unlearn()
            view.asked_ms = self._now_ms
        return [ReadHeads(tuple(view.name for view in asked))] if asked else []

    def _heads_read(self, event: HeadsRead) -> list[Instruction]:
        for name, head in event.heads.items():
            if name in self._views:
                self._views[name].learn(head)
        return [given for key in list(self._buffers[LIVE]) for given in self._steer(key)]

    def _tasks_of(self, topic: Topic) -> Iterator[TaskView]:
        return (view for view in self._views.values() if view.topic == topic)

    def _ready(self, key: Partition) -> list[TaskView]:
        lane = live_lane(key[1])
        return [view for view in self._tasks_of(key[0]) if view.ready(lane)]

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
                buffer = self._buffers[reader].get((event.topic, event.partition))
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
            self._buffers[LIVE][key] = LaneBuffer(live_lane(key[1]))
            topics.add(key[0])
        return self._ask_heads(view for view in self._views.values() if view.topic in topics)

    def _revoked(self, partitions: Iterable[Partition]) -> list[Instruction]:
        instructions: list[Instruction] = []
        for key in partitions:
            self._buffers[LIVE].pop(key, None)
            self._idle_asked_ms.pop(key, None)
            instructions += self._drop_catch_up(key)
            for view in self._tasks_of(key[0]):
                view.forget_lane(live_lane(key[1]))
        return instructions

    def _fetched(self, reader: ReaderName, event: Fetched) -> list[Instruction]:
        records = event.records
        key = (event.topic, int(records.lane))
        buffer = self._buffers[reader].get(key)
        if buffer is None or not buffer.sought:
            return []
        if buffer.closed:
            buffer.skipped = True
            return []
        if records.first != buffer.next:
            return [SeekLane(reader, key[0], key[1], buffer.next)]
        buffer.add(records, self._now_ms)
        return []

    def _gone(self, reader: ReaderName, event: OffsetGone) -> list[Instruction]:
        """Kafka deleted rows that tasks still needed: say so in each task's own log, and go on."""
        key = (event.topic, event.partition)
        buffer = self._buffers[reader].get(key)
        if buffer is None or buffer.closed:
            return []
        buffer.seek(event.offset)
        buffer.next = event.available
        buffer.closed = buffer.gone = True
        text = (
            f"{event.topic} partition {event.partition}: offsets {event.offset} to "
            f"{event.available - 1} are no longer in Kafka; their rows are missing from the results"
        )
        return [Report("rows_gone", text), *self._offer(reader, key, buffer)]

    # ------------------------------------------------------------------------------- steering

    def _steer(self, key: Partition) -> list[Instruction]:
        """Put both readers where the tasks are (M1)."""
        buffer = self._buffers[LIVE].get(key)
        ready = self._ready(key)
        if buffer is None or not ready:
            return []
        lane = buffer.lane
        offsets = [view.offsets[lane] for view in ready]
        instructions: list[Instruction] = []
        lost = buffer.sought and (max(offsets) < buffer.first or min(offsets) > buffer.next)
        if not buffer.sought or lost:
            instructions.append(self._seek(LIVE, key, buffer, max(offsets)))
        behind = [view for view in ready if view.offsets[lane] < buffer.first]
        if not behind:
            return instructions + self._drop_catch_up(key)
        return instructions + self._steer_catch_up(key, lane, behind)

    def _steer_catch_up(
        self, key: Partition, lane: Lane, behind: list[TaskView]
    ) -> list[Instruction]:
        buffer = self._buffers[CATCH_UP].get(key)
        if buffer is None:
            buffer = self._buffers[CATCH_UP][key] = LaneBuffer(lane)
        elif any(buffer.first <= view.offsets[lane] <= buffer.next for view in behind):
            return []
        free = [view for view in behind if not view.blocked(lane, self._now_ms)] or behind
        return [self._seek(CATCH_UP, key, buffer, min(view.offsets[lane] for view in free))]

    def _seek(
        self, reader: ReaderName, key: Partition, buffer: LaneBuffer, offset: int
    ) -> Instruction:
        buffer.seek(offset)
        for view in self._tasks_of(key[0]):
            view.saw_rows(buffer.lane, self._now_ms)
        if buffer.paused:
            buffer.paused = False
            return ResumeLane(reader, key[0], key[1], offset)
        return SeekLane(reader, key[0], key[1], offset)

    def _drop_catch_up(self, key: Partition) -> list[Instruction]:
        if self._buffers[CATCH_UP].pop(key, None) is None:
            return []
        return [DropLane(CATCH_UP, key[0], key[1])]

    # ------------------------------------------------------------------------------- offering

    def _ticked(self, event: Ticked) -> list[Instruction]:
        self._now_ms = event.now_ms
        instructions: list[Instruction] = []
        for reader in (LIVE, CATCH_UP):
            instructions += self._flush(reader, drained=reader in event.drained)
        return instructions + self._refresh_heads() + self._idle() + self._hint()

    def _flush(self, reader: ReaderName, *, drained: bool) -> list[Instruction]:
        buffers = self._buffers[reader]
        full = (
            sum(buffer.rows for buffer in buffers.values()) >= self._rows_max
            or sum(buffer.bytes for buffer in buffers.values()) >= self._bytes_max
        )
        instructions: list[Instruction] = []
        for key, buffer in list(buffers.items()):
            if buffer.empty or buffer.outstanding or self._now_ms < buffer.retry_at_ms:
                continue
            if buffer.closed or full or self._ripe(key, buffer, drained=drained):
                instructions += self._offer(reader, key, buffer)
        return instructions

    def _ripe(self, key: Partition, buffer: LaneBuffer, *, drained: bool) -> bool:
        """Whether a buffer has collected long enough.

        A small batch costs as much as one of some thousand rows, in the reducers too: only where a
        window waits for it is it worth that.
        """
        age_ms = self._now_ms - buffer.oldest_ms
        if not drained:
            return age_ms >= self._linger_ms
        return age_ms >= self._rest_ms or any(
            view.may_close(buffer.lane, buffer.newest_ms) for view in self._within(key, buffer)
        )

    def _within(self, key: Partition, buffer: LaneBuffer) -> list[TaskView]:
        lane = buffer.lane
        return [
            view for view in self._ready(key) if buffer.first <= view.offsets[lane] < buffer.next
        ]

    def _offer(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """Offer the buffer to every task whose next offset lies in it."""
        buffer.closed = True
        takers = [
            view
            for view in self._within(key, buffer)
            if not view.blocked(buffer.lane, self._now_ms)
        ]
        instructions: list[Instruction] = []
        for view in takers:
            instructions += self._offer_to(view, reader, key, buffer, takers)
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
        takers: list[TaskView],
    ) -> list[Instruction]:
        """Map the rows from the task's next offset on; a task's failure stops that task only."""
        offset = view.offsets[buffer.lane]
        version, boundary = view.task.definition.version_at(buffer.lane, offset)
        try:
            known, mapped = buffer.offers.get(view.name, (None, None))
            if mapped is None or known != version or mapped.ranges[0].first != offset:
                ends = [end for end in (boundary, view.cuts.get(buffer.lane)) if end is not None]
                end = min([end for end in ends if offset < end] + [buffer.next])
                mapped = self._map(view.task.plans[version], buffer, takers, offset, end)
        except TaskLimit as problem:
            return self._fail(view, str(problem))
        except Exception as problem:  # noqa: BLE001 -- whatever it is, only this task stops (I7)
            return self._fail(view, f"unexpected {type(problem).__name__}: {problem}")
        buffer.offers[view.name] = version, mapped
        return [Offer(reader, key[0], key[1], view.name, view.epoch, version, mapped)]

    def _fail(self, view: TaskView, detail: str) -> list[Instruction]:
        view.stop()
        return [FailTask(view.name, detail)]

    def _decoded(self, buffer: LaneBuffer, plan: Plan, takers: list[TaskView]) -> Decoded:
        """The buffer's rows, decoded once for all tasks that read the stream alike (M2)."""
        stream = plan.stream
        known = buffer.decoded.get(stream)
        names = frozenset(field.name for field in plan.fields)
        if known is not None and names <= known[0]:
            return known[1]
        fields = _union(stream, (p for view in takers for p in view.task.plans.values()))
        decoded = decode(stream, fields, buffer.joined())
        buffer.decoded[stream] = (frozenset(field.name for field in fields), decoded)
        return decoded

    def _map(
        self, plan: Plan, buffer: LaneBuffer, takers: list[TaskView], offset: int, end: int
    ) -> Mapped:
        """What the rows `[offset, end)` of the buffer add to a task."""
        if buffer.gone:
            return self._map_gone(Range(buffer.lane, offset, end))
        rows = self._decoded(buffer, plan, takers)
        if offset != buffer.first:
            rows = rows.from_offset(offset)
        if end < buffer.next:
            rows = rows.until(end)
        return map_batch(plan, self._buckets, rows)

    def _map_gone(self, part: Range) -> Mapped:
        """A reference to rows that cannot be read any more."""
        gone = RejectedRange(part.lane, part.first, part.next, Reason.GONE, part.next - part.first)
        bucket = Bucket((lane_partition(part.lane) or 0) % self._buckets)
        partial = Partial(bucket, RowCounts(), (), b"", Rejections((), (gone,)))
        return Mapped((part,), {}, (partial,))

    def _offered(self, event: Offered) -> list[Instruction]:
        offer = event.offer
        key = (offer.topic, offer.partition)
        buffer = self._buffers[offer.reader].get(key)
        if buffer is None:
            return []
        view = self._views.get(offer.task)
        if view is not None:
            self._answered(view, buffer, offer.mapped, event.outcome)
        buffer.outstanding -= 1
        return [] if buffer.outstanding > 0 else self._settle(offer.reader, key, buffer)

    def _answered(
        self, view: TaskView, buffer: LaneBuffer, mapped: Mapped, outcome: AppendOutcome | None
    ) -> None:
        lane = buffer.lane
        if not isinstance(outcome, Backpressure):
            buffer.offers.pop(view.name, None)
        match outcome:
            case Applied():
                view.offsets[lane] = mapped.ranges[0].next
                self.rows_mapped += sum(partial.counts.read for partial in mapped.partials)
                if lane in mapped.marks_ms:
                    view.saw_rows(lane, self._now_ms)
                    view.marked(lane, mapped.marks_ms[lane], buffer.newest_ms)
            case Stale(current=current) if current < 0:
                view.block(lane, self._now_ms + UNKNOWN_LANE_PAUSE_MS)
                view.unlearn()
            case Stale(current=current):
                view.offsets[lane] = current
            case Cut(offset=offset):
                view.cuts[lane] = offset
            case Backpressure():
                view.block(lane, self._now_ms + RETRY_PAUSE_MS)
            case NoTask() | WrongEpoch() | WrongVersion() | TaskPaused() | None:
                view.unlearn()
            case _:
                assert_never(outcome)

    def _settle(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """All offers of a buffer are answered: offer the rest, hold it, or go on behind it."""
        within = self._within(key, buffer)
        if any(not view.blocked(buffer.lane, self._now_ms) for view in within):
            return self._offer(reader, key, buffer)
        ready = self._ready(key)
        if (within and not self._wanted_elsewhere(reader, key, buffer)) or not ready:
            return self._hold(reader, key, buffer)
        buffer.release()
        return self._go_on(reader, key, buffer) + self._steer(key)

    def _wanted_elsewhere(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> bool:
        """True if somebody whom the reader serves needs it to leave this buffer.

        A task that the live reader serves does not need the catch-up reader: to leave for it would
        be to come back at once and read the same records again.
        """
        offsets = {view: view.offsets[buffer.lane] for view in self._ready(key)}
        if reader == LIVE:
            return any(offset >= buffer.next for offset in offsets.values())
        live = self._buffers[LIVE][key]
        return any(
            offset < live.first
            and not buffer.first <= offset < buffer.next
            and not view.blocked(buffer.lane, self._now_ms)
            for view, offset in offsets.items()
        )

    def _hold(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """Nobody can take the buffer now: keep it, read no further, stay in the group."""
        buffer.retry_at_ms = self._now_ms + RETRY_PAUSE_MS
        if buffer.paused:
            return []
        buffer.paused = True
        return [PauseLane(reader, key[0], key[1])]

    def _go_on(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        skipped, buffer.skipped = buffer.skipped, False
        if buffer.paused:
            buffer.paused = False
            return [ResumeLane(reader, key[0], key[1], buffer.next)]
        return [SeekLane(reader, key[0], key[1], buffer.next)] if skipped else []

    # ------------------------------------------------------------------------- heads and idleness

    def _refresh_heads(self) -> list[Instruction]:
        """Ask again for all heads, the sooner where one is not known or was found inactive."""
        return self._ask_heads(
            view
            for view in self._views.values()
            if view.task.running
            and self._now_ms - view.asked_ms >= (HEAD_INTERVAL_MS if view.known else RETRY_PAUSE_MS)
        )

    def _idle(self) -> list[Instruction]:
        """Ask the broker about lanes whose end is reached and that have been silent for a while."""
        instructions: list[Instruction] = []
        for key, buffer in self._buffers[LIVE].items():
            asked = self._idle_asked_ms.get(key, 0)
            if buffer.end is None or buffer.end != buffer.next or not buffer.empty:
                continue
            if self._now_ms - asked < IDLE_RENEWAL_MS or not self._silent(key, buffer):
                continue
            self._idle_asked_ms[key] = self._now_ms
            instructions.append(ConfirmEnd(key[0], key[1], buffer.next))
        return instructions

    def _silent(self, key: Partition, buffer: LaneBuffer) -> list[TaskView]:
        """The tasks that have seen all of the lane, and no row of it for their `idle_after`."""
        return [
            view
            for view in self._ready(key)
            if view.offsets[buffer.lane] == buffer.next
            and self._now_ms - view.row_seen_ms(buffer.lane) >= view.idle_after_ms
        ]

    def _end_confirmed(self, event: EndConfirmed) -> list[Instruction]:
        key = (event.topic, event.partition)
        buffer = self._buffers[LIVE].get(key)
        if buffer is None or not event.confirmed or buffer.next != event.offset:
            return []
        return [
            RenewIdle(view.name, view.epoch, buffer.lane, event.offset)
            for view in self._silent(key, buffer)
        ]

    def _hint(self) -> list[Instruction]:
        if self._now_ms - self._hinted_ms < HINT_INTERVAL_MS:
            return []
        self._hinted_ms = self._now_ms
        positions = {
            key: min(view.offsets[buffer.lane] for view in ready)
            for key, buffer in self._buffers[LIVE].items()
            if (ready := self._ready(key))
        }
        return [Hint(tuple(positions.items()))] if positions else []

    # ----------------------------------------------------------------------------- for people

    def readings(self) -> tuple[PartitionReading, ...]:
        """How far each partition is, for the member's report."""
        return tuple(
            PartitionReading(key[0], key[1], buffer.first, self._reading_state(key, buffer))
            for key, buffer in sorted(self._buffers[LIVE].items())
        )

    def _reading_state(self, key: Partition, buffer: LaneBuffer) -> str:
        if not buffer.sought:
            return "starting"
        if buffer.paused:
            blocked = any(
                view.blocked(buffer.lane, self._now_ms - RETRY_PAUSE_MS)
                for view in self._within(key, buffer)
            )
            return "backpressure" if blocked else "paused"
        return "idle" if self._silent(key, buffer) else "reading"

    @property
    def catching_up(self) -> bool:
        """True while the catch-up reader has something to read."""
        return bool(self._buffers[CATCH_UP])


def _union(stream: Stream, plans: Iterable[Plan]) -> tuple[Field, ...]:
    """The fields that any of the plans reads from this very stream, in declared order."""
    names = {field.name for plan in plans if plan.stream == stream for field in plan.fields}
    return tuple(field for field in stream.fields if field.name in names)
