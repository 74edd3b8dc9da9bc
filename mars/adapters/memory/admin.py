"""Topics, partitions and offsets in memory: the twin of Kafka's."""

from __future__ import annotations

from collections.abc import Iterable

from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.faults import Faults, fallible
from mars.core.errors import SettingsError, TopicRefused
from mars.core.types import Topic
from mars.protocol.ports import TopicInfo


class MemoryTopicAdmin:
    """`TopicAdmin` in memory."""

    def __init__(self, broker: MemoryBroker, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        self._names = Names(namespace)

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def describe(self, topic: Topic) -> TopicInfo | None:
        """None if there is no such topic."""
        found = self._broker.topics.get(topic)
        return None if found is None else TopicInfo(found.topic_id, len(found.partitions))

    @fallible
    def ensure_internal(self, buckets: int) -> None:
        """Make what is missing; raises SettingsError if progress has another number of buckets."""
        self._broker.create_topic(self._names.control, 1)
        self._broker.create_topic(self._names.dead, 1)
        self._broker.create_topic(self._names.queries, 1)
        self._broker.create_topic(self._names.incidents, 1)
        self._broker.create_topic(self._names.state, buckets)
        progress = self._broker.create_topic(self._names.progress, buckets)
        if len(progress.partitions) != buckets:
            raise SettingsError(
                f"Topic {self._names.progress} has {len(progress.partitions)} partitions, but "
                f"cluster.buckets is {buckets}."
            )

    @fallible
    def ensure_output(self, topic: Topic, partitions: int) -> TopicInfo:
        """Make an output topic where it is missing."""
        made = self._broker.create_topic(topic, partitions)
        return TopicInfo(made.topic_id, len(made.partitions))

    def ensure_outputs(
        self, topics: Iterable[Topic], partitions: int
    ) -> dict[Topic, TopicInfo | TopicRefused]:
        """The same of many topics; none is refused here."""
        return {topic: self.ensure_output(topic, partitions) for topic in topics}

    @fallible
    def compacted(self, topic: Topic) -> bool:
        """Of the topics here those of Mars itself are."""
        return topic in {self._names.control, self._names.progress, self._names.state}

    @fallible
    def ends(self, topic: Topic) -> dict[int, int]:
        """The last stable offset per partition; nothing if there is no such topic."""
        return self._per_partition(topic, "stable_end")

    @fallible
    def starts(self, topic: Topic) -> dict[int, int]:
        """The lowest available offset per partition; nothing if there is no such topic."""
        return self._per_partition(topic, "start")

    @fallible
    def offsets_at(self, topic: Topic, timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a time, else the end; nothing if there is no such topic."""
        found = self._broker.topics.get(topic)
        return {
            number: next(
                (one.offset for one in log.records if one.timestamp_ms >= timestamp_ms),
                log.stable_end,
            )
            for number, log in enumerate(found.partitions if found else ())
        }

    def _per_partition(self, topic: Topic, what: str) -> dict[int, int]:
        found = self._broker.topics.get(topic)
        return {
            number: getattr(log, what)
            for number, log in enumerate(found.partitions if found else ())
        }
