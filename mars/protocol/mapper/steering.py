"""Where the two readers of a mapper read (M1)."""

from __future__ import annotations

from mars.core.types import Lane
from mars.protocol.mapper.events import (
    CATCH_UP,
    LIVE,
    DropLane,
    Instruction,
    PauseLane,
    ReaderLane,
    ReaderName,
    ResumeLane,
    SeekLane,
)
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.state import RETRY_PAUSE_MS, MapperState, Partition
from mars.protocol.mapper.task_view import TaskView


class LaneSteering:
    """Puts the readers where the tasks are, and holds them where nobody takes what they read."""

    def __init__(self, state: MapperState) -> None:
        self._state = state

    def steer(self, key: Partition) -> list[Instruction]:
        """Put both readers where the tasks are (M1)."""
        buffer = self._state.buffers[LIVE].get(key)
        ready = self._state.ready(key)
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
            return instructions + self.drop_catch_up(key)
        return instructions + self._steer_catch_up(key, lane, behind)

    def _steer_catch_up(
        self, key: Partition, lane: Lane, behind: list[TaskView]
    ) -> list[Instruction]:
        buffer = self._state.buffers[CATCH_UP].get(key)
        if buffer is None:
            buffer = self._state.buffers[CATCH_UP][key] = LaneBuffer(lane)
        elif any(buffer.first <= view.offsets[lane] <= buffer.next for view in behind):
            return []
        free = [view for view in behind if not view.blocked(lane, self._state.now_ms)] or behind
        return [self._seek(CATCH_UP, key, buffer, min(view.offsets[lane] for view in free))]

    def _seek(
        self, reader: ReaderName, key: Partition, buffer: LaneBuffer, offset: int
    ) -> Instruction:
        buffer.seek(offset)
        for view in self._state.tasks_of(key[0]):
            view.saw_rows(buffer.lane, self._state.now_ms)
        if buffer.paused:
            buffer.paused = False
            return ResumeLane(reader, key[0], key[1], offset)
        return SeekLane(reader, key[0], key[1], offset)

    def drop_catch_up(self, key: Partition) -> list[Instruction]:
        """Nobody is behind in a partition any more, or another mapper reads it."""
        if self._state.buffers[CATCH_UP].pop(key, None) is None:
            return []
        return [DropLane(CATCH_UP, key[0], key[1])]

    def wanted_elsewhere(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> bool:
        """True if somebody whom the reader serves needs it to leave this buffer.

        A task that the live reader serves does not need the catch-up reader: to leave for it would
        be to come back at once and read the same records again.
        """
        offsets = {view: view.offsets[buffer.lane] for view in self._state.ready(key)}
        if reader == LIVE:
            return any(offset >= buffer.next for offset in offsets.values())
        live = self._state.buffers[LIVE][key]
        return any(
            offset < live.first
            and not buffer.first <= offset < buffer.next
            and not view.blocked(buffer.lane, self._state.now_ms)
            for view, offset in offsets.items()
        )

    def hold(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """Nobody can take the buffer now: keep it, read no further, stay in the group."""
        buffer.retry_at_ms = self._state.now_ms + RETRY_PAUSE_MS
        return self.pause(reader, key, buffer)

    def pause(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """Read no further while the buffer is kept."""
        if buffer.paused:
            return []
        buffer.paused = True
        return [PauseLane(reader, key[0], key[1])]

    def standing(self) -> dict[ReaderLane, bool]:
        """The lanes that are not read on; True: the store holds them back, False: nobody wants them
        at the moment.
        """
        return {
            (reader, *key): self._state.held_back(key, buffer)
            for reader, buffers in self._state.buffers.items()
            for key, buffer in buffers.items()
            if buffer.paused
        }

    def go_on(self, reader: ReaderName, key: Partition, buffer: LaneBuffer) -> list[Instruction]:
        """The buffer is released: read on behind it."""
        skipped, buffer.skipped = buffer.skipped, False
        if buffer.paused:
            buffer.paused = False
            return [ResumeLane(reader, key[0], key[1], buffer.next)]
        return [SeekLane(reader, key[0], key[1], buffer.next)] if skipped else []
