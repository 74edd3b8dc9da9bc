"""Flows whose keys come in one partition each, some of them far behind the others.

fast keys   ─────────────────────────▶ now
slow keys   ───────────────▶ SLOW_S behind, in the same partitions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec

from tests.support.load import PARTITIONS, Load
from tests.support.rows import CLOSING, closing_rows

SLOW_S = 30
KEY_LAG_S = 60

Row = dict[str, Any]


def is_slow(row: Mapping[str, Any]) -> bool:
    """About one key of ten is slow; all rows of a `sip` are, or none."""
    return crc32(row["sip"].encode()) % 10 == 0


def slowed(rows: Sequence[Row]) -> list[Row]:
    """The rows, those of slow keys as much behind."""
    return [
        {**row, "timestamp": row["timestamp"] - SLOW_S * 1000} if is_slow(row) else row
        for row in rows
    ]


def keyed(rows: Sequence[Row]) -> list[tuple[int, bytes | None]]:
    """(partition, JSON) of each row: by key, but for those that close windows in each partition."""
    return [
        (
            (row["id"] if row["type"] == CLOSING else crc32(row["sip"].encode()) // 10)
            % PARTITIONS,
            msgspec.json.encode(row),
        )
        for row in rows
    ]


class KeyedLoad(Load):
    """A load like that, and a task that closes windows key by key, or by buckets of keys."""

    def __init__(self, *given: Any, watermark: str = "key", **options: Any) -> None:
        super().__init__(*given, watermark=watermark, key_lag=f"{KEY_LAG_S}s", **options)

    def made(self, rows: list[Row]) -> list[Row]:
        """Some keys are slow."""
        return slowed(rows)

    def closing(self, rows: Sequence[Row]) -> list[Row]:
        """Windows of silent keys wait for rows that are further on."""
        return closing_rows(rows, PARTITIONS, (self.window_s + KEY_LAG_S) * 1000)

    def send(self, rows: Sequence[Row]) -> None:
        """Write rows to their partitions."""
        self.mars.produce(self.name, keyed(rows))
