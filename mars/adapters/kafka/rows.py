"""Records of output topics and of `mars.dead` as values; the twin in memory reads them so, too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from mars.codec import result_headers
from mars.codec.dead import DeadRow, decode_dead
from mars.ports import CommittedRow, DeadLetter
from mars.types import Bucket, Range, TaskName, Topic

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
    """A result row of the task; None for anything else that lies in the topic."""
    if key is None or value is None or headers.get(result_headers.TASK) != task:
        return None
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
    )


@lru_cache(maxsize=RANGES_REMEMBERED)
def _ranges(raw: bytes) -> tuple[Range, ...]:
    """What a header says; nothing where there is none, or somebody else wrote it."""
    try:
        return result_headers.decode_ranges(raw)
    except msgspec.MsgspecError:
        return ()


def window_start_of(row: CommittedRow) -> int:
    """The first element of a key `[window_start,...]`, without decoding the rest."""
    return int(row.key[1:].partition(b",")[0].rstrip(b"]"))


def dead_letter(raw: bytes | None) -> DeadLetter | None:
    """A reference; None for what is none, which another release may have written."""
    try:
        record = decode_dead(raw or b"")
    except msgspec.MsgspecError:
        return None
    task, topic = TaskName(record.task), Topic(record.topic)
    if isinstance(record, DeadRow):
        first, behind = record.offset, record.offset + 1
        return DeadLetter(task, topic, record.partition, first, behind, record.reason, 1)
    return DeadLetter(
        task,
        topic,
        record.partition,
        record.first,
        record.next,
        record.reason,
        record.rows,
        record.window_start,
    )
