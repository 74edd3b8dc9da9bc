"""The records of `mars.queries`; the twin in memory writes and reads them so, too.

    key       value                                             header `mars-answer`
    query id  result rows, one JSON object a line               rows
    query id  {"rows": n, "bytes": n, "counts": {...}}          end

All records of an answer are of one transaction and one partition, the last one says what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from mars.core.errors import MarsError, NotFound
from mars.core.types import RowCounts
from mars.protocol.ports.queries import Answer, AnswerPlace, QueryId, Written

PART = "mars-answer"
ROWS = b"rows"
END = b"end"

CHUNK_BYTES = 256 * 1024
"""Rows in one record, unless a single one is longer: well below what brokers take (1 MiB)."""


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """A record of the topic of answers; `part` is what its header says."""

    offset: int
    key: bytes | None
    value: bytes | None
    part: bytes | None


class _End(msgspec.Struct, frozen=True):
    rows: int
    bytes: int
    counts: RowCounts


def parts_of(answer: Answer) -> Iterator[tuple[bytes, bytes]]:
    """The values of an answer's records, each with its part."""
    lines: list[bytes] = []
    size = 0
    for row in answer.rows:
        if lines and size + len(row) > CHUNK_BYTES:
            yield b"\n".join(lines), ROWS
            lines, size = [], 0
        lines.append(row)
        size += len(row) + 1
    if lines:
        yield b"\n".join(lines), ROWS
    end = _End(len(answer.rows), size_of(answer.rows), answer.counts)
    yield msgspec.json.encode(end), END


def size_of(rows: Sequence[bytes]) -> int:
    """Bytes of the rows of an answer."""
    return sum(map(len, rows))


def found(query: QueryId, partition: int, records: Iterable[AnswerRecord]) -> Written | None:
    """The answer among committed records; None if it is not there."""
    first: int | None = None
    for record in records:
        if record.key != query.encode():
            continue
        first = record.offset if first is None else first
        if record.part == END:
            end = _decoded(record)
            place = AnswerPlace(partition, first, record.offset + 1, end.rows, end.bytes)
            return Written(place, end.counts)
    return None


def rows_of(query: QueryId, place: AnswerPlace, records: Iterable[AnswerRecord]) -> list[bytes]:
    """The rows of an answer. Raises NotFound if some are gone."""
    rows: list[bytes] = []
    for record in records:
        if record.key == query.encode() and record.part == ROWS:
            rows += (record.value or b"").split(b"\n")
    if len(rows) != place.rows:
        raise gone(query)
    return rows


def gone(query: QueryId) -> NotFound:
    """Kafka keeps answers for a while only."""
    return NotFound(f"the rows of query {query} were kept for one day and are gone: run it again")


def _decoded(record: AnswerRecord) -> _End:
    try:
        return msgspec.json.decode(record.value or b"", type=_End)
    except msgspec.MsgspecError as error:
        raise MarsError(
            f"The end of an answer at offset {record.offset} cannot be read ({error}): a newer "
            "release of Mars wrote it; run the newest release everywhere."
        ) from error
