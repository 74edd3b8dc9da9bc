"""Reads topics with librdkafka: as a member of the mappers' group, or by itself.

A partition that delivers nothing (not sought yet, paused) is simply not assigned to the client,
and a seek assigns it at an offset: the client then throws away by itself what it had fetched
before, keeps no memory for it, and has no default place to start from. The group does not see
this: it knows what the member owns, not what it reads.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.config import Properties, lone_reader_properties, mapper_properties
from mars.adapters.kafka.errors import (
    OFFSETS_LOST,
    configured,
    translated,
    unavailable,
)
from mars.adapters.kafka.names import Place
from mars.adapters.kafka.offsets import END
from mars.adapters.kafka.source.deafness import Deafness, Stalled
from mars.adapters.kafka.source.gathering import Gathering
from mars.adapters.kafka.source.leftovers import STATISTICS_MS, Leftovers
from mars.adapters.kafka.source.troubles import Troubles
from mars.adapters.kafka.source.undecodable import Searches
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import MemberId, Topic
from mars.protocol.ports import Assigned, OffsetGone, Revoked, SourceEvent

CONSUME_ROWS = 2_000
"""Messages of one call to the client: their objects fit into the processor's cache."""

WAIT_SLICE_S = 0.05
"""The client does not return for a rebalance, so a wait is cut into pieces."""

COMPANY_S = 0.01
"""How long a first message waits for others. At a modest rate each poll would bring one or two, of
hundreds of partitions, and all that is done once in a poll would be done for these."""

WAIT_MIN_S = 0.001
"""The client counts in milliseconds: to wait for less is not to wait, but to ask in a busy loop."""


