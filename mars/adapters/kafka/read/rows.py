"""Records of output topics and of `mars.dead` as values; the twin in memory reads them so, too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from confluent_kafka import Message

from mars.core.types import Bucket, Lane, Range, TaskName, Topic
from mars.engine.codec import result_headers
from mars.engine.codec.dead import DeadRow, decode_dead
from mars.protocol.ports import CommittedRow, DeadLetter

UNREADABLE = (ValueError, RecursionError)
"""What msgspec raises for JSON that is none, is no UTF-8, has other members, or is too deep."""

RANGES_REMEMBERED = 1_024
"""Headers whose ranges are kept decoded: all rows of a window in a bucket have the same."""


def committed_row(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Mapping[str, bytes],
    task: bytes,
) -> CommittedRow | None:
    """A result row of the task; None for anything else that lies in the topic.

    Whoever may write there can call his records those of the task: what Mars would not have written
    is passed over, but whether the value is JSON to its end, who decodes it sees.
    """
    if key is None or value is None or headers.get(result_headers.TASK) != task:
        return None
    if not value.startswith(b"{") or b"\n" in value or b"\r" in value:
        return None
    try:
        row = _row(partition, offset, key, value, headers)
        _ = row.window
    except ValueError:
        return None
    return row


def _row(
    partition: int, offset: int, key: bytes, value: bytes, headers: Mapping[str, bytes]
) -> CommittedRow:
    """What the headers say. Raises ValueError for a number that is none."""
    return CommittedRow(
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        version=int(headers.get(result_headers.VERSION, b"0")),
        revision=int(headers.get(result_headers.REVISION, b"0")),
        complete=headers.get(result_headers.COMPLETE) == b"1",
        bucket=Bucket(int(headers.get(result_headers.BUCKET, b"0"))),
        emit=int(headers.get(result_headers.EMIT, b"0")),
        ranges=_ranges(headers.get(result_headers.RANGES, b"")),
        rows=int(headers.get(result_headers.ROWS, b"0")),
        deleted=headers.get(result_headers.DELETED) == b"1",
    )


def headers_of(message: Message) -> dict[str, bytes]:
    """The headers by name."""
    given = message.headers() or {}
    pairs = given.items() if isinstance(given, dict) else given
    return {name: bytes_of(value) or b"" for name, value in pairs}


def bytes_of(value: str | bytes | None) -> bytes | None:
    """What the client's types leave open: keys, values and headers are bytes, or missing."""
    return value.encode() if isinstance(value, str) else value


@lru_cache(maxsize=RANGES_REMEMBERED)
def _ranges(raw: bytes) -> tuple[Range, ...]:
    """What a header says; nothing where there is none, or somebody else wrote it."""
    try:
        return result_headers.decode_ranges(raw)
    except UNREADABLE:
        return ()


def dead_letter(raw: bytes | None) -> DeadLetter | None:
    """A reference; None for what is none, which another release may have written."""
    try:
        record = decode_dead(raw or b"")
    except UNREADABLE:
        return None
    task, topic = TaskName(record.task), Topic(record.topic)
    lane = None if record.lane is None else Lane(record.lane)
    if isinstance(record, DeadRow):
        return DeadLetter(
            task,
            topic,
            record.partition,
            record.offset,
            record.offset + 1,
            record.reason,
            1,
            version=record.version,
            lane=lane,
            detail=record.detail,
            payload=record.payload,
        )
    return DeadLetter(
        task,
        topic,
        record.partition,
        record.first,
        record.next,
        record.reason,
        record.rows,
        record.window_start,
        version=record.version,
        lane=lane,
        detail=record.detail,
        window_end_ms=record.window_end,
        bucket=None if record.bucket is None else Bucket(record.bucket),
    )


def wanted_letter(raw: bytes | None, task: TaskName, reason: str | None) -> list[DeadLetter]:
    """The reference, if it is one of the task and, unless that is None, for the reason."""
    letter = dead_letter(raw)
    if letter is None or letter.task != task or reason not in (None, letter.reason):
        return []
    return [letter]
