"""What a message may be."""

from __future__ import annotations

from mars.codec.texts import without_mark
from mars.codec.too_many import TooManyRows
from mars.types import Reason

__all__ = ["MESSAGE_BYTES_MAX", "ROWS_MAX", "UNPACKED_BYTES_MAX", "TooManyRows", "unusable"]

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


def unusable(value: bytes | None) -> tuple[Reason, str] | None:
    """Why a message cannot hold a row whatever its format, or None if it may."""
    if value is None:
        return Reason.UNREADABLE, "the message has no value (a tombstone)"
    if len(value) > MESSAGE_BYTES_MAX:
        return Reason.TOO_LARGE, f"{len(value)} bytes, at most {MESSAGE_BYTES_MAX} are read"
    text = without_mark(value)
    if not text or text.isspace():
        return Reason.UNREADABLE, "empty"
    return None
