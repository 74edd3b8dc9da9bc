"""How far event time has come, given what was seen in each lane.

lane 0   ──────────────▶ mark 70
lane 1   ────────▶ mark 40                  watermark = 40 - delay, held by lane 1
lane 2   ──▶ mark 10, idle                  does not hold
lane 3   (nothing yet)                      would hold everything: no watermark at all
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mars.types import Lane


@dataclass(frozen=True, slots=True)
class Watermark:
    """A point of event time that no further row within the delay lies before.

    `time_ms` is None while a lane without a mark holds everything. `held_by` names the lane that
    keeps it from going on, None where all lanes are idle or finished and the clock drives it.
    """

    time_ms: int | None
    held_by: Lane | None


def find_watermark(
    *,
    lanes: Iterable[Lane],
    marks_ms: Mapping[Lane, int],
    idle: Collection[Lane],
    delay_ms: int,
    idle_after_ms: int,
    now_ms: int,
    finished: Collection[Lane] = frozenset(),
) -> Watermark:
    """The watermark of a task: the lowest mark of its lanes, idle and finished ones aside.

    `now_ms` must be the store's clock, read together with the marks. Lanes that tie are told apart
    by name, so that equal input names the same holder. No lanes at all: nothing is known yet.
    """
    known = sorted(lanes)
    if not known:
        return Watermark(None, None)
    holding = [lane for lane in known if lane not in idle and lane not in finished]
    if not holding:
        return Watermark(now_ms - idle_after_ms - delay_ms, None)
    silent = next((lane for lane in holding if lane not in marks_ms), None)
    if silent is not None:
        return Watermark(None, silent)
    slowest = min(holding, key=lambda lane: marks_ms[lane])
    return Watermark(marks_ms[slowest] - delay_ms, slowest)


def watermark(
    *,
    lanes: Iterable[Lane],
    marks_ms: Mapping[Lane, int],
    idle: Collection[Lane],
    delay_ms: int,
    idle_after_ms: int,
    now_ms: int,
    finished: Collection[Lane] = frozenset(),
) -> int | None:
    """The time of `find_watermark`."""
    return find_watermark(
        lanes=lanes,
        marks_ms=marks_ms,
        idle=idle,
        delay_ms=delay_ms,
        idle_after_ms=idle_after_ms,
        now_ms=now_ms,
        finished=finished,
    ).time_ms
