"""What the records of `mars.progress` must be, whatever happened: invariants I2 and I3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.wire import decode_progress
from mars.core.settings import KafkaSettings, Settings
from mars.core.types import Topic
from mars.protocol.ports import Claim, Ledger, Progress, ProgressRecord

TOPIC = "mars.progress"
READ_S = 60.0
"""For all of the topic; it holds some thousand records."""

Place = tuple[int, int]
"""Bucket and offset of a record."""

GROWING = tuple(name for name in Ledger.__dataclass_fields__ if name != "late")
"""What a ledger never takes back; a late row may be counted yet."""


def progress_records(bootstrap: str) -> dict[int, list[ProgressRecord]]:
    """The committed records of each bucket, in order."""
    found = _records_at(bootstrap)
    return {bucket: list(records.values()) for bucket, records in found.items()}


def _records_at(bootstrap: str) -> dict[int, dict[int, ProgressRecord]]:
    """The same by their offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test-progress",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        found: dict[int, dict[int, ProgressRecord]] = {}
        for bucket, offset, record in _read(consumer):
            found.setdefault(bucket, {})[offset] = record
        return found
    finally:
        consumer.close()


def _read(consumer: Consumer) -> Iterator[tuple[int, int, ProgressRecord]]:
    partitions = consumer.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(READ_S)
        assert message is not None, f"{TOPIC} could not be read to its end"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition() or 0)
            continue
        place = f"{TOPIC}[{message.partition()}] offset {message.offset()}"
        record = decode_progress(message.value(), place)
        yield message.partition() or 0, message.offset() or 0, record


def assert_progress_only_goes_forward(bootstrap: str) -> None:
    """Emit numbers step by one; C, M, L never go back; L <= M; each record balances."""
    for records in _records_at(bootstrap).values():
        last: dict[tuple[str, int], tuple[int, Progress]] = {}
        for offset, record in records.items():
            if isinstance(record, Claim):
                continue
            _check_one(record)
            first, older = last.get((record.task, record.version), (0, None))
            if older is not None and not record.deleted and not older.deleted:
                _check_step(older, record, _compacted(records, first, offset))
            last[record.task, record.version] = offset, record


def _compacted(records: Mapping[int, ProgressRecord], first: int, last: int) -> int:
    """How many records Kafka may have removed between two: after a minute older ones are.

    Of the offsets without a record, one for each that is there is the end of its transaction.
    """
    there = sum(first < offset < last for offset in records)
    return max(0, last - first - 1 - there - (there + 1))


def saved_through(bootstrap: str, task: str) -> dict[str, int]:
    """The lowest offset per lane through which all buckets of a task have saved their panes.

    Nothing as long as one of them has not.
    """
    newest = {
        bucket: [one for one in records if isinstance(one, Progress) and one.task == task][-1:]
        for bucket, records in progress_records(bootstrap).items()
    }
    saved = [
        each[0].snapshot.merged if each and each[0].snapshot else {} for each in newest.values()
    ]
    lanes = {lane for one in saved for lane in one}
    lowest = {str(lane): min(one.get(lane, 0) for one in saved) for lane in lanes}
    return lowest if all(lowest.values()) else {}


def claims(bootstrap: str) -> set[Place]:
    """All claims that are there; those of the last minute are."""
    return {
        (bucket, offset)
        for bucket, records in _records_at(bootstrap).items()
        for offset, record in records.items()
        if isinstance(record, Claim)
    }


def most_claimed(claimed: Iterable[Place]) -> int:
    """How often the bucket that was claimed most was claimed."""
    return max(Counter(bucket for bucket, _offset in claimed).values(), default=0)


def open_transactions(bootstrap: str) -> list[int]:
    """The buckets whose progress nobody sees yet: something in their partitions is undecided."""
    admin = KafkaTopicAdmin(Settings(kafka=KafkaSettings(bootstrap=bootstrap)))
    found = admin.describe(Topic(TOPIC))
    assert found is not None
    written = admin.written_ends_of(Topic(TOPIC), range(found.partitions))
    return [bucket for bucket, end in written.items() if admin.end(Topic(TOPIC), bucket) < end]


def _check_one(record: Progress) -> None:
    ledger = record.ledger
    fates = ledger.counted + ledger.filtered + ledger.bad + ledger.future + ledger.late
    assert ledger.read == fates, f"I2: {record}"
    assert 0 <= ledger.emitted <= ledger.counted, f"I2: {record}"
    for lane, offset in record.merged.items():
        assert record.needed.get(lane, 0) <= offset, f"I3: L <= M of lane {lane}: {record}"


def _check_step(older: Progress, newer: Progress, compacted: int) -> None:
    both = f"{older} then {newer}"
    assert 0 < newer.emit - older.emit <= 1 + compacted, f"I3: emit numbers: {both}"
    assert newer.assignment_epoch >= older.assignment_epoch, f"I3: owners: {both}"
    for name in GROWING:
        assert getattr(older.ledger, name) <= getattr(newer.ledger, name), f"I2: {name}: {both}"
    if older.closed_ms is not None:
        assert newer.closed_ms is not None, f"I3: C: {both}"
        assert newer.closed_ms >= older.closed_ms, f"I3: C: {both}"
    for lane, offset in older.merged.items():
        assert newer.merged.get(lane, -1) >= offset, f"I3: M of lane {lane}: {both}"
    for lane, offset in older.needed.items():
        assert newer.needed.get(lane, -1) >= offset, f"I3: L of lane {lane}: {both}"
    if older.snapshot is not None and newer.snapshot is not None:
        for lane, offset in older.snapshot.merged.items():
            assert newer.snapshot.merged.get(lane, -1) >= offset, f"I3: S of lane {lane}: {both}"
