"""What is kept of a run that failed: all that its verdict was made of, notes of Mars, logs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Message

from mars.adapters.kafka.read.rows import headers_of
from tests.support.cluster import MarsCluster
from tests.support.load import Load
from tests.support.progress import progress_records
from tests.support.users import Users

TEXT_BYTES_MAX = 2_000
"""Of a message: those that are poison may have megabytes."""


def keep(folder: Path, mars: MarsCluster, users: Users, load: Load) -> None:
    """Write it down, as far as it can be had."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(mars.data / "logs", folder / "logs", dirs_exist_ok=True)
    stories = users.chronicle.stories.items()
    client = mars.client
    _write(folder / "versions.jsonl", lambda: [(name, story.versions) for name, story in stories])
    _write(folder / "tasks.jsonl", lambda: client.tasks(deleted=True))
    _write(folder / "cluster.jsonl", lambda: [client.cluster()])
    _write(folder / "incidents.jsonl", client.incidents)
    _write(folder / "progress.jsonl", lambda: progress_records(mars.file["kafka"]).items())
    for topic in (load.name, users.output_topic, "mars.control", "mars.dead"):
        _write(folder / f"{topic}.jsonl", partial(_records, mars, topic))


def _write(file: Path, have: Callable[[], Iterable[Any]]) -> None:
    with suppress(Exception):  # the rest is worth keeping without it
        file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in have()))


def _records(mars: MarsCluster, topic: str) -> Iterable[dict[str, object]]:
    return map(_told, mars.messages(topic))


def _told(message: Message) -> dict[str, object]:
    """A record, its texts cut short."""
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "at_ms": message.timestamp()[1],
        "key": _text(message.key()),
        "headers": {name: _text(value) for name, value in headers_of(message).items()},
        "value": _text(message.value()),
    }


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw[:TEXT_BYTES_MAX].decode(errors="replace")
