"""The rows of the cases that Flink computes: made from seeds, with what windows go wrong at.

Each set lies in the order in which it is read, out of order by no more than its delay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

Row = dict[str, Any]
Timed = tuple[int, int | None]

TEN_S = 10_000
"""The gap of sessions, and what borders of windows are multiples of."""

HALF_HOUR = 1_800_000

KEYS: Final = (-1, 0, 7, None)


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows, and how far they are out of order."""

    rows: Sequence[Row]
    delay_s: int


def _ms(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1_000)


def iso_of(ms: int) -> str:
    """A time as both engines read it."""
    text = datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{ms % 1_000:03}Z"


def _row(ms: int, k: int | None, chance: random.Random) -> Row:
    return {
        "ts": iso_of(ms),
        "k": k,
        "host": chance.choice(("a", "b", "c", None)),
        "v": chance.choice((None, -5, 0, 1, 3, 40, 40, 1_000_000_000_000)),
        "x": chance.choice((None, -0.5, 0.0, 0.25, 1.5, 1.5, 80.0)),
        "ok": chance.choice((True, True, False, None)),
    }


def _read_order(times: Sequence[Timed], delay_s: int, chance: random.Random) -> RowSet:
    """The rows of these times and keys, each some way behind its place."""
    placed = sorted(times, key=lambda one: one[0] + chance.uniform(0, 1_000 * delay_s))
    return RowSet([_row(ms, k, chance) for ms, k in placed], delay_s)


def _borders(first_ms: int, marks: Sequence[int], count: int, mark_ms: int) -> Iterator[int]:
    """Times at multiples of a length, before and behind them; some are the same."""
    chance = random.Random(f"borders {first_ms}")
    for _ in range(count):
        yield first_ms + mark_ms * chance.choice(marks) + chance.choice((-1, 0, 0, 1, mark_ms // 2))


def _at_borders(
    first_ms: int, marks: Sequence[int], count: int, mark_ms: int, delay_s: int
) -> RowSet:
    """Of several keys; and of 9, which has a row at the beginning and then none."""
    chance = random.Random(f"rows {first_ms}")
    times = _borders(first_ms, marks, count, mark_ms)
    keyed: list[Timed] = [(ms, chance.choice(KEYS)) for ms in times]
    return _read_order([(first_ms + 1, 9), *keyed], delay_s, chance)


def _bursts(first_ms: int, steps: Sequence[int], chance: random.Random) -> Iterator[Timed]:
    """Times of each key, which follow each other by these steps."""
    for key in KEYS:
        ms = first_ms
        for _ in range(22):
            ms += chance.choice(steps)
            yield ms, key


def _apart(times: Iterator[Timed], never_ms: int) -> list[Timed]:
    """Those of which no two are exactly so far apart, of whatever keys."""
    kept: list[Timed] = []
    for ms, key in times:
        if all(abs(ms - other) != never_ms for other, _ in kept):
            kept.append((ms, key))
    return kept


def _sessions(first_ms: int) -> RowSet:
    """No two rows are a gap apart: a millisecond more or less."""
    chance = random.Random(f"sessions {first_ms}")
    steps = (0, 1, 3_000, 9_999, 9_999, 10_001, 10_001, 25_000, 140_000)
    return _read_order(_apart(_bursts(first_ms, steps, chance), TEN_S), 30, chance)


def _gaps() -> RowSet:
    """Rows of a key are often exactly a gap apart."""
    chance = random.Random("gaps")
    steps = (0, 2_000, TEN_S, TEN_S, TEN_S, 30_000)
    return _read_order(list(_bursts(_ms("2026-03-05T10:00Z"), steps, chance)), 30, chance)


def _joined_late() -> RowSet:
    """A row comes last that makes one of two sessions, or of three; a key comes backwards."""
    chance = random.Random("joined late")
    first = _ms("2026-03-05T10:00Z")
    order = [(0, 1), (12, 1), (6, 1), (0, 2), (11, 2), (22, 2), (5, 2), (17, 2)]
    order += [(second, 3) for second in range(27, -1, -9)] + [(70, 1), (61, 1), (52, 1), (90, 4)]
    rows = [_row(first + 1_000 * second, key, chance) for second, key in order]
    return RowSet(rows, 30)


def _midnight() -> RowSet:
    """One session of each key goes on over midnight in UTC, from a Friday to a Saturday."""
    chance = random.Random("midnight")
    first = _ms("2026-03-06T23:59:30Z")
    return _read_order([(first + 3_500 * at, at % 2) for at in range(20)], 10, chance)


SETS: Final[Mapping[str, RowSet]] = {
    "borders": _at_borders(_ms("2026-03-05T10:00Z"), [*range(20), *range(38, 60)], 90, TEN_S, 20),
    "before 1970": _at_borders(_ms("1969-12-31T23:56Z"), range(48), 60, TEN_S, 20),
    "days": _at_borders(
        _ms("2026-03-04T20:00Z"), [*range(30), *range(90, 130)], 70, HALF_HOUR, 9_000
    ),
    "sessions": _sessions(_ms("2026-03-05T10:00Z")),
    "sessions before 1970": _sessions(_ms("1969-12-30T10:00Z")),
    "gaps": _gaps(),
    "joined late": _joined_late(),
    "midnight": _midnight(),
}
