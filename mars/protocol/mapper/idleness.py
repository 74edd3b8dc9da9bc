"""Which lanes of a mapper are idle, and what people are told of its partitions."""

from __future__ import annotations

from mars.protocol.mapper.events import (
    LIVE,
    ConfirmEnds,
    EndsConfirmed,
    Hint,
    Instruction,
    RenewIdle,
)
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.state import MapperState, Partition
from mars.protocol.ports import IdleLease, PartitionReading

IDLE_RENEWAL_MS = 1_000
"""An idle lease lasts 3 s; it is renewed this often."""

COMPANY_MS = 500
"""Lanes whose leases are as old go along where one is renewed: of hundreds, all at once."""

UNTOLD_MS = 5_000
"""After so long without records the broker is asked, too, where the reader has not told of an end:
it tells of each once, and were that lost, the last windows would wait for the next rows."""

LOOK_INTERVAL_MS = 50
"""How often it is looked which lanes are silent: there may be hundreds, and as many ticks."""

HINT_INTERVAL_MS = 5_000
"""How often group offsets are committed, for lag figures only."""


class Idleness:
    """Leases lanes as idle, with the broker's word that nothing lies ahead."""

    def __init__(self, state: MapperState) -> None:
        self._state = state
        self._idle_asked_ms: dict[Partition, int] = {}
        self._hinted_ms = 0
        self._looked_ms = 0

    def forget(self, key: Partition) -> None:
        """Another mapper reads the partition now."""
        self._idle_asked_ms.pop(key, None)

    def confirm_ends(self) -> list[Instruction]:
        """Ask the brokers about silent lanes that seem to be at their end, about all together."""
        now_ms = self._state.now_ms
        if now_ms - self._looked_ms < LOOK_INTERVAL_MS:
            return []
        self._looked_ms = now_ms
        lanes = self._state.buffers[LIVE].items()
        old_ms = {key: now_ms - self._idle_asked_ms.get(key, 0) for key, _buffer in lanes}
        if not any(old_ms[key] >= IDLE_RENEWAL_MS and self._at_end(key, own) for key, own in lanes):
            return []
        ends = {
            key: buffer.next
            for key, buffer in lanes
            if old_ms[key] >= COMPANY_MS and self._at_end(key, buffer)
        }
        self._idle_asked_ms.update(dict.fromkeys(ends, now_ms))
        return [ConfirmEnds(ends)]

    def _at_end(self, key: Partition, buffer: LaneBuffer) -> bool:
        quiet_ms = self._state.now_ms - buffer.newest_ms
        told = buffer.end == buffer.next or quiet_ms >= UNTOLD_MS
        return buffer.sought and buffer.empty and told and bool(self._state.silent(key, buffer))

    def ends_confirmed(self, event: EndsConfirmed) -> list[Instruction]:
        """Lease lanes as idle for the tasks that have seen all of them."""
        leases = tuple(
            IdleLease(
                view.name,
                view.epoch,
                buffer.lane,
                offset,
                view.task.definition.begun[-1].version,
            )
            for key, offset in event.ends.items()
            if (buffer := self._state.buffers[LIVE].get(key)) is not None and buffer.next == offset
            for view in self._state.silent(key, buffer)
        )
        return [RenewIdle(leases)] if leases else []

    def hint(self) -> list[Instruction]:
        """Now and then, the offsets of the slowest tasks, for lag figures."""
        if self._state.now_ms - self._hinted_ms < HINT_INTERVAL_MS:
            return []
        self._hinted_ms = self._state.now_ms
        positions = {
            key: min(view.offsets[buffer.lane] for view in ready)
            for key, buffer in self._state.buffers[LIVE].items()
            if (ready := self._state.ready(key))
        }
        return [Hint(tuple(positions.items()))] if positions else []

    def readings(self) -> tuple[PartitionReading, ...]:
        """How far each partition is, for the member's report."""
        return tuple(
            PartitionReading(key[0], key[1], buffer.first, self._reading_state(key, buffer))
            for key, buffer in sorted(self._state.buffers[LIVE].items())
        )

    def _reading_state(self, key: Partition, buffer: LaneBuffer) -> str:
        if not buffer.sought:
            return "starting"
        if buffer.paused:
            return "backpressure" if self._state.held_back(key, buffer) else "paused"
        return "idle" if self._state.silent(key, buffer) else "reading"
