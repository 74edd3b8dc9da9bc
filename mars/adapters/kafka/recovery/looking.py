"""Reads again what buckets have written: committed, or all of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import cast

from confluent_kafka import Message

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.names import Place
from mars.adapters.kafka.recovery.hanging import Ends, refuse_untold, told
from mars.adapters.kafka.recovery.restoring import Kept
from mars.adapters.kafka.source.slices import SliceReader
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import Bucket, Topic

VISIBLE_TIMEOUT_S = 30.0
"""Until what is committed can be read: markers are written after the answer to the commit."""

LOOK_AGAIN_S = 0.005
"""Between two looks at the end of a partition."""

TELL_AGAIN_S = 0.05
"""Between two looks whether those in front of a transaction have ended."""


@dataclass(frozen=True, slots=True)
class KafkaLook:
    """`Look` on Kafka; safe for threads, which read one after the other.

    `pause` waits so many seconds, and raises when nobody wants to look any more. `starts` and
    `ends` (stable ones) are those of partitions that were asked for at once.
    """

    admin: KafkaTopicAdmin
    shown_reader: SliceReader
    written_reader: SliceReader
    pause: Callable[[float], None] = time.sleep
    starts: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)

    @staticmethod
    def opened(settings: Settings, member: str, admin: KafkaTopicAdmin) -> KafkaLook:
        """With consumers of its own."""
        return KafkaLook(
            admin,
            SliceReader(settings, f"{member}-audit"),
            SliceReader(settings, f"{member}-restore", committed=False),
        )

    def begun(
        self,
        places: Collection[Place],
        stop: Callable[[], None],
        pause: Callable[[float], None],
    ) -> KafkaLook:
        """The same, with the same consumers, for somebody who may be told to stop.

        What lies at the ends of `places` is asked for once, for all that is looked for there.
        """
        starts = self.admin.known_starts(places, stop)
        return replace(self, pause=pause, starts=starts, ends=self.admin.stable_ends(starts, stop))

    def start(self, place: Place) -> int | None:
        """The lowest offset that is still there; None if there is no such partition."""
        topic, partition = place
        if place in self.starts:
            return self.starts[place]
        return self.admin.starts(topic).get(partition)

    def shown(self, place: Place, first: int, last: int) -> Iterator[Kept]:
        """What readers see between two offsets, inclusive; waits while it is hidden.

        Raises Unavailable while somebody's open transaction hides it.
        """
        end = min(last + 1, self._stable_end(place, last))
        for portion in self.shown_reader.read(*place, first, end):
            yield from map(_kept, portion)

    def _stable_end(self, place: Place, last: int) -> int:
        """The last stable offset, once it is behind `last` or nothing is hidden any more.

        A commit is answered before all its markers are written: for a moment rows are hidden.
        """
        if self.ends.get(place, -1) > last:
            return self.ends[place]
        deadline = time.monotonic() + VISIBLE_TIMEOUT_S
        while (end := self.admin.end(*place)) <= last:
            if self.admin.written_end(*place) <= end:
                return end
            if time.monotonic() > deadline:
                raise hidden(*place, end)
            self.pause(LOOK_AGAIN_S)
        return end

    def written(self, place: Place, first: int, last: int) -> Iterator[Kept]:
        """All that lies between two offsets, inclusive, committed or not."""
        end = min(last + 1, self.end(place))
        for portion in self.written_reader.read(*place, first, end):
            yield from map(_kept, portion)

    def end(self, place: Place) -> int:
        """The offset behind the last record, committed or not."""
        return self.admin.written_end(*place)

    def stable_end(self, place: Place) -> int:
        """The last stable offset."""
        return self.admin.end(*place)

    def told(
        self,
        ends: Ends,
        fronts: MutableMapping[Place, int],
        bucket: Bucket,
        stop: Callable[[], None],
        pause: Callable[[float], None],
    ) -> Ends:
        """Where the bucket's last transaction hangs; waits until those in front have ended.

        Raises Interrupted where they do not.
        """
        deadline = time.monotonic() + VISIBLE_TIMEOUT_S
        while ends.untold:
            if time.monotonic() > deadline:
                refuse_untold(ends.untold, bucket)
            pause(TELL_AGAIN_S)
            stable = self.admin.stable_ends(ends.untold, stop)
            ends = told(ends, stable, fronts, bucket, self)
        return ends

    def close(self) -> None:
        """Free the consumers."""
        self.shown_reader.close()
        self.written_reader.close()


def hidden(topic: Topic, partition: int, end: int) -> Unavailable:
    """Somebody's transaction stays open."""
    return Unavailable(
        "kafka",
        f"an open transaction hides {topic}[{partition}] from offset {end} on; it ends "
        "when its owner is back, or by its time-out (if it does not, kafka-transactions.sh "
        "find-hanging names it)",
    )


def _kept(message: Message) -> Kept:
    headers = cast(list[tuple[str, bytes]], message.headers() or [])
    return Kept(cast(int, message.offset()), message.key(), message.value(), headers)
