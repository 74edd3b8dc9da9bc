"""How far event time has come, given what was seen in each lane.

lane 0   ──────────────▶ mark 70
lane 1   ────────▶ mark 40                  watermark = 40 - delay, held by lane 1
lane 2   ──▶ mark 10, idle                  does not hold
lane 3   (nothing yet)                      would hold everything: no watermark at all

Where all lanes are idle or finished, event time goes on from the highest mark at the pace of the
clock, and never beyond the clock:

lane 0   ──────────────▶ mark 70, taken 5 ago, idle  ┐
lane 1   ────────▶ mark 40, taken 3 ago, idle        ┘  watermark = 70 + 5 - delay - idle_after
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mars.core.types import Lane, Mark


@dataclass(frozen=True, slots=True)
class Watermark:
    """A point of event time that no further row within the delay lies before.

    `time_ms` is None while a lane without a mark holds everything, and where there is no mark at
    all. `held_by` names the lane that keeps it from going on, None where all lanes are idle or
    finished.
    """

    time_ms: int | None
    held_by: Lane | None


def find_watermark(  # noqa: PLR0913 -- all that the rule looks at
    *,
    lanes: Iterable[Lane],
    marks_ms: Mapping[Lane, int],
    taken_ms: Mapping[Lane, int],
    idle: Collection[Lane],
    delay_ms: int,
    idle_after_ms: int,
    now_ms: int,
    finished: Collection[Lane] = frozenset(),
    restored: Mark | None = None,
) -> Watermark:
    """The watermark of a task: the lowest mark of its lanes, idle and finished ones aside.

    `now_ms` must be the store's clock, read together with the marks and with when they were taken.
    `restored` is what a lost store had come to: it counts only where no lane holds the watermark.
    Lanes that tie are told apart by name, so that equal input names the same holder. No lanes at
    all: nothing is known yet.
    """
    # A task may have hundreds of lanes, and each of its buckets asks at each look.
    known = holding = list(lanes)
    if idle or finished:
        holding = [lane for lane in known if lane not in idle and lane not in finished]
    if not holding:
        highest = highest_mark(known, marks_ms, taken_ms, restored) if known else None
        if highest is None:
            return Watermark(None, None)
        return Watermark(event_time(highest, now_ms) - delay_ms - idle_after_ms, None)
    if not all(map(marks_ms.__contains__, holding)):
        return Watermark(None, min(lane for lane in holding if lane not in marks_ms))
    lowest_ms = min(map(marks_ms.__getitem__, holding))
    slowest = min([lane for lane in holding if marks_ms[lane] == lowest_ms])
    return Watermark(lowest_ms - delay_ms, slowest)


def highest_mark(
    lanes: Iterable[Lane],
    marks_ms: Mapping[Lane, int],
    taken_ms: Mapping[Lane, int],
    restored: Mark | None,
) -> Mark | None:
    """The mark from which event time goes on where all lanes are idle; None: no row has come.

    Of equal ones it is the one taken last.
    """
    marks = [Mark(marks_ms[lane], taken_ms.get(lane)) for lane in lanes if lane in marks_ms]
    marks += [restored] if restored is not None else []
    return max(marks, key=_height, default=None)


def _height(mark: Mark) -> tuple[int, float]:
    return mark.time_ms, float("-inf") if mark.taken_ms is None else mark.taken_ms


def event_time(mark: Mark, now_ms: int) -> int:
    """How far event time has gone on from a mark at the pace of the clock.

    A mark of which nobody knows when it was taken goes by the clock alone, as in older releases.
    """
    if mark.taken_ms is None:
        return now_ms
    return min(now_ms, mark.time_ms + max(0, now_ms - mark.taken_ms))
