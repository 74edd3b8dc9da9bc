"""Times and lengths of time as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000

UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))

EXACT_BELOW = 100
"""Of a unit: larger numbers are whole ones."""


def moment(time_ms: int) -> str:
    """A time for people, in UTC; milliseconds since the epoch where no calendar has it."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{time_ms} ms"


def span(length_ms: int) -> str:
    """A length of time in its largest unit, to two or three digits: `5 min`, `1.5 h`, `400 ms`."""
    for unit_ms, name in UNITS:
        if length_ms >= unit_ms:
            count = length_ms / unit_ms
            return f"{count:.0f} {name}" if count >= EXACT_BELOW else f"{count:.3g} {name}"
    return f"{length_ms} ms" if length_ms else "0 s"
