"""Messages that are small on the wire and large once they are unpacked or taken apart.

Every one of them holds bad rows only, whose number is known: so it also shows that none is lost.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Producer

from mars.engine.decode.limits import MESSAGE_BYTES_MAX

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SENT_S = 300.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Poison:
    """A message, the codec that it is sent with, and how many bad rows it has."""

    format: str
    codec: str
    value: bytes
    rows: int


def many_rows(format: str, rows: int) -> bytes:
    """A message of so many rows that are none."""
    match format:
        case "json":
            return b"[" + b",".join([b"1"] * rows) + b"]"
        case "ndjson" | "csv":
            return b"\n".join([b"1"] * rows)
        case "arrow":
            return _without_times(rows)
        case _:
            raise ValueError(format)


def rows_of(message: bytes) -> int:
    """How many rows a message of JSON has, if it is one of `many_rows` or has one."""
    return message.count(b",") + 1 if message.startswith(b"[1,") else 1


def _without_times(rows: int) -> bytes:
    table = pa.table({"timestamp": pa.nulls(rows, pa.int64())})
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def poisons(format: str, rows: int, size: int) -> Iterator[Poison]:
    """With each codec a message of so many rows, and one of so many bytes that is none."""
    if size <= MESSAGE_BYTES_MAX:
        raise ValueError("it would be looked at")
    for codec in CODECS:
        yield Poison(format, codec, many_rows(format, rows), rows)
        yield Poison(format, codec, bytes(size), 1)


class PoisonSender:
    """Sends each message in a batch of its own, with its codec."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, Producer] = {}

    def send(self, topic: str, partition: int, one: Poison) -> None:
        """The broker has it when this returns."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        producer = self._producer(one.codec)
        producer.produce(topic, one.value, partition=partition, on_delivery=delivered)
        assert producer.flush(SENT_S) == 0, "the broker did not take it"
        assert not failures, failures

    def _producer(self, codec: str) -> Producer:
        if codec not in self._producers:
            properties: dict[str, Any] = {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "message.max.bytes": 1_000_000_000,
                "log_level": 2,
            }
            self._producers[codec] = Producer(properties)
        return self._producers[codec]


def memory_mib(pid: int) -> tuple[int, int]:
    """Resident memory of a process in MiB, now and at its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return tuple(int(found[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