class KafkaReader:
    """`SourceReader` on Kafka; for one thread.

    `poll` raises Unavailable as long as no broker can be talked to, and once for each other thing
    that is wrong; it goes on by itself when all is well again, so keep polling. Only where the
    text says "make a new reader" it does not.
    """

    def __init__(self, admin: KafkaTopicAdmin, properties: Properties, *, grouped: bool) -> None:
        self._grouped = grouped
        self._properties = properties
        # Has a connection of its own: on that of the consumer a question would wait behind the
        # fetch, which the broker holds back at the end of a partition.
        self._admin = admin
        self._owned: set[Place] = set()
        self._positions: dict[Place, int] = {}
        self._paused: dict[Place, int] = {}
        """How many messages lay ahead of each partition when it was paused."""
        self._topics: tuple[Topic, ...] = ()
        self._gathering = Gathering(self._positions)
        self._searches = Searches()
        self._rebalances: list[SourceEvent] = []
        self._lost: dict[Place, int] = {}
        self._troubles = Troubles()
        self._deafness = Deafness(self._admin)
        self._cut_off = Stalled()
        self._leftovers = Leftovers()
        self._consumer = self._connected()

    def _connected(self) -> Consumer:
        with configured():
            return Consumer(
                {
                    **self._properties,
                    "error_cb": self._troubles.heard,
                    "stats_cb": self._leftovers.heard,
                    "statistics.interval.ms": STATISTICS_MS,
                }
            )

    @classmethod
    def in_group(
        cls, settings: Settings, member: MemberId, admin: KafkaTopicAdmin | None = None
    ) -> KafkaReader:
        """A member of the mappers' group. Raises SettingsError."""
        properties = mapper_properties(settings, member)
        return cls(admin or KafkaTopicAdmin(settings), properties, grouped=True)

    @classmethod
    def alone(
        cls, settings: Settings, member: MemberId, admin: KafkaTopicAdmin | None = None
    ) -> KafkaReader:
        """A reader of the partitions that it is told to seek. Raises SettingsError."""
        properties = lone_reader_properties(settings, f"{member}-alone")
        return cls(admin or KafkaTopicAdmin(settings), properties, grouped=False)

    # ---------------------------------------------------------------------------- what to read

    def subscribe(self, topics: Sequence[Topic]) -> None:
        """Read these topics as a group member; a topic that does not exist yet joins later."""
        wanted = tuple(sorted(set(topics)))
        if wanted == self._topics:
            return
        with translated():
            if wanted:
                self._consumer.subscribe(
                    list(wanted),
                    on_assign=self._on_assigned,
                    on_revoke=self._on_revoked,
                    on_lost=self._on_revoked,
                )
            else:
                self._consumer.unsubscribe()
        self._topics = wanted

    def want_keys(self, topics: Collection[Topic]) -> None:
        """Records of these topics carry their keys, and only they."""
        self._gathering.keyed = frozenset(topics)

    def seek(self, topic: Topic, partition: int, offset: int) -> None:
        """Read the partition from `offset`; nothing if the group gave it to somebody else."""
        place = (topic, partition)
        if self._grouped and place not in self._owned:
            return
        self.drop(topic, partition)
        with translated():
            self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
        self._positions[place] = offset

    def pause(self, topic: Topic, partition: int) -> None:
        """Read the partition no more until it is sought or resumed."""
        place = (topic, partition)
        position = self._all_positions().get(place)
        lag = self._paused.get(place) if position is None else _lag(self._consumer, place, position)
        self.drop(topic, partition)
        if lag is not None:
            self._paused[place] = lag

    def drop(self, topic: Topic, partition: int) -> None:
        """Stop to read the partition, and forget it."""
        place = (topic, partition)
        self._lost.pop(place, None)
        self._paused.pop(place, None)
        self._deafness.forget(place)
        if self._forget_reading(place):
            with translated():
                self._consumer.incremental_unassign([TopicPartition(topic, partition)])

    def _forget_reading(self, place: Place) -> bool:
        """Whether the client reads the partition, or asks for an offset of it."""
        self._gathering.forget(place)
        asked = self._searches.forget(place)
        return self._positions.pop(place, None) is not None or asked

    def resume(self, topic: Topic, partition: int, offset: int) -> None:
        """The same as a seek."""
        self.seek(topic, partition, offset)

    # --------------------------------------------------------------------------------- reading

    def poll(self, records_max: int, timeout_s: float) -> list[SourceEvent]:
        """What there is, at most `records_max` records; waits up to `timeout_s` for the first.

        Rebalances come last: what was read before them was read while the partition was ours.
        """
        deadline = time.monotonic() + timeout_s
        self._troubles.raise_refusal()
        while True:
            drained = self._consume(records_max)
            events = self._events()
            left = deadline - time.monotonic()
            if events:
                self._cut_off.heard(time.monotonic())
            else:
                topics = self._topics or tuple(topic for topic, _partition in self._positions)
                self._begin_anew(self._cut_off.reason(self._consumer, topics, time.monotonic()))
                self._troubles.raise_if_away(self._consumer)
            if drained:  # else rows of any partition may wait behind those of others
                reading = self._positions | self._gathering.asked
                self._begin_anew(self._deafness.reason(reading, time.monotonic()))
            if events or left < WAIT_MIN_S:
                return events
            with translated():
                # Returns at the first message; asked for more, it would wait until it has them.
                first = self._consumer.consume(1, min(left, WAIT_SLICE_S))
            self._gathering.add(first)
            if first:
                time.sleep(min(left, COMPANY_S))

    def _begin_anew(self, why: str | None) -> None:
        """Make another client, if there is a reason; in a group what it had is revoked."""
        if why is None:
            return
        positions = self._all_positions()
        self.close()
        if self._owned:
            self._rebalances.append(Revoked(tuple(sorted(self._owned))))
            self._owned.clear()
            self._paused.clear()
        for place in positions:
            self._forget_reading(place)
        topics, self._topics = self._topics, ()
        self._consumer = self._connected()
        self.subscribe(topics)
        if not self._grouped:
            for place, position in positions.items():
                self.seek(*place, position)
        self._troubles.answered()
        self._troubles.refused(Unavailable("kafka", f"{why}; a new client was made"))

    def _consume(self, records_max: int) -> bool:
        """Take what has been fetched; True if that is all of it."""
        with translated():
            self._leftovers.drop(self._consumer, self._all_positions)
        self._searches.rows_max = records_max
        while (room := records_max - self._gathering.rows) > 0:
            with translated():
                messages = self._consumer.consume(min(room, CONSUME_ROWS), 0)
            if not messages:
                return True
            self._gathering.add(messages)
        return False

    def _events(self) -> list[SourceEvent]:
        events = self._gathering.take_events()
        if events:
            self._troubles.answered()
        # What one of them has found is told, whatever the client refuses to the next.
        for deal in (self._set_aside, self._gone, self._passed_over):
            try:
                deal(events)
            except Unavailable as problem:
                self._troubles.refused(problem)
        events += self._rebalances
        self._rebalances = []
        return events

    def _set_aside(self, _events: list[SourceEvent]) -> None:
        """Deal with the partitions that cannot be read on."""
        gathering = self._gathering
        for (topic, partition), offset in gathering.lost.items():
            self.drop(topic, partition)
            self._lost[topic, partition] = offset
        gathering.lost.clear()
        for place, error in gathering.failed.items():
            # What cannot be read must not be passed over: ask for it again.
            if error.code() not in OFFSETS_LOST:
                self._troubles.refused(unavailable(error))
            if (position := self._all_positions().get(place)) is not None:
                self.seek(*place, position)
        gathering.failed.clear()
        for error in gathering.remarks:
            self._troubles.heard(error)
        gathering.remarks.clear()

    def _passed_over(self, events: list[SourceEvent]) -> None:
        """Messages of batches that cannot be unpacked, once it is known where these end."""
        found, searches = self._gathering, self._searches
        undecodable, found.undecodable = found.undecodable, {}
        for place, begin in undecodable.items():
            position = self._positions[place]
            try:
                self.drop(*place)
            finally:
                searches.begin(place, position, begin)
        answers, found.answers = found.answers, {}
        for place, begin_there in answers.items():
            searches.answered(place, found.asked.pop(place), begin_there)
        for place, search in searches.going_on():
            if place in found.asked:
                continue
            end = partial(self._admin.end, *place)
            try:
                offset = search.read_next(self._consumer, place, end)
            except Unavailable as problem:
                self._troubles.refused(problem)
                continue
            if offset is not None:
                found.asked[place] = offset
        for place in searches.found():
            event, behind = searches.taken(place)
            events.append(event)
            if behind is not None:
                self.seek(*place, behind)

    def _gone(self, events: list[SourceEvent]) -> None:
        """Partitions that cannot be read where they were sought; they wait for another seek."""
        for (topic, partition), offset in list(self._lost.items()):
            try:
                low = self._admin.start(topic, partition)
            except Unavailable as problem:
                self._troubles.refused(problem)
                continue
            del self._lost[topic, partition]
            events.append(OffsetGone(topic, partition, offset, low))

    # ------------------------------------------------------------------------------- callbacks

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([])  # nothing is read before its seek
        places = _places(partitions)
        self._owned.update(places)
        if places:
            self._rebalances.append(Assigned(places))

    def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = _places(partitions)
        read = [place for place in places if self._forget_reading(place)]
        consumer.incremental_unassign([TopicPartition(*place) for place in read])
        self._owned.difference_update(places)
        for place in places:
            self._lost.pop(place, None)
            self._paused.pop(place, None)
        if places:
            self._rebalances.append(Revoked(places))

    # --------------------------------------------------------------------------------- offsets

    def lags(self) -> dict[Place, int]:
        """By the high watermarks of the last answers to fetches; what is open counts too.

        Of a paused partition nothing is fetched: as many as when it was paused, at least.
        """
        positions = self._all_positions()
        read = {
            place: _lag(self._consumer, place, position) for place, position in positions.items()
        }
        return self._paused | read

    def _all_positions(self) -> dict[Place, int]:
        """Those of partitions that wait behind a batch that cannot be unpacked, too."""
        return self._searches.positions() | self._positions

    def confirm_ends(self, ends: Mapping[Place, int]) -> set[Place]:
        """Where the last stable offset is this one (or below); asks the leaders, together."""
        found = self._admin.offsets_of.known(ends, END)
        return {place for place, end in found.items() if end <= ends[place]}

    def hint(self, positions: Mapping[Place, int]) -> None:
        """Commit what is still ours; nothing outside of a group."""
        offsets = [
            TopicPartition(topic, partition, offset)
            for (topic, partition), offset in positions.items()
            if (topic, partition) in self._owned
        ]
        if not offsets:
            return
        try:
            with translated():
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except Unavailable:
            return  # a lag figure: the next hint will do

    def close(self) -> None:
        """Leave the group and free everything."""
        with translated():
            self._consumer.close()


def _places(partitions: list[TopicPartition]) -> tuple[Place, ...]:
    return tuple(sorted((Topic(one.topic), one.partition) for one in partitions))


def _lag(client: Consumer, place: Place, position: int) -> int:
    with translated():
        _low, high = client.get_watermark_offsets(TopicPartition(*place), cached=True)
    return max(0, high - position)
