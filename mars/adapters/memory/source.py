"""The reader of topics in memory: the twin of Kafka's."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from mars.adapters.memory.broker import MemoryBroker, MemoryMember, Place, UnknownTopic
from mars.adapters.memory.faults import Faults, fallible
from mars.core.types import Records, Topic, live_lane
from mars.protocol.ports import Assigned, EndReached, Fetched, OffsetGone, Revoked, SourceEvent


class MemorySource:
    """`SourceReader` in memory, in the consumer group `group` or, without one, by itself.

    `poll` does not wait. The end of a partition is told once, and again after new records.
    """

    def __init__(self, broker: MemoryBroker, group: str | None = None) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        self._group = broker.group(group) if group is not None else None
        self._member = MemoryMember()
        self._positions: dict[Place, int] = {}
        self._paused: dict[Place, int] = {}
        self._told_ends: dict[Place, int] = {}
        self._keyed: frozenset[Topic] = frozenset()

    # ------------------------------------------------------------------- what tests do to it

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect.

        A poll fails before it takes effect only: the real one never loses what it has read.
        """
        if method == "poll" and not before:
            raise ValueError("a poll that fails has read nothing")
        self.faults.plan(method, before=before)

    def expire(self) -> None:
        """The group gives the member up: it was killed, or it stood still.

        If it polls again it hears what it has lost, and joins anew.
        """
        if self._group is not None:
            self._group.remove(self._member)

    # ---------------------------------------------------------------------------- what to read

    @fallible
    def subscribe(self, topics: Sequence[Topic]) -> None:
        """Read these topics as a group member."""
        if self._group is None:
            raise ValueError("a reader without a group is told its partitions by seek")
        self._member.topics = tuple(topics)
        self._group.update(self._member)

    @fallible
    def want_keys(self, topics: Collection[Topic]) -> None:
        """Records of these topics carry their keys, and only they."""
        self._keyed = frozenset(topics)

    @fallible
    def seek(self, topic: Topic, partition: int, offset: int) -> None:
        """Go on from `offset`; nothing if the group gave the partition to somebody else."""
        place = (topic, partition)
        if self._group is None or place in self._member.owned:
            self._positions[place] = offset
            self._paused.pop(place, None)
            self._told_ends.pop(place, None)

    @fallible
    def drop(self, topic: Topic, partition: int) -> None:
        """Stop to read a partition, and forget it."""
        self._forget((topic, partition))

    def _forget(self, place: Place) -> None:
        self._positions.pop(place, None)
        self._paused.pop(place, None)

    @fallible
    def pause(self, topic: Topic, partition: int) -> None:
        """Deliver no more records of a partition; how many lie ahead of it is remembered."""
        place = (topic, partition)
        position = self._positions.pop(place, None)
        if position is not None:
            self._paused[place] = self._lag(place, position)

    @fallible
    def resume(self, topic: Topic, partition: int, offset: int) -> None:
        """Deliver records of a partition again, from `offset`."""
        self.seek(topic, partition, offset)

    # --------------------------------------------------------------------------------- reading

    @fallible
    def poll(self, records_max: int, timeout_s: float) -> list[SourceEvent]:
        """What there is now, at most `records_max` records; rebalances come last."""
        changes, self._member.changes = self._member.changes, []
        for _gained, lost in changes:
            for place in lost:
                self._forget(place)
        events = self._fetch(records_max)
        for gained, lost in changes:
            if lost:
                events.append(Revoked(lost))
            if gained:
                events.append(Assigned(gained))
        if self._group is not None and self._member.topics:
            self._group.rejoin(self._member)
        return events

    def _fetch(self, records_max: int) -> list[SourceEvent]:
        events: list[SourceEvent] = []
        room = records_max
        for place in list(self._positions):
            found = self._read(place, room)
            events += found
            room -= sum(len(one.records.values) for one in found if isinstance(one, Fetched))
        return events

    def _read(self, place: Place, room: int) -> list[SourceEvent]:
        topic, partition = place
        try:
            log = self._broker.partition(topic, partition)
        except UnknownTopic:
            return []
        first, end = self._positions[place], log.stable_end
        if not log.start <= first <= log.end:
            del self._positions[place]
            return [OffsetGone(topic, partition, first, log.start)]
        found = log.committed(first, end)[:room]
        more = len(found) == room
        after = found[-1].offset + 1 if more and found else max(first, end)
        if more and not found:
            return []
        events: list[SourceEvent] = []
        if after > first:
            self._positions[place] = after
            records = Records(
                lane=live_lane(partition),
                first=first,
                next=after,
                values=[record.value for record in found],
                offsets=[record.offset for record in found],
                timestamps_ms=[record.timestamp_ms for record in found],
                keys=[record.key for record in found] if topic in self._keyed else None,
            )
            events.append(Fetched(topic, records))
        if not more and self._told_ends.get(place) != after:
            self._told_ends[place] = after
            events.append(EndReached(topic, partition, after))
        return events

    # --------------------------------------------------------------------------------- offsets

    def lags(self) -> dict[tuple[Topic, int], int]:
        """Committed records ahead of what was delivered; of a paused partition, when it was."""
        read = {place: self._lag(place, position) for place, position in self._positions.items()}
        return self._paused | read

    def _lag(self, place: Place, position: int) -> int:
        return max(0, self._broker.partition(*place).stable_end - position)

    @fallible
    def confirm_ends(self, ends: Mapping[Place, int]) -> set[Place]:
        """Where nothing committed lies at or after these offsets."""
        return {place for place, offset in ends.items() if self._end(place) <= offset}

    def _end(self, place: Place) -> float:
        try:
            return self._broker.partition(*place).stable_end
        except UnknownTopic:
            return math.inf

    @fallible
    def hint(self, positions: Mapping[tuple[Topic, int], int]) -> None:
        """Commit group offsets of what is still ours."""
        if self._group is not None:
            owned = {place: at for place, at in positions.items() if place in self._member.owned}
            self._group.offsets.update(owned)

    def close(self) -> None:
        """Leave the group."""
        self._member.topics = ()
        self.expire()
        self._positions.clear()
        self._paused.clear()
