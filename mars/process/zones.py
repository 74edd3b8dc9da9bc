"""Time zones of the database that a process has: asked once, when a task is registered.

What is found goes into the task's definition, and nobody asks again for that task.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

import tzdata

from mars.core.windows import Zone

FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""Jumps between these are looked for; later the clock stays as it is then."""
ZONES_KEPT: Final = 256
"""Zones that are remembered: some 20 kB each."""

_APART: Final = timedelta(days=1)
"""No clock jumps twice in so short a time."""
_EXACTLY: Final = timedelta(seconds=1)


@lru_cache(maxsize=ZONES_KEPT)
def zone_named(name: str) -> Zone | None:
    """A zone of the IANA database as it is known now; None where it has none of that name."""
    exact = _names().get(name.lower())
    if exact is None:
        return None
    zone = clock_of(exact)
    return Zone(exact, tzdata.IANA_VERSION, _offset_ms(zone, FIRST), tuple(_jumps(zone)))


def clock_of(exact: str) -> ZoneInfo:
    """A zone of the package, by its exact name: the machine's own database may be another one."""
    with resources.files(tzdata).joinpath("zoneinfo", *exact.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, exact)


@cache
def _names() -> dict[str, str]:
    """The names that the database has, by what they are in small letters."""
    listed = resources.files(tzdata).joinpath("zones").read_text("utf-8").split()
    return {name.lower(): name for name in listed}


def _jumps(zone: ZoneInfo) -> Iterator[tuple[int, int]]:
    at, before = FIRST, _offset_ms(zone, FIRST)
    while at < LAST:
        offset_ms = _offset_ms(zone, at + _APART)
        if offset_ms != before:
            yield _jump(zone, at, at + _APART), offset_ms
        at, before = at + _APART, offset_ms


def _jump(zone: ZoneInfo, low: datetime, high: datetime) -> int:
    """When a clock jumps that is another one at both these moments, in epoch milliseconds."""
    before = _offset_ms(zone, low)
    while high - low > _EXACTLY:
        middle = low + (high - low) // 2 // _EXACTLY * _EXACTLY
        low, high = (middle, high) if _offset_ms(zone, middle) == before else (low, middle)
    return int(high.timestamp()) * 1000


def _offset_ms(zone: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(zone).utcoffset() or timedelta()
    return offset // timedelta(milliseconds=1)
