"""Transactions that hang: records of a bucket's producer id whose marker never comes.

The twin loses markers when told to. A real broker gets the records by hand, over a plain socket: if
it does not verify that the coordinator knows of a transaction, it takes them, and nobody ends them.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from mars.adapters.kafka.names import Names, Place
from mars.adapters.kafka.sink.transaction import (
    SETTLING_KEY,
    BucketTransaction,
    WrittenSpan,
    settling_headers,
)
from mars.adapters.kafka.wire import encode_progress, progress_key
from mars.adapters.memory.broker import Outcome
from mars.adapters.memory.sink import MemorySink
from mars.core.types import Topic
from mars.local.network import HOST
from mars.protocol.ports import ProgressRecord
from tests.contracts.kafka_servers import STEP_S, Cluster, KafkaCluster, MemoryCluster
from tests.contracts.transactions import BUCKET
from tests.contracts.waiting import eventually

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Properties of a broker that takes records of transactions that nobody began."""

PRODUCE, INIT_PRODUCER_ID = 0, 22
TRANSACTIONAL = 0x10
COORDINATOR_NOT_READY = frozenset({14, 15, 16, 51})
LEADER_NOT_READY = frozenset({3, 5, 6})
TRANSACTION_TIMEOUT_MS = 60_000
CRC32C_POLYNOMIAL = 0x82F63B78


@dataclass(frozen=True)
class Row:
    """One record that hangs."""

    value: bytes
    key: bytes | None = b"key"
    headers: Sequence[tuple[str, bytes]] = ()


class Hang(Protocol):
    """Leaves records of the bucket BUCKET hanging in a partition."""

    def __call__(self, topic: Topic, partition: int, rows: Sequence[Row]) -> None: ...


@dataclass
class MemoryHang:
    cluster: MemoryCluster

    def __call__(self, topic: Topic, partition: int, rows: Sequence[Row]) -> None:
        producer = self.cluster.broker.producer(self.cluster.names.transactional_id(BUCKET))
        for row in rows:
            producer.produce(topic, partition, row.value, key=row.key, headers=row.headers)
        self.cluster.broker.lose_markers()
        producer.abort()


@dataclass
class KafkaHang:
    names: Names
    port: int

    def __call__(self, topic: Topic, partition: int, rows: Sequence[Row]) -> None:
        transactional_id = self.names.transactional_id(BUCKET)
        with socket.create_connection((HOST, self.port), STEP_S) as connection:
            producer, epoch = eventually(lambda: _init(connection, transactional_id))
            batch = _batch(producer, epoch, rows)
            place = _text(topic) + struct.pack(">ii", 1, partition)
            body = _text(transactional_id) + struct.pack(">hii", -1, 10_000, 1) + place
            request = body + struct.pack(">i", len(batch)) + batch
            eventually(lambda: _produced(connection, topic, request))


def hang_of(cluster: Cluster) -> Hang:
    """How to do it there."""
    if isinstance(cluster, MemoryCluster):
        return MemoryHang(cluster)
    assert isinstance(cluster, KafkaCluster)
    return KafkaHang(cluster.names, int(cluster.bootstrap.rpartition(":")[2]))


def lose_settling_aborts(
    cluster: Cluster, hang: Hang, times: int, patch: pytest.MonkeyPatch
) -> None:
    """The next aborts that are to end what hangs have no markers: their records hang, too."""
    if isinstance(cluster, MemoryCluster):
        cluster.broker.lose_markers(times=times, outcome=Outcome.ABORTED)
        return
    assert isinstance(cluster, KafkaCluster)
    admin = cluster.admin()
    settle, left = BucketTransaction.settle, itertools.count(times, -1)

    def settling(self: BucketTransaction, places: Iterable[Place]) -> dict[Place, WrittenSpan]:
        if next(left) <= 0:
            return settle(self, places)
        written = {}
        for topic, partition in places:
            hang(topic, partition, [Row(b"", SETTLING_KEY, settling_headers(BUCKET))])
            # That is the last record there: in these tests nobody else writes.
            offset = admin.written_end(topic, partition) - 1
            written[topic, partition] = WrittenSpan(offset, offset)
        return written

    patch.setattr(BucketTransaction, "settle", settling)


