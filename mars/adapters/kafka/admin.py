"""Topics, partitions and offsets, asked of the brokers; safe for threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not marked so
    AdminClient,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from mars.adapters.kafka.config import Properties, admin_properties
from mars.adapters.kafka.errors import (
    NO_LEADER,
    REFUSALS,
    UNANSWERED,
    UNKNOWN_TOPIC,
    configured,
    kafka_error,
    raise_if_refused,
    translated,
)
from mars.adapters.kafka.names import Names
from mars.errors import SettingsError, Unavailable
from mars.ports import TopicInfo
from mars.settings import Settings
from mars.types import Topic

ASK_TIMEOUT_S = 10.0
"""For each question; a healthy broker needs milliseconds."""

MAKE_TIMEOUT_S = 30.0
"""Until all partitions of a new topic have a leader."""

LOOK_AGAIN_S = 0.05
"""Between two looks at a new topic."""

ASK_AGAIN_S = (0.05, 1.0)
"""Between two questions of where a partition ends: first, and at last, doubled each time."""

STOP_STEP_S = 0.5
"""Between two looks whether an answer is still wanted."""

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

CUT_OFF_S = 15.0
"""Without any answer; then a new client is tried, and after as long again another."""

LEADER_WAIT_S = 10.0
"""How long a partition may be without a leader that answers: it was made or has moved just now. The
some hundred of a cluster with 64 buckets took a busy broker six seconds."""

_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


def _go_on() -> None:
    """Of questions whose answer is wanted, however long it takes."""


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """What lies in a topic: by partition its lowest offset, and its last stable one."""

    topic_id: str
    spans: Mapping[int, tuple[int, int]]


class KafkaTopicAdmin:
    """`TopicAdmin` on Kafka."""

    def __init__(self, settings: Settings, ask_within_s: float = ASK_TIMEOUT_S) -> None:
        self._ask_within_s = ask_within_s
        self._names = Names(settings.namespace)
        self._copies = settings.kafka.replication_factor
        self._settings = settings
        self._refusals: list[KafkaError] = []
        self._client = self._connected()
        self._answered_s = time.monotonic()

    def _connected(self) -> AdminClient:
        named: Properties = {
            **admin_properties(self._settings, self._settings.member or "mars"),
            "error_cb": self._told,
        }
        with configured():
            return AdminClient(named)

    def _told(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self._refusals.append(error)

    def _answer(self, future: Future[Any], stop: Callable[[], None] = _go_on) -> Any:
        """The answer. A client that has had none for long is replaced, see `deafness`."""
        try:
            answer = _answer(future, stop)
        except (KafkaException, FutureTimeoutError) as error:
            problem = kafka_error(error)
            if problem is None or problem.code() in UNANSWERED:
                self._raise_if_kept_out(error)
                self._connect_anew_if_cut_off()
            raise
        self._answered_s = time.monotonic()
        return answer

    def _raise_if_kept_out(self, error: Exception) -> None:
        """A question hears of no answer only, where brokers refuse the credentials."""
        self._refusals.clear()
        self._client.poll(0)
        for refusal in self._refusals:
            raise KafkaException(refusal) from error

    def _connect_anew_if_cut_off(self) -> None:
        now_s = time.monotonic()
        if now_s - self._answered_s > CUT_OFF_S:
            self._client, self._answered_s = self._connected(), now_s

    # ----------------------------------------------------------------------------------- topics

    def describe(self, topic: Topic, stop: Callable[[], None] = _go_on) -> TopicInfo | None:
        """The topic's id and size; None if there is no such topic. Raises TopicRefused."""
        found = self._description(topic, stop)
        return None if found is None else _info(found)

    def _description(
        self, topic: Topic, stop: Callable[[], None] = _go_on
    ) -> TopicDescription | None:
        with translated():
            futures = self._client.describe_topics(
                TopicCollection([topic]), request_timeout=self._ask_within_s
            )
            try:
                return cast(TopicDescription, self._answer(futures[topic], stop))
            except KafkaException as error:
                problem = kafka_error(error)
                if problem is not None and problem.code() in UNKNOWN_TOPIC:
                    return None
                raise_if_refused(topic, error)
                raise

    def ensure_internal(self, buckets: int) -> None:
        """Make what is missing; raises SettingsError if progress has another number of buckets."""
        names = self._names
        progress, *_others = self._ensure(
            self._new(names.progress, buckets, COMPACTED),
            self._new(names.state, buckets, COMPACTED),
            self._new(names.control, 1, COMPACTED),
            self._new(names.dead, DEAD_PARTITIONS, DELETED_BY_AGE),
            self._new(names.queries, QUERIES_PARTITIONS, ANSWERS),
            self._new(names.incidents, 1, INCIDENTS),
        )
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
        (output,) = self._ensure(self._new(topic, partitions, DELETED_BY_AGE))
        return output

    def _new(self, topic: Topic, partitions: int, config: Mapping[str, str]) -> NewTopic:
        return NewTopic(topic, partitions, self._copies, config=dict(config))

    def _ensure(self, *wanted: NewTopic) -> list[TopicInfo]:
        """The topics as they are, those that are missing made and ready for use."""
        found = {new.topic: self.describe(Topic(new.topic)) for new in wanted}
        missing = [new for new in wanted if found[new.topic] is None]
        if missing:
            self._create(missing)
        return [info or self._until_usable(Topic(name)) for name, info in found.items()]

    def _until_usable(self, topic: Topic) -> TopicInfo:
        """Wait until each partition has a leader."""
        deadline = time.monotonic() + MAKE_TIMEOUT_S
        while True:
            found = self._description(topic)
            if found is not None and all(one.leader is not None for one in found.partitions):
                return _info(found)
            if time.monotonic() > deadline:
                raise Unavailable(
                    "kafka", f"topic {topic} has partitions without a leader, check the brokers"
                )
            time.sleep(LOOK_AGAIN_S)

    def _create(self, topics: list[NewTopic]) -> None:
        with translated():
            futures = self._client.create_topics(
                topics, request_timeout=ASK_TIMEOUT_S, operation_timeout=ASK_TIMEOUT_S
            )
            for topic, future in futures.items():
                try:
                    self._answer(future)
                except KafkaException as error:
                    problem = kafka_error(error)
                    # Somebody else was faster, which is as good.
                    if problem is None or problem.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise_if_refused(topic, error)
                        raise

    # ---------------------------------------------------------------------------------- offsets

    def ends(self, topic: Topic) -> dict[int, int]:
        """The last stable offset per partition; nothing if there is no such topic."""
        return self._offsets(topic, _LATEST)

    def starts(self, topic: Topic) -> dict[int, int]:
        """The lowest available offset per partition; nothing if there is no such topic."""
        return self._offsets(topic, _EARLIEST)

    def offsets_at(self, topic: Topic, timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a time, else the end; nothing if there is no such topic."""
        found = self._offsets(topic, OffsetSpec.for_timestamp(timestamp_ms))
        if all(offset >= 0 for offset in found.values()):
            return found
        ends = self.ends(topic)
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
        lows = self._ask(topic, partitions, _EARLIEST)
        highs = self._ask(topic, partitions, _LATEST)
        return TopicBounds(found.topic_id, {each: (lows[each], highs[each]) for each in partitions})

    def ends_of(self, topic: Topic, partitions: Iterable[int]) -> dict[int, int]:
        """The last stable offsets of some partitions, in one request."""
        return self._ask(topic, list(partitions), _LATEST)

    def written_ends_of(self, topic: Topic, partitions: Iterable[int]) -> dict[int, int]:
        """The offsets behind their last records, committed or not, in one request."""
        return self._ask(topic, list(partitions), _LATEST, IsolationLevel.READ_UNCOMMITTED)

    def end(self, topic: Topic, partition: int) -> int:
        """The last stable offset of one partition."""
        return self._ask(topic, [partition], _LATEST)[partition]

    def start(self, topic: Topic, partition: int) -> int:
        """The lowest available offset of one partition."""
        return self._ask(topic, [partition], _EARLIEST)[partition]

    def written_end(self, topic: Topic, partition: int) -> int:
        """The offset behind the last record of one partition, committed or not."""
        return self._ask(topic, [partition], _LATEST, IsolationLevel.READ_UNCOMMITTED)[partition]

    def stable_ends(
        self, places: Iterable[tuple[Topic, int]], stop: Callable[[], None]
    ) -> dict[tuple[Topic, int], int]:
        """The last stable offset of each place, in one request; without topics that are gone.

        `stop` is called again and again, and raises when nobody wants the answer any more.
        """
        return self._known(list(places), _LATEST, IsolationLevel.READ_COMMITTED, stop)

    def known_starts(
        self, places: Iterable[tuple[Topic, int]], stop: Callable[[], None]
    ) -> dict[tuple[Topic, int], int]:
        """The lowest available offset of each place, in the same way."""
        return self._known(list(places), _EARLIEST, IsolationLevel.READ_COMMITTED, stop)

    def unsettled(
        self, places: Iterable[tuple[Topic, int]], stop: Callable[[], None]
    ) -> list[tuple[Topic, int]]:
        """Those of the places where some transaction is open, or hangs; `stop` as above."""
        written = self._known(list(places), _LATEST, IsolationLevel.READ_UNCOMMITTED, stop)
        stable = self._known(list(written), _LATEST, IsolationLevel.READ_COMMITTED, stop)
        return sorted(place for place, end in written.items() if stable.get(place, end) < end)

    def _known(
        self,
        places: list[tuple[Topic, int]],
        which: OffsetSpec,
        isolation: IsolationLevel,
        stop: Callable[[], None],
    ) -> dict[tuple[Topic, int], int]:
        try:
            return self._ask_places(places, which, isolation, stop, patient=False)
        except Unavailable:
            # One that is gone spoils the answers of all others.
            topics = {topic for topic, _partition in places}
            there = {topic: found for topic in topics if (found := self.describe(topic, stop))}
            left = [at for at in places if at[0] in there and at[1] < there[at[0]].partitions]
            return self._ask_places(left, which, isolation, stop)

    def _offsets(self, topic: Topic, which: OffsetSpec) -> dict[int, int]:
        found = self.describe(topic)
        return {} if found is None else self._ask(topic, range(found.partitions), which)

    def _ask(
        self,
        topic: Topic,
        partitions: range | list[int],
        which: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, int]:
        places = [(topic, partition) for partition in partitions]
        found = self._ask_places(places, which, isolation)
        return {partition: offset for (_topic, partition), offset in found.items()}

    def _ask_places(
        self,
        places: list[tuple[Topic, int]],
        which: OffsetSpec,
        isolation: IsolationLevel,
        stop: Callable[[], None] = _go_on,
        *,
        patient: bool = True,
    ) -> dict[tuple[Topic, int], int]:
        if not places:
            return {}
        deadline = time.monotonic() + (LEADER_WAIT_S if patient else 0.0)
        wait_s, longest_s = ASK_AGAIN_S
        with translated():
            while True:
                try:
                    return self._ask_once(places, which, isolation, stop)
                except KafkaException as error:
                    problem = kafka_error(error)
                    moved = problem is not None and problem.code() in NO_LEADER
                    if not moved or time.monotonic() > deadline:
                        raise
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_s)
                # Told that a partition is led by another broker, the client keeps asking the one
                # it knows for minutes. All topics: asking for one may make it.
                self._client.list_topics(timeout=self._ask_within_s)

    def _ask_once(
        self,
        places: list[tuple[Topic, int]],
        which: OffsetSpec,
        isolation: IsolationLevel,
        stop: Callable[[], None],
    ) -> dict[tuple[Topic, int], int]:
        futures = self._client.list_offsets(
            {TopicPartition(topic, partition): which for topic, partition in places},
            isolation_level=isolation,
            request_timeout=self._ask_within_s,
        )
        return {
            (Topic(place.topic), place.partition): self._answer(future, stop).offset
            for place, future in futures.items()
        }


def _info(found: TopicDescription) -> TopicInfo:
    return TopicInfo(str(found.topic_id), len(found.partitions))


def _answer(future: Future[Any], stop: Callable[[], None] = _go_on) -> Any:
    """The client answers or fails by itself; the second time-out is for one that does neither."""
    deadline = time.monotonic() + 2 * ASK_TIMEOUT_S
    while not wait([future], STOP_STEP_S).done and time.monotonic() < deadline:
        stop()
    return future.result(timeout=0)
