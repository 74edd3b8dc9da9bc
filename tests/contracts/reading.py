"""Polls a reader of topics and keeps what it told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mars.core.types import Records, Topic
from mars.protocol.ports import Assigned, EndReached, Fetched, OffsetGone, Revoked, SourceReader
from tests.contracts.waiting import eventually

Place = tuple[Topic, int]

POLL_S = 0.1
RECORDS_MAX = 1_000


class Reading:
    """One reader; `owned` is what the group says it owns."""

    def __init__(self, reader: SourceReader) -> None:
        self.reader = reader
        self.records: defaultdict[Place, list[Records]] = defaultdict(list)
        self.ends: dict[Place, int] = {}
        self.gone: dict[Place, OffsetGone] = {}
        self.owned: set[Place] = set()

    def poll(self, records_max: int = RECORDS_MAX) -> bool:
        """Poll once; True, so that it can stand in a condition."""
        for event in self.reader.poll(records_max, POLL_S):
            match event:
                case Fetched(topic=topic, records=records):
                    place = topic, int(records.lane)
                    before = self.records[place]
                    assert not before or before[-1].next == records.first, "ranges must tile"
                    assert records.first < records.next
                    assert len(records.values) == len(records.offsets) == len(records.timestamps_ms)
                    before.append(records)
                case EndReached(topic=topic, partition=partition, offset=offset):
                    read = self.records[topic, partition]
                    assert not read or read[-1].next == offset, "the end is where reading stands"
                    self.ends[topic, partition] = offset
                case OffsetGone(topic=topic, partition=partition):
                    self.gone[topic, partition] = event
                case Assigned(partitions=partitions):
                    assert self.owned.isdisjoint(partitions)
                    self.owned.update(partitions)
                case Revoked(partitions=partitions):
                    assert self.owned.issuperset(partitions)
                    self.owned.difference_update(partitions)
        return True

    def seek(self, topic: Topic, partition: int, offset: int) -> None:
        """Go to an offset and forget what was read of the partition before."""
        self.forget(topic, partition)
        self.reader.seek(topic, partition, offset)

    def forget(self, topic: Topic, partition: int) -> None:
        self.records.pop((topic, partition), None)
        self.ends.pop((topic, partition), None)

    def values(self, topic: Topic, partition: int = 0) -> list[bytes | None]:
        return [value for part in self.records[topic, partition] for value in part.values]

    def offsets(self, topic: Topic, partition: int = 0) -> list[int]:
        return [offset for part in self.records[topic, partition] for offset in part.offsets]

    def next(self, topic: Topic, partition: int = 0) -> int:
        return self.records[topic, partition][-1].next

    def until_end(self, topic: Topic, partition: int = 0, end: int | None = None) -> None:
        """Poll until the end is told: that offset, if one is given."""
        place = topic, partition
        eventually(lambda: self.poll() and place in self.ends and end in (None, self.ends[place]))

    def until_owned(self, places: Sequence[Place]) -> None:
        """Poll until exactly these partitions are owned."""
        eventually(lambda: self.poll() and self.owned == set(places))
