"""R4: is an emission in the output as its progress record says?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mars.core.types import Bucket
from mars.engine.codec.checksum import checksum
from mars.engine.codec.result_headers import BUCKET, EMIT, number
from mars.protocol.ports import Emission

Row = tuple[Sequence[tuple[str, object]], bytes | None]
"""Headers and value of a record."""


def difference(emission: Emission, bucket: Bucket, rows: Iterable[Row]) -> str | None:
    """None if the rows of the bucket's emission are those recorded, else what differs.

    `rows` are the committed records between the emission's offsets. Rows of other buckets may lie
    among them, but never two emissions of one bucket between the same offsets.
    """
    values = list(_values(emission, bucket, rows))
    found = checksum(values)
    if len(values) == emission.count and found == emission.checksum:
        return None
    place = f"{emission.topic}[{emission.partition}] {emission.first}..{emission.last}"
    if len(values) != emission.count:
        detail = f"{len(values)} rows of {emission.count}"
    else:
        detail = f"other values (checksum {found:016x}, recorded {emission.checksum:016x})"
    return f"emission {emission.emit} at {place} has {detail}"


def _values(emission: Emission, bucket: Bucket, rows: Iterable[Row]) -> Iterator[bytes]:
    wanted = {(BUCKET, number(bucket)), (EMIT, number(emission.emit))}
    last: Sequence[tuple[str, object]] | None = None
    ours = False
    for headers, value in rows:
        # Nearly all rows have the headers of the one before them.
        if headers != last:
            last, ours = headers, wanted.issubset(headers)
        if ours:
            yield value or b""
