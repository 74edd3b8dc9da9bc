"""Durations as people write them: `60 s`, `1 min`, `2h`, `500ms`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

from mars.core.errors import Rejected

UNITS_MS: Mapping[str, int] = MappingProxyType(
    {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
)

WRITTEN = "a number and one of ms, s, min, h, d, such as 500ms, 1s or 5min"

_NUMBER_DIGITS_MAX = 15
"""Most digits of a number: a millisecond count of more than that is 30,000 years."""

_DURATION = re.compile(r"\s*([0-9.]+)\s*([A-Za-z]+)\s*")
_NUMBER = re.compile(rf"(?=.{{1,{_NUMBER_DIGITS_MAX}}}$)[0-9]+(\.[0-9]+)?")


def parse_duration(text: str) -> int:
    """Milliseconds of a duration; raises `Rejected` for anything else."""
    match = _DURATION.fullmatch(text)
    milliseconds = duration_ms(match[1], match[2]) if match else None
    if milliseconds is None:
        raise Rejected(f"{text[:40]!r} is not a duration; write {WRITTEN}")
    return milliseconds


def duration_ms(number: str, unit: str) -> int | None:
    """Milliseconds of `number` units; None where that is no whole number of them."""
    size = UNITS_MS.get(unit.lower())
    if size is None or not _NUMBER.fullmatch(number):
        return None
    total = Decimal(number) * size
    return int(total) if total == int(total) else None