def after_settling(cluster: Cluster, what: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Something happens right behind each abort that is to end what hangs."""
    memory = isinstance(cluster, MemoryCluster)
    kind, name = (MemorySink, "_settle") if memory else (BucketTransaction, "settle")
    settle = getattr(kind, name)

    def settling(self: object, *arguments: object) -> object:
        written = settle(self, *arguments)
        what()
        return written

    patch.setattr(kind, name, settling)


def lose_drafts_abort(
    cluster: Cluster, hang: Hang, output: Topic, rows: Sequence[Row], patch: pytest.MonkeyPatch
) -> None:
    """The abort of a draft with these rows, all in one partition, has no marker there.

    A real broker writes the marker, and then has the rows once more, which hang.
    """
    if isinstance(cluster, MemoryCluster):
        cluster.broker.lose_markers(outcome=Outcome.ABORTED)
        return
    abort, drafted = BucketTransaction.abort, [rows]

    def aborting(self: BucketTransaction) -> None:
        abort(self)
        if drafted:
            hang(output, 0, drafted.pop())

    patch.setattr(BucketTransaction, "abort", aborting)


def lose_progress_to_a_claim(
    cluster: Cluster, hang: Hang, claim: bytes, patch: pytest.MonkeyPatch
) -> None:
    """The next commit's progress hangs, and falls with a claim before its owner looks.

    A real broker has the progress written by hand, right behind the commit.
    """

    def break_off_a_claim() -> None:
        patch.undo()
        newer = cluster.writer(cluster.names.transactional_id(BUCKET))
        newer.write(cluster.names.progress, BUCKET, [claim])
        newer.abort()

    if isinstance(cluster, MemoryCluster):
        progress = cluster.broker.partition(cluster.names.progress, BUCKET)
        cluster.broker.lose_markers(lambda each: each is progress)
        made = MemorySink._slot

        def making(self: MemorySink, *arguments: Any) -> Any:
            break_off_a_claim()
            return made(self, *arguments)

        patch.setattr(MemorySink, "_slot", making)
        return
    assert isinstance(cluster, KafkaCluster)
    admin, commit, rows = cluster.admin(), BucketTransaction.commit, list[Row]()

    def writing(
        self: BucketTransaction, topic: Topic, records: Sequence[ProgressRecord]
    ) -> list[int]:
        rows.extend(Row(encode_progress(record), progress_key(record)) for record in records)
        end = admin.written_end(topic, BUCKET)
        return list(range(end, end + len(rows)))

    def committing(self: BucketTransaction) -> None:
        commit(self)
        hang(cluster.names.progress, BUCKET, rows)
        break_off_a_claim()

    patch.setattr(BucketTransaction, "write_progress", writing)
    patch.setattr(BucketTransaction, "commit", committing)


def _init(connection: socket.socket, transactional_id: str) -> tuple[int, int] | None:
    """Producer id and epoch; None while the coordinator is not ready."""
    body = _text(transactional_id) + struct.pack(">i", TRANSACTION_TIMEOUT_MS)
    answer = _ask(connection, INIT_PRODUCER_ID, 1, body)
    error, producer, epoch = struct.unpack_from(">hqh", answer, 4)
    assert error == 0 or error in COORDINATOR_NOT_READY, f"Kafka's error {error}"
    return (producer, epoch) if error == 0 else None


def _produced(connection: socket.socket, topic: Topic, request: bytes) -> bool:
    """Whether the broker has the records; not while a new partition has no leader."""
    answer = _ask(connection, PRODUCE, 3, request)
    (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
    assert error == 0 or error in LEADER_NOT_READY, f"Kafka's error {error}"
    return bool(error == 0)


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    """One request and the body of its answer."""
    request = struct.pack(">hhi", api, version, 1) + _text("hang") + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, size)[4:]


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        assert part, "the broker has closed the connection"
        found += part
    return found


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _batch(producer: int, epoch: int, rows: Sequence[Row]) -> bytes:
    """A record batch, format 2 (KIP-98)."""
    now_ms = time.time_ns() // 1_000_000
    last = len(rows) - 1
    fields = (TRANSACTIONAL, last, now_ms, now_ms, producer, epoch, 0, len(rows))
    checked = struct.pack(">hiqqqhii", *fields)
    checked += b"".join(itertools.starmap(_record, enumerate(rows)))
    head = struct.pack(">ibI", -1, 2, _crc32c(checked))
    return struct.pack(">qi", 0, len(head) + len(checked)) + head + checked


def _record(number: int, row: Row) -> bytes:
    headers = b"".join(_bytes(key.encode()) + _bytes(value) for key, value in row.headers)
    body = b"\0" + _varint(0) + _varint(number) + _bytes(row.key) + _bytes(row.value)
    body += _varint(len(row.headers)) + headers
    return _varint(len(body)) + body


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Zigzag: the sign is the lowest bit."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _bit in range(8):
            crc = crc >> 1 ^ (CRC32C_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
