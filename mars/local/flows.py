"""A synthetic stream of network flows: 20 fields, about 235 bytes of JSON a row.

Rows are put together from pieces made once, so that a producer is limited by Kafka and not by
this: a time stamp, one of the groups (sip and type, the sips skewed as in Zipf's law), and one of
some thousand sets of the other fields. The same seed and calls give the same bytes.
"""

from __future__ import annotations

import msgspec
import numpy as np

from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import StreamName

FIELDS = (
    Field("timestamp", FieldType.TIMESTAMP_MS),
    Field("sip", FieldType.STRING),
    Field("dip", FieldType.STRING),
    Field("type", FieldType.STRING),
    Field("sport", FieldType.INT64),
    Field("dport", FieldType.INT64),
    Field("bytes", FieldType.INT64),
    Field("pkts", FieldType.INT64),
    Field("flags", FieldType.INT64),
    Field("ttl", FieldType.INT64),
    Field("loss", FieldType.FLOAT64),
    Field("rtt", FieldType.INT64),
    Field("ok", FieldType.BOOL),
    Field("vlan", FieldType.INT64),
    Field("if", FieldType.INT64),
    Field("dc", FieldType.INT64),
    Field("asn", FieldType.INT64),
    Field("tos", FieldType.INT64),
    Field("dur", FieldType.INT64),
    Field("seq", FieldType.INT64),
)

SKEW = 0.8
"""Exponent of Zipf's law for the sips: the most frequent of 10,000 gets 3 % of the rows."""

DETAIL_SETS = 4_096
"""Different sets of the fields beside time, sip and type."""

DISORDERED_SHARE = 0.05
"""Share of the rows that come later than their time stamp says."""


def stream(name: str = "S", topic: str = "flows", format_: Format = Format.JSON) -> Stream:
    """The stream as it is declared to Mars."""
    return Stream(StreamName(name), topic, format_, FIELDS, "timestamp")


def declaration(topic: str, format_: Format = Format.JSON) -> dict[str, object]:
    """The same as a user declares it."""
    return as_declared(stream(topic=topic, format_=format_))


def as_declared(stream: Stream) -> dict[str, object]:
    """A stream of plain fields as a user declares it."""
    return {
        "topic": stream.topic,
        "format": stream.format.value,
        "fields": {each.name: each.type.value for each in stream.fields},
        "event_time": stream.event_time,
    }


class Flows:
    """Makes rows.

    `groups` is the number of different (sip, type) pairs, spread evenly over the sips; 185,000 is
    what the benchmarks use. `disorder_ms`: no row is more than this behind the rows before it.
    """

    def __init__(
        self, seed: int = 1, *, sips: int = 10_000, groups: int = 80_000, disorder_ms: int = 1_000
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._disorder_ms = disorder_ms
        addresses = self._addresses(sips)
        self._pairs = [
            b'"sip":"%b","type":"%b",' % (addresses[pair % sips], b"t%02d" % (pair // sips))
            for pair in range(groups)
        ]
        weights = (np.arange(groups) % sips + 1.0) ** -SKEW
        self._cumulated = np.cumsum(weights) / weights.sum()
        self._details = [self._detail() for _ in range(DETAIL_SETS)]

    def _addresses(self, count: int) -> list[bytes]:
        """Different addresses, in no order that tells how frequent they are."""
        numbers = self._random.choice(2**24, size=count, replace=False).tolist()
        return [b"10.%d.%d.%d" % (n >> 16, n >> 8 & 255, n & 255) for n in numbers]

    def _detail(self) -> bytes:
        random = self._random
        detail = {
            "dip": "10.{}.{}.{}".format(*random.integers(1, 255, size=3)),
            "sport": int(random.integers(1024, 65536)),
            "dport": int(random.integers(1, 1024)),
            "bytes": int(random.integers(40, 1500)),
            "pkts": int(random.integers(1, 100)),
            "flags": int(random.integers(0, 64)),
            "ttl": int(random.integers(30, 255)),
            "loss": int(random.integers(0, 100)) / 100,
            "rtt": int(random.integers(0, 1_000)),
            "ok": bool(random.integers(0, 2)),
            "vlan": int(random.integers(1, 4095)),
            "if": int(random.integers(0, 8)),
            "dc": int(random.integers(0, 20)),
            "asn": int(random.integers(1, 65536)),
            "tos": 0,
            "dur": int(random.integers(0, 1_000)),
            "seq": int(random.integers(0, 100)),
        }
        return msgspec.json.encode(detail)[1:]

    def messages(self, count: int, start_ms: int, rate_per_s: float) -> list[bytes]:
        """`count` rows, one JSON object a message, evenly over time from `start_ms` on."""
        times = np.arange(count) * 1000 // rate_per_s
        late = self._random.random(count) < DISORDERED_SHARE
        behind = np.where(late, self._random.integers(0, self._disorder_ms + 1, count), 0)
        ticks = (times - behind).astype(np.int64)
        lowest = int(ticks.min(initial=0))
        heads = [
            b'{"timestamp":%d,' % (start_ms + tick)
            for tick in range(lowest, int(ticks.max(initial=0)) + 1)
        ]
        pairs, details = self._pairs, self._details
        chosen = np.searchsorted(self._cumulated, self._random.random(count)).tolist()
        detail = self._random.integers(0, DETAIL_SETS, count).tolist()
        return [
            heads[tick] + pairs[pair] + details[other]
            for tick, pair, other in zip((ticks - lowest).tolist(), chosen, detail, strict=True)
        ]

    def ndjson(
        self, count: int, start_ms: int, rate_per_s: float, rows_per_message: int = 1_000
    ) -> list[bytes]:
        """The same rows as `messages`, many a message, one a line."""
        rows = self.messages(count, start_ms, rate_per_s)
        return [
            b"\n".join(rows[at : at + rows_per_message]) for at in range(0, count, rows_per_message)
        ]
