"""Rows of which each has a key of its own, for windows of as many groups as rows.

Keys are the numbers 0, 1, 2, ... each times an odd constant, modulo 10^12: no two are alike, and
neighbours share no digits, as those of users or sessions do not.
"""

from __future__ import annotations

import numpy as np

from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import StreamName

KEYS = 10**12
STEP = 618_033_988_751
"""About KEYS by the golden ratio, and prime to it."""

SIZES = 1_024
"""Different values of `bytes`."""

FORMS = {FieldType.STRING: b'"id":"%012d",', FieldType.INT64: b'"id":%d,'}


def stream(name: str, format_: Format, keys: FieldType) -> Stream:
    """The stream of such rows, and its topic, of one name."""
    fields = (
        Field("timestamp", FieldType.TIMESTAMP_MS),
        Field("id", keys),
        Field("bytes", FieldType.INT64),
    )
    return Stream(StreamName(name), name, format_, fields, "timestamp")


class Distinct:
    """Makes rows of about 60 bytes, in order of their time."""

    def __init__(self, keys: FieldType) -> None:
        self._form = FORMS[keys]
        self._next = 0
        self._sizes = [b'"bytes":%d}' % size for size in range(SIZES)]

    def messages(self, count: int, start_ms: int, rate_per_s: float) -> list[bytes]:
        """`count` rows, one JSON object a message, evenly over time from `start_ms` on."""
        numbers = np.arange(count)
        ids = (self._next + numbers * STEP) % KEYS
        self._next = (self._next + count * STEP) % KEYS
        ticks = (numbers * 1000 // rate_per_s).astype(np.int64)
        heads = [b'{"timestamp":%d,' % (start_ms + tick) for tick in range(int(ticks[-1]) + 1)]
        form, sizes = self._form, self._sizes
        return [
            heads[tick] + form % key + sizes[key % SIZES]
            for tick, key in zip(ticks.tolist(), ids.tolist(), strict=True)
        ]
