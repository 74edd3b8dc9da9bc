"""Sessions, as a query writes them: `WINDOWING SESSION 30 min [MAX 4 h]`, `SESSION(ts, ...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import Token

from mars.core.errors import Rejected
from mars.core.plan import LatePolicy, Plan
from mars.core.windows import Session, span
from mars.core.windows.moments import DAY_MS, HOUR_MS, MINUTE_MS, UNITS
from mars.core.windows.sessions import PANES_A_GAP
from mars.sql.lengths import CALENDAR_UNITS, PANES_MAX, Length, check_lengths, length_after
from mars.sql.source import QueryText

MOST_MS_MAX: Final = 7 * DAY_MS
"""Longest session: its state is held until it is over, and Kafka must keep its rows."""

MOST_MS_DEFAULT: Final = (DAY_MS, 4 * HOUR_MS, HOUR_MS, 10 * MINUTE_MS, MINUTE_MS)
"""The first of these that falls into few enough slices is how long sessions are at most."""

_FORM: Final = "WINDOWING SESSION 30 min or WINDOWING SESSION 30 min MAX 4 h"

_A_LENGTH: Final = f"a number and ms, s, min, h or d; write {_FORM}"

_NOTHING_FOLLOWS: Final[Mapping[str, str]] = {
    "SLIDE": "sessions do not overlap; leave out SLIDE",
    "EVERY": "sessions do not cumulate; leave out EVERY",
    "OFFSET": "a session begins with its first row; leave out OFFSET",
    "TIMEZONE": "sessions go by no clock; leave out TIMEZONE",
}
"""Why a word cannot follow."""


def session_of(source: QueryText, clause: Sequence[Token]) -> Session:
    """The sessions of a clause that begins with SESSION. Raises `SqlError`."""
    gap, rest = length_after(source, clause[0], clause[1:], _A_LENGTH)
    most = None
    if rest and rest[0].text.upper() == "MAX":
        most, rest = length_after(source, rest[0], rest[1:], _A_LENGTH)
    if rest:
        why = _NOTHING_FOLLOWS.get(rest[0].text.upper())
        raise source.error(rest[0], why or f"WINDOWING comes last; write {_FORM}")
    return sessions(source, gap, most)


def sessions(source: QueryText, gap: Length, most: Length | None) -> Session:
    """Sessions with such gaps, at most so long. Raises `SqlError`."""
    check_lengths(source, "gap", gap, *([] if most is None else [most]))
    for length in (gap, most):
        if length is not None and length.unit.value in CALENDAR_UNITS:
            raise source.error(
                length.at, f"how long {length} is depends on a calendar; count days instead"
            )
    if most is None:
        shapes = (Session(gap.ms, most_ms) for most_ms in MOST_MS_DEFAULT if most_ms >= gap.ms)
        for shape in shapes:
            if shape.panes_in(shape.most_ms) <= PANES_MAX:
                return shape
        raise source.error(
            gap.at,
            f"with gaps of {gap} it must be said how long a session is at most; write {_FORM}",
        )
    if not gap.ms <= most.ms <= MOST_MS_MAX:
        bound = f"at least the gap, {gap}" if most.ms < gap.ms else f"at most {span(MOST_MS_MAX)}"
        right = _written(min(max(most.ms, gap.ms), MOST_MS_MAX))
        raise source.error(
            most.at, f"MAX is how long a session is at most, and itself {bound}; write MAX {right}"
        )
    shape = Session(gap.ms, most.ms)
    panes = shape.panes_in(shape.most_ms)
    if panes > PANES_MAX:
        shorter = _longest_below(gap.ms, most.ms)
        raise source.error(
            most.at,
            f"sessions of up to {most} fall into {panes} slices, and at most {PANES_MAX} are "
            "possible: a slice is at most a quarter of the gap, and divides MAX; write MAX "
            f"{_written(shorter)}, or a longer gap",
        )
    return shape


def _longest_below(gap_ms: int, most_ms: int) -> int:
    """About the longest that is no longer, and that falls into few enough slices: whole gaps where
    a quarter of one is a slice, else such slices, and at least a gap.
    """
    pane_ms = gap_ms // PANES_A_GAP
    step_ms = pane_ms if gap_ms % PANES_A_GAP else gap_ms
    count = min(most_ms, PANES_MAX * pane_ms) // step_ms
    return step_ms * max(count, -(-gap_ms // step_ms))


def _written(length_ms: int) -> str:
    """A length as a query may have it, to the millisecond."""
    units = ((f"{length_ms // unit_ms} {name}", length_ms % unit_ms) for unit_ms, name in UNITS)
    return next((text for text, rest in units if not rest), f"{length_ms} ms")


def check_sessions(plan: Plan) -> None:
    """Raise Rejected for what means nothing where each group has sessions of its own."""
    if not plan.has_sessions:
        return
    options = plan.options
    if options.late is LatePolicy.REVISE:
        raise Rejected(
            "option late: a row that comes too late could join sessions that were emitted apart, "
            "and no revision can undo a row under another key; use late: drop and a longer delay"
        )
    if options.max_keys is not None:
        raise Rejected(
            "option max_keys counts the groups of a window, and each session is a window of one "
            "group; leave it out"
        )
    if plan.order_by or plan.limit is not None:
        raise Rejected(
            "ORDER BY and LIMIT choose among the groups of a window, and each session is a window "
            "of one group; leave them out"
        )
