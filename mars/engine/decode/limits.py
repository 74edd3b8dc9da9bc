"""What a message may be."""

from __future__ import annotations

from mars.core.types import Reason, Undecodable
from mars.engine.decode.formats.texts import without_mark
from mars.engine.decode.too_many import TooManyRows

__all__ = [
    "KAFKA_BATCH_BYTES_MAX",
    "MESSAGE_BYTES_MAX",
    "NOT_UNPACKED",
    "ROWS_MAX",
    "UNPACKED_BYTES_MAX",
    "TooManyRows",
    "shortened",
    "unusable",
]

KAFKA_BATCH_BYTES_MAX = 512 * 1024 * 1024
"""Most bytes that Kafka's client may take to unpack one batch of messages of the codec zstd, the
only one that it bounds. It takes up to three times as much as the batch has where that does not say
how much, so one of a third of this is read in any case. No setting: it decides the fate of rows,
and whoever reads them again (a mapper, Spark, a preview, a verification) is to find the same."""

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""Longest message that is decoded; Kafka's own default is 1 MiB. A longer one is a bad row: its
columns would not fit into a mapper's share of memory together with the rest of a batch."""

ROWS_MAX = 250_000
"""Most rows that are decoded at once: their columns take some 100 MB at most. What has more is
decoded in slices; no row's fate depends on this."""

UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of the buffers of one message, unpacked: four times the longest message, and as much
as a mapper holds of raw ones (`mapper.batch_bytes_max`). Several messages that take more together
are decoded one after the other."""

NOT_UNPACKED = (
    "Kafka's client cannot unpack the batch of messages: it is damaged, or takes more than "
    f"{KAFKA_BATCH_BYTES_MAX} bytes"
)
"""What is wrong with UNDECODABLE."""


def shortened(values: list[bytes | None]) -> list[bytes | None]:
    """The same rows, in less memory: of a message that is too large only as much as shows that."""
    return [value and value[: MESSAGE_BYTES_MAX + 1] for value in values]


def unusable(value: bytes | None) -> tuple[Reason, str] | None:
    """Why a message cannot hold a row whatever its format, or None if it may."""
    if isinstance(value, Undecodable):
        return Reason.UNDECODABLE, NOT_UNPACKED
    if value is None:
        return Reason.UNREADABLE, "the message has no value (a tombstone)"
    if len(value) > MESSAGE_BYTES_MAX:
        return Reason.TOO_LARGE, f"more than {MESSAGE_BYTES_MAX} bytes, at most so many are read"
    text = without_mark(value)
    if not text or text.isspace():
        return Reason.UNREADABLE, "empty"
    return None
