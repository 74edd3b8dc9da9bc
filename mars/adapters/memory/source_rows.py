"""Rows of tasks in memory, read again to check a result: the twin of Kafka's; it has no files."""

from __future__ import annotations

from collections.abc import Iterator

from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.faults import Faults, fallible
from mars.core.definitions import FileHistory
from mars.core.errors import JobFailed
from mars.core.plan import Plan
from mars.core.types import Mapped, Range, Records, Topic, lane_partition
from mars.engine.kernel import decode, map_batch


class MemorySourceRows:
    """`SourceRows` in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.faults = Faults("kafka")
        self._broker = broker

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def read(
        self,
        plan: Plan,
        buckets: int,
        part: Range,
        files: FileHistory | None = None,
        number: int | None = None,
    ) -> Iterator[Mapped | Range]:
        """What a range adds to a task; a lane of files raises JobFailed."""
        partition = lane_partition(part.lane)
        if partition is None:
            raise JobFailed(f"Lane {part.lane} reads files, and there are none in memory.")
        log = self._broker.partition(Topic(plan.stream.topic), partition)
        if log.end < part.next:
            raise JobFailed(f"Partition {partition} ends at {log.end}, before {part.next}.")
        first = min(max(log.start, part.first), part.next)
        lost = [Range(part.lane, part.first, first)] if part.first < first else []
        records = log.committed(first, part.next)
        batch = Records(
            part.lane,
            first,
            part.next,
            [record.value for record in records],
            [record.offset for record in records],
            [record.timestamp_ms for record in records],
            [record.key for record in records],
        )
        decoded = decode(plan.stream, plan.fields, batch)
        left = [map_batch(plan, buckets, decoded, number)] if first < part.next else []
        return iter([*lost, *left])
