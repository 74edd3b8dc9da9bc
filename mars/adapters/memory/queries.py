"""Ad-hoc queries in memory: the twins of ZooKeeper's registry of them, and of Kafka's answers.

One `MemoryQueryShelf` holds the nodes; each `MemoryQueryRegistry` is one process's connection to
it. Safe for threads; `changed` runs in the thread that makes the change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names
from mars.adapters.kafka.read.answers import (
    PART,
    AnswerRecord,
    found,
    gone,
    parts_of,
    rows_of,
    size_of,
)
from mars.adapters.memory.broker import (
    MemoryBroker,
    MemoryProducer,
    ProducerFenced,
    StoredRecord,
    UnknownTopic,
)
from mars.adapters.memory.faults import Faults, fallible
from mars.core.errors import JobFailed, Unavailable
from mars.protocol.ports.queries import (
    Answer,
    AnswerPlace,
    AnswerSlot,
    QueryId,
    QueryRecord,
    Written,
    decode_query,
    encode_query,
)


@dataclass(slots=True)
class MemoryQueryShelf:
    """What is kept: queries with the versions of their nodes, and who watches."""

    queries: dict[QueryId, tuple[QueryRecord, int]] = field(default_factory=dict)
    watchers: list[Callable[[], None]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryQueryRegistry:
    """`QueryRegistry` in memory."""

    def __init__(self, shelf: MemoryQueryShelf | None = None) -> None:
        self.faults = Faults("zookeeper")
        self._shelf = shelf or MemoryQueryShelf()

    def connect(self) -> MemoryQueryRegistry:
        """Another process's connection to the same registry."""
        return MemoryQueryRegistry(self._shelf)

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def create(self, record: QueryRecord) -> bool:
        """False if the id exists."""
        with self._shelf.lock:
            if record.query.id in self._shelf.queries:
                return False
            self._shelf.queries[record.query.id] = (_kept(record), 0)
        self._tell()
        return True

    @fallible
    def all(self) -> list[QueryRecord]:
        """All that are kept."""
        with self._shelf.lock:
            return [record for record, _version in self._shelf.queries.values()]

    @fallible
    def get(self, query: QueryId) -> tuple[QueryRecord, int] | None:
        """A query and the registry's version of it."""
        with self._shelf.lock:
            return self._shelf.queries.get(query)

    @fallible
    def replace(self, record: QueryRecord, expected: int) -> bool:
        """Write a query if the registry's version still is `expected`; else False."""
        with self._shelf.lock:
            present = self._shelf.queries.get(record.query.id)
            if present is None or present[1] != expected:
                return False
            self._shelf.queries[record.query.id] = (_kept(record), expected + 1)
        self._tell()
        return True

    @fallible
    def delete(self, query: QueryId) -> bool:
        """False if there was none."""
        with self._shelf.lock:
            present = self._shelf.queries.pop(query, None)
        if present is not None:
            self._tell()
        return present is not None

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` now, and after any change of any query."""
        with self._shelf.lock:
            self._shelf.watchers.append(changed)
        changed()

    def _tell(self) -> None:
        with self._shelf.lock:
            watchers = list(self._shelf.watchers)
        for changed in watchers:
            changed()


def _kept(record: QueryRecord) -> QueryRecord:
    """What is read back: as the real one, a query goes through its JSON."""
    return decode_query(encode_query(record))


class MemoryQueryRows:
    """`QueryRows` in memory."""

    def __init__(self, broker: MemoryBroker, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        self._names = Names(namespace)

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def reserve(self, query: QueryId) -> AnswerSlot:
        """The first partition, and its end as of now."""
        topic = self._names.queries
        if topic not in self._broker.topics:
            raise Unavailable("kafka", f"there is no topic {topic}")
        return AnswerSlot(0, self._broker.partition(topic, 0).stable_end)

    @fallible
    def recover(self, query: QueryId, slot: AnswerSlot) -> Written | None:
        """The answer if it was committed."""
        self._producer(query)
        return self._found(query, slot)

    @fallible
    def write(self, answer: Answer, slot: AnswerSlot) -> Written:
        """Commit an answer, or find the one that was committed before."""
        producer = self._producer(answer.query)
        before = self._found(answer.query, slot)
        if before is not None:
            return before
        try:
            offsets = self._write(producer, answer, slot.partition)
            producer.commit()
        except UnknownTopic as error:
            producer.abort()
            raise JobFailed(f"topic {error} does not take a row: there is no such topic") from error
        except ProducerFenced as error:
            raise Unavailable("kafka", f"the producer was fenced ({error})") from error
        size = size_of(answer.rows)
        place = AnswerPlace(slot.partition, offsets[0], offsets[-1] + 1, len(answer.rows), size)
        return Written(place, answer.counts)

    @fallible
    def read(self, query: QueryId, place: AnswerPlace) -> list[bytes]:
        """The rows of an answer."""
        log = self._broker.partition(self._names.queries, place.partition)
        if log.start > place.first:
            raise gone(query)
        return rows_of(query, place, map(_record, log.committed(place.first, place.next)))

    def _producer(self, query: QueryId) -> MemoryProducer:
        return self._broker.producer(self._names.query_transactional_id(query))

    def _found(self, query: QueryId, slot: AnswerSlot) -> Written | None:
        log = self._broker.partition(self._names.queries, slot.partition)
        records = log.committed(slot.first, log.stable_end)
        return found(query, slot.partition, map(_record, records))

    def _write(self, producer: MemoryProducer, answer: Answer, partition: int) -> list[int]:
        key = answer.query.encode()
        offsets = [
            producer.produce(
                self._names.queries, partition, value, key=key, headers=((PART, part),)
            )
            for value, part in parts_of(answer)
        ]
        if answer.output is not None:
            for row in answer.output.rows:
                producer.produce(
                    answer.output.topic,
                    answer.output.partition,
                    row.value,
                    key=row.key,
                    headers=row.headers,
                )
        return offsets


def _record(record: StoredRecord) -> AnswerRecord:
    return AnswerRecord(record.offset, record.key, record.value, dict(record.headers).get(PART))
