"""Topics, partitions and offsets, asked of the brokers; safe for threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    TopicDescription,
)

from mars.adapters.kafka import asking
from mars.adapters.kafka.asking import Asker, go_on
from mars.adapters.kafka.config import admin_properties
from mars.adapters.kafka.errors import (
    UNKNOWN_TOPIC,
    kafka_error,
    refusal,
    translated,
)
from mars.adapters.kafka.names import Names, Place
from mars.adapters.kafka.offsets import BEGINNING, END, KafkaOffsets
from mars.core.errors import SettingsError, TopicRefused, Unavailable
from mars.core.portions import portions
from mars.core.settings import Settings
from mars.core.types import Topic
from mars.protocol.ports import TopicInfo

Answer = TypeVar("Answer")

MAKE_TIMEOUT_S = 30.0
"""Until all partitions of a new topic have a leader."""

MADE_AT_ONCE = 1_000
"""Partitions of topics that are made in one request: a controller refuses one that would make it
write more than 10,000 records."""

LOOK_AGAIN_S = 0.05
"""Between two looks at a new topic."""

DEAD_PARTITIONS = 4
"""References are few; several partitions spread them over brokers."""

COMPACTED = {
    "cleanup.policy": "compact",
    # Compaction leaves the newest segment alone, and it is all read back: keep it small, and
    # compact often. With the defaults (1 GiB, half of it dirty) that meant gigabytes.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": "60000",
}
DELETED_BY_AGE = {"cleanup.policy": "delete"}

QUERIES_PARTITIONS = 4
"""Answers are few; several partitions spread them over brokers."""

ANSWERS_KEPT_MS = 86_400_000
"""One day: an answer is fetched soon, and can be computed again."""

ANSWERS = {
    "cleanup.policy": "delete",
    "retention.ms": str(ANSWERS_KEPT_MS),
    # Only whole segments are deleted: small ones, so that old answers do go.
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(ANSWERS_KEPT_MS // 4),
}

INCIDENTS_KEPT_MS = 30 * 86_400_000
"""30 days: long enough for whoever asks in the next month what was wrong with a day."""

INCIDENTS = {
    # Compacted too: what is told twice is kept once.
    "cleanup.policy": "compact,delete",
    "retention.ms": str(INCIDENTS_KEPT_MS),
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(INCIDENTS_KEPT_MS // 30),
}


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """What lies in a topic: by partition its lowest offset, and its last stable one."""

    topic_id: str
    spans: Mapping[int, tuple[int, int]]


class KafkaTopicAdmin:
    """`TopicAdmin` on Kafka; safe for threads. One serves a whole process."""

    def __init__(self, settings: Settings, ask_within_s: float | None = None) -> None:
        self._ask_within_s = ask_within_s or asking.ASK_TIMEOUT_S
        self._names = Names(settings.namespace)
        self._copies = settings.kafka.replication_factor
        self._asker = Asker(AdminClient, admin_properties(settings, settings.member or "mars"))
        self.offsets_of = KafkaOffsets(settings, self._ask_within_s)

    # ----------------------------------------------------------------------------------- topics

    def describe(self, topic: Topic, stop: Callable[[], None] = go_on) -> TopicInfo | None:
        """The topic's id and size; None if there is no such topic. Raises TopicRefused."""
        found = self._description(topic, stop)
        return None if found is None else _info(found)

    def _description(
        self, topic: Topic, stop: Callable[[], None] = go_on
    ) -> TopicDescription | None:
        found = self._descriptions([topic], stop)[topic]
        if isinstance(found, TopicRefused):
            raise found
        return found

    def _descriptions(
        self, topics: Collection[Topic], stop: Callable[[], None] = go_on
    ) -> dict[Topic, TopicDescription | TopicRefused | None]:
        """Of all topics, in one request."""
        if not topics:
            return {}
        with translated():
            futures = self._asker.client.describe_topics(
                TopicCollection(list(topics)), request_timeout=self._ask_within_s
            )
            return {
                topic: _there(topic, partial(self._asker.answer, futures[topic], stop))
                for topic in topics
            }

    def infos(self, topics: Collection[Topic], stop: Callable[[], None]) -> dict[Topic, TopicInfo]:
        """Of those that are there and that Kafka tells of, in one request; `stop` as above."""
        found = self._descriptions(topics, stop)
        return {
            topic: _info(one) for topic, one in found.items() if isinstance(one, TopicDescription)
        }

    def ensure_internal(self, buckets: int) -> None:
        """Make what is missing; raises SettingsError if progress has another number of buckets."""
        names, new = self._names, partial(_new, copies=self._copies)
        found = self._ensure(
            new(names.progress, buckets, COMPACTED),
            new(names.state, buckets, COMPACTED),
            new(names.control, 1, COMPACTED),
            new(names.dead, DEAD_PARTITIONS, DELETED_BY_AGE),
            new(names.queries, QUERIES_PARTITIONS, ANSWERS),
            new(names.incidents, 1, INCIDENTS),
        )
        progress, *_others = [_granted(topic) for topic in found.values()]
        if progress.partitions != buckets:
            raise SettingsError(
                f"Topic {names.progress} has {progress.partitions} partitions, one for each "
                f"bucket, but cluster.buckets is {buckets}: set it to {progress.partitions}, or "
                "choose another namespace."
            )

    def ensure_output(self, topic: Topic, partitions: int) -> TopicInfo:
        """Make an output topic where it is missing; one that is there stays as it is.

        Raises TopicRefused.
        """
        return _granted(self.ensure_outputs([topic], partitions)[topic])

    def ensure_outputs(
        self, topics: Iterable[Topic], partitions: int
    ) -> dict[Topic, TopicInfo | TopicRefused]:
        """The same of many topics, in few requests; what Kafka refuses stands in its place."""
        new = partial(_new, copies=self._copies)
        return self._ensure(*(new(topic, partitions, DELETED_BY_AGE) for topic in topics))

    def _ensure(self, *wanted: NewTopic) -> dict[Topic, TopicInfo | TopicRefused]:
        """The topics as they are, those that are missing made and ready for use."""
        found = self._descriptions([Topic(new.topic) for new in wanted])
        missing = [new for new in wanted if found[Topic(new.topic)] is None]
        for some in portions(missing, (_partitions, MADE_AT_ONCE)):
            refused = self._create(some)
            made = [Topic(new.topic) for new in some if new.topic not in refused]
            found |= {**refused, **self._until_usable(made)}
        return {
            topic: there if isinstance(there, TopicRefused) else _info(there)
            for topic, there in found.items()
            if there is not None
        }

    def _until_usable(self, topics: Collection[Topic]) -> dict[Topic, TopicDescription]:
        """Wait until each partition of each has a leader. Raises TopicRefused."""
        deadline = time.monotonic() + MAKE_TIMEOUT_S
        usable: dict[Topic, TopicDescription] = {}
        waiting = list(topics)
        while True:
            for topic, found in self._descriptions(waiting).items():
                if isinstance(found, TopicRefused):
                    raise found
                if found is not None and all(one.leader is not None for one in found.partitions):
                    usable[topic] = found
            waiting = [topic for topic in topics if topic not in usable]
            if not waiting:
                return usable
            if time.monotonic() > deadline:
                raise Unavailable(
                    "kafka",
                    f"topic {waiting[0]} has partitions without a leader; check the brokers",
                )
            time.sleep(LOOK_AGAIN_S)

    def _create(self, topics: list[NewTopic]) -> dict[Topic, TopicRefused]:
        """Make them; those that Kafka refuses."""
        if not topics:
            return {}
        refused: dict[Topic, TopicRefused] = {}
        with translated():
            futures = self._asker.client.create_topics(
                topics, request_timeout=asking.ASK_TIMEOUT_S, operation_timeout=asking.ASK_TIMEOUT_S
            )
            for topic, future in futures.items():
                try:
                    self._asker.answer(future)
                except KafkaException as error:
                    problem = kafka_error(error)
                    # Somebody else was faster, which is as good.
                    if problem is not None and problem.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                        continue
                    if (no := refusal(topic, error)) is None:
                        raise
                    refused[Topic(topic)] = no
        return refused

    def compacted(self, topic: Topic) -> bool:
        """Whether compaction is among its policies; False for no topic. Raises TopicRefused."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        with translated():
            asked = self._asker.client.describe_configs(
                [resource], request_timeout=self._ask_within_s
            )
            found = _there(topic, partial(self._asker.answer, asked[resource]))
        if isinstance(found, TopicRefused):
            raise found
        return found is not None and "compact" in found["cleanup.policy"].value.split(",")

    # ---------------------------------------------------------------------------------- offsets

    def ends(self, topic: Topic) -> dict[int, int]:
        """The last stable offset per partition; nothing if there is no such topic."""
        return self._offsets(topic, END)

    def starts(self, topic: Topic) -> dict[int, int]:
        """The lowest available offset per partition; nothing if there is no such topic."""
        return self._offsets(topic, BEGINNING)

    def offsets_at(self, topic: Topic, timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a time, else the end; nothing if there is no such topic.

        Ends are asked first: rows that come before the next answer are of that time, or later.
        """
        ends = self.ends(topic)
        found = self._offsets(topic, timestamp_ms)
        return {
            partition: offset if offset >= 0 else ends.get(partition, 0)
            for partition, offset in found.items()
        }

    def bounds(self, topic: Topic) -> TopicBounds | None:
        """Lowest and last stable offsets of all partitions; None if there is no such topic."""
        found = self.describe(topic)
        if found is None:
            return None
        partitions = range(found.partitions)
        lows = self._ask(topic, partitions, BEGINNING)
        highs = self._ask(topic, partitions, END)
        return TopicBounds(found.topic_id, {each: (lows[each], highs[each]) for each in partitions})

    def ends_of(self, topic: Topic, partitions: Iterable[int]) -> dict[int, int]:
        """The last stable offsets of some partitions, in one request."""
        return self._ask(topic, list(partitions), END)

    def written_ends_of(self, topic: Topic, partitions: Iterable[int]) -> dict[int, int]:
        """The offsets behind their last records, committed or not, in one request."""
        return self._ask(topic, list(partitions), END, committed=False)

    def end(self, topic: Topic, partition: int) -> int:
        """The last stable offset of one partition."""
        return self._ask(topic, [partition], END)[partition]

    def start(self, topic: Topic, partition: int) -> int:
        """The lowest available offset of one partition."""
        return self._ask(topic, [partition], BEGINNING)[partition]

    def written_end(self, topic: Topic, partition: int) -> int:
        """The offset behind the last record of one partition, committed or not."""
        return self._ask(topic, [partition], END, committed=False)[partition]

    def stable_ends(self, places: Iterable[Place], stop: Callable[[], None]) -> dict[Place, int]:
        """The last stable offset of each place, in one request; without topics that are gone.

        `stop` is called again and again, and raises when nobody wants the answer any more.
        """
        return self._known(list(places), END, stop)

    def known_starts(self, places: Iterable[Place], stop: Callable[[], None]) -> dict[Place, int]:
        """The lowest available offset of each place, in the same way."""
        return self._known(list(places), BEGINNING, stop)

    def unsettled(self, places: Iterable[Place], stop: Callable[[], None]) -> dict[Place, int]:
        """Where some transaction is open, or hangs: the last stable offsets; `stop` as above."""
        written = self._known(list(places), END, stop, committed=False)
        stable = self._known(list(written), END, stop)
        open_ones = (place for place, end in written.items() if stable.get(place, end) < end)
        return {place: stable[place] for place in sorted(open_ones)}

    def _known(
        self,
        places: Collection[Place],
        time_ms: int,
        stop: Callable[[], None],
        *,
        committed: bool = True,
    ) -> dict[Place, int]:
        ask = partial(self.offsets_of.ask, time_ms=time_ms, committed=committed, stop=stop)
        try:
            return ask(places, patient=False)
        except Unavailable:
            # One that is gone spoils the answers of all others.
            topics = {topic for topic, _partition in places}
            there = {topic: found for topic in topics if (found := self.describe(topic, stop))}
            return ask([at for at in places if at[0] in there and at[1] < there[at[0]].partitions])

    def _offsets(self, topic: Topic, time_ms: int) -> dict[int, int]:
        found = self.describe(topic)
        return {} if found is None else self._ask(topic, range(found.partitions), time_ms)

    def _ask(
        self, topic: Topic, partitions: Iterable[int], time_ms: int, *, committed: bool = True
    ) -> dict[int, int]:
        places = [(topic, partition) for partition in partitions]
        found = self.offsets_of.ask(places, time_ms, committed=committed)
        return {partition: offset for (_topic, partition), offset in found.items()}


def _there(topic: Topic, answer: Callable[[], Answer]) -> Answer | TopicRefused | None:
    """What is told of a topic; None if there is no such topic."""
    try:
        return answer()
    except KafkaException as error:
        problem = kafka_error(error)
        if problem is not None and problem.code() in UNKNOWN_TOPIC:
            return None
        if (refused := refusal(topic, error)) is not None:
            return refused
        raise


def _new(topic: Topic, partitions: int, config: Mapping[str, str], copies: int) -> NewTopic:
    return NewTopic(topic, partitions, copies, config=dict(config))


def _partitions(topic: NewTopic) -> int:
    return topic.num_partitions


def _granted(found: TopicInfo | TopicRefused) -> TopicInfo:
    if isinstance(found, TopicRefused):
        raise found
    return found


def _info(found: TopicDescription) -> TopicInfo:
    return TopicInfo(str(found.topic_id), len(found.partitions))
