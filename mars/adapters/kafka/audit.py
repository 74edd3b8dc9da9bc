"""R4: is an emission in the output as its progress record says?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from confluent_kafka import Message

from mars.codec.checksum import checksum
from mars.codec.result_headers import BUCKET, EMIT, number
from mars.ports import Emission
from mars.types import Bucket


def difference(emission: Emission, bucket: Bucket, portions: Iterable[list[Message]]) -> str | None:
    """None if the rows of the bucket's emission are those recorded, else what differs.

    `portions` holds the committed records between the emission's offsets. Rows of one bucket lie
    between the rows of another, but never two emissions of one bucket between the same offsets.
    """
    values = list(_values(emission, bucket, portions))
    found = checksum(values)
    if len(values) == emission.count and found == emission.checksum:
        return None
    place = f"{emission.topic}[{emission.partition}] {emission.first}..{emission.last}"
    if len(values) != emission.count:
        detail = f"{len(values)} rows of {emission.count}"
    else:
        detail = f"other values (checksum {found:016x}, recorded {emission.checksum:016x})"
    return f"emission {emission.emit} at {place} has {detail}"


def _values(
    emission: Emission, bucket: Bucket, portions: Iterable[list[Message]]
) -> Iterator[bytes]:
    wanted = {(BUCKET, number(bucket)), (EMIT, number(emission.emit))}
    for portion in portions:
        for message in portion:
            headers = cast(list[tuple[str, bytes]], message.headers() or [])
            if wanted.issubset(headers):
                yield message.value() or b""
