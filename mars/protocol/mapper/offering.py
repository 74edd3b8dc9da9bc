"""Which buffers are offered when, to which tasks, and what comes of it (M3, M4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mars.core.errors import TaskLimit
from mars.core.types import Mapped, Topic
from mars.protocol.mapper.batches import Batches
from mars.protocol.mapper.events import FailTask, Instruction, Offer, Offered, ReaderName
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.side_by_side import SideBySide
from mars.protocol.mapper.state import RETRY_PAUSE_MS, MapperState, Partition
from mars.protocol.mapper.steering import LaneSteering
from mars.protocol.mapper.task_view import TaskView
from mars.protocol.ports import (
    AppendOutcome,
    Applied,
    Backpressure,
    Cut,
    NoTask,
    Stale,
    TaskPaused,
    WrongEpoch,
    WrongVersion,
)

REST_MS_A_TASK = 10
REST_MS_OF_MANY = 2_000
"""Each task makes a batch of its own of the same rows, so the rows of a topic that many tasks read
rest longer: as long for 200 tasks as keeps the batches of a lane at a hundred a second."""

APART_MS = 1_000
"""How long a task's lanes go by themselves after a batch of several was refused: what is in the way
of one of them, the cuts of a new life of the store or a full log, stays there for some time."""

UNKNOWN_LANE_PAUSE_MS = 1_000
"""Pause before a lane that the task does not have yet is offered again: the leader adds it."""


def outcome_of_all(outcome: AppendOutcome | None) -> bool:
    """Whether an answer concerns the task, not a lane of it: its head is to be read again."""
    return outcome is None or isinstance(outcome, NoTask | WrongEpoch | WrongVersion | TaskPaused)


class Offering:
    """Offers what the readers have read, and settles each buffer once all tasks have answered.

    `rows_max` and `bytes_max` bound what one reader holds. While records lie ahead it collects up
    to that, or for `linger_ms`; near the end of what is there, for `rest_ms`, or longer for many
    tasks, and not at all if the rows may close a window.
    """

    def __init__(
        self,
        state: MapperState,
        steering: LaneSteering,
        buckets: int,
        *,
        rows_max: int,
        bytes_max: int,
        linger_ms: int,
        rest_ms: int,
    ) -> None:
        self._state = state
        self._steering = steering
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._linger_ms = linger_ms
        self._rest_ms = rest_ms
        self._batches = Batches(buckets)
        self._side_by_side = SideBySide(buckets)
        self.rows_mapped = 0

    def flush(self, reader: ReaderName, *, drained: bool) -> list[Instruction]:
        """Offer what a reader has collected for long enough; `drained`: it is near the end."""
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
                instructions += self.offer(reader, key, buffer)
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
        """Offer ripe buffers of a topic, and beside them what was read of its other lanes.

        Messages that hold no row would end the idleness of their lane in a batch with others.
        """
        buffers = self._state.buffers[reader]
        among = [
            buffer
            for key, buffer in buffers.items()
            if key[0] == topic and buffer.rows and not buffer.closed and self._may_go(buffer)
        ]
        views = list(self._state.tasks_of(topic))
        instructions: list[Instruction] = []
        for one in self._side_by_side.make(views, among, self._state.now_ms):
            epoch = self._state.views[one.task].epoch
            instructions.append(Offer(reader, topic, one.task, epoch, one.version, one.mapped))
            for part in one.mapped.ranges:
                buffer = buffers[topic, int(part.lane)]
                buffer.closed = True
                buffer.outstanding += 1
        for key in ripe:
            if not buffers[key].outstanding:
                instructions += self.offer(reader, key, buffers[key])
        return instructions

    def _ripe(self, key: Partition, buffer: LaneBuffer, *, drained: bool) -> bool:
        """Whether a buffer has collected long enough.

        A small batch costs as much as one of some thousand rows, in the reducers too: only where a
        window waits for it is it worth that. A draft is, as long as no rest is longer for it.
        """
        age_ms = self._state.now_ms - buffer.oldest_ms
        if not drained:
            return age_ms >= self._linger_ms
        quiet_ms = buffer.quiet_ms
        if age_ms < self._rest_ms and quiet_ms is not None and buffer.newest_ms <= quiet_ms:
            return False  # there may be hundreds of buffers, and as many ticks a second
        takers = self._state.within(key, buffer)
        rest_ms = self._rest(len(takers))
        if age_ms >= rest_ms:
            return True
        drafted = rest_ms <= self._rest_ms
        ahead_ms = buffer.newest_ms + self._rest_ms
        for upto_ms in (ahead_ms, buffer.newest_ms):
            if not any(view.may_close(buffer.lane, upto_ms, drafted=drafted) for view in takers):
                buffer.quiet_ms = upto_ms if takers else None
                return False
        return True

    def _rest(self, takers: int) -> int:
        if not self._rest_ms:
            return 0
        return max(self._rest_ms, min(takers * REST_MS_A_TASK, REST_MS_OF_MANY))

    def offer(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
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
            return self.fail(view, detail)
        buffer.offers[view.name] = version, mapped
        return [Offer(reader, key[0], view.name, view.epoch, version, mapped)]

    def fail(self, view: TaskView, detail: str) -> list[Instruction]:
        """Stop a task, and that one only."""
        view.stop()
        return [FailTask(view.name, view.task.definition.run, detail)]

    def answered(self, event: Offered) -> list[Instruction]:
        """The store has answered an offer, or it is not known what became of it."""
        offer, outcome, mapped = event.offer, event.outcome, event.offer.mapped
        view = self._state.views.get(offer.task)
        taken = isinstance(outcome, Applied)
        if taken:
            if view is not None:
                view.took(mapped, self._state.now_ms)
            self.rows_mapped += sum(partial.counts.read for partial in mapped.partials)
        elif view is not None:
            self._refused(view, mapped, outcome)
        instructions: list[Instruction] = []
        buffers = self._state.buffers[offer.reader]
        for part in mapped.ranges:
            key = (offer.topic, int(part.lane))
            buffer = buffers.get(key)
            if buffer is None:
                continue
            if view is not None and not isinstance(outcome, Backpressure):
                buffer.offers.pop(offer.task, None)
            if view is not None and taken and part.lane in mapped.marks_ms:
                view.marked(part.lane, mapped.marks_ms[part.lane], buffer.newest_ms)
            buffer.outstanding = max(0, buffer.outstanding - 1)  # 0: it has begun anew since
            if not buffer.outstanding:
                instructions += self._settle(offer.reader, key, buffer)
        return instructions

    def _refused(self, view: TaskView, mapped: Mapped, outcome: AppendOutcome | None) -> None:
        """What a refusal says of the task, and of a lane; of others it may say something else."""
        if outcome_of_all(outcome):
            view.unlearn()
        several = len(mapped.ranges) > 1
        if several:
            view.go_apart(self._state.now_ms + APART_MS)
        match outcome:
            case Stale(lane=lane, current=current) if current < 0:
                view.block(lane, self._state.now_ms + UNKNOWN_LANE_PAUSE_MS)
                view.unlearn()
            case Stale(lane=lane, current=current, rows=rows):
                view.is_at(lane, current, rows)
            case Cut(lane=lane, offset=offset):
                view.cuts[lane] = offset
            case Backpressure() if not several:
                view.block(mapped.ranges[0].lane, self._state.now_ms + RETRY_PAUSE_MS)

    def _settle(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """All offers of a buffer are answered: offer the rest, hold it, or go on behind it."""
        ready = self._state.ready(key)
        within = self._state.among(ready, buffer)
        if any(not view.blocked(buffer.lane, self._state.now_ms) for view in within):
            if buffer.cut:  # many rows, a part of them at each tick
                return self._steering.pause(reader, key, buffer)
            return self.offer(reader, key, buffer)
        if (within and not self._steering.wanted_elsewhere(reader, key, buffer)) or not ready:
            return self._steering.hold(reader, key, buffer)
        buffer.release()
        return self._steering.go_on(reader, key, buffer) + self._steering.steer(key)
