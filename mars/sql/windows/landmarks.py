"""Windows since a landmark, out of what a query says: `WINDOWING LANDMARK ['time'] EVERY step`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlglot import Token, TokenType

from mars.core.windows import Landmark
from mars.sql.lengths import CALENDAR_UNITS, check_lengths, length_of
from mars.sql.source import QueryText

_FORM: Final = "WINDOWING LANDMARK '2026-01-01T00:00:00Z' EVERY 10 s"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BESIDES: Final = {
    "SLIDE": "windows since a landmark all begin with it; leave out SLIDE",
    "OFFSET": "steps begin with the landmark; write a later landmark for an OFFSET",
    "TIMEZONE": (
        "steps since a landmark are of one length, whatever a clock shows; leave out TIMEZONE, and "
        "write the landmark with its offset, as in '2026-01-01T00:00:00+01:00'"
    ),
}
"""What may follow other windows, and why it may not follow these."""


def landmark_of(source: QueryText, clause: Sequence[Token], begin_ms: int | None) -> Landmark:
    """The windows of a clause that begins with LANDMARK. Raises `SqlError`.

    Without a time the landmark is `begin_ms`, down to a multiple of the step since 1970.
    """
    word, rest = clause[0], clause[1:]
    time = rest[0] if rest and rest[0].token_type is TokenType.STRING else None
    step_ms = _step_ms(source, word, rest if time is None else rest[1:])
    if time is not None:
        return Landmark(_moment_ms(source, time), step_ms)
    if begin_ms is None:
        raise source.error(
            word,
            "a landmark without a time is when a task is registered, and here none is; write a "
            f"time, as in {_FORM}",
        )
    return Landmark(begin_ms // step_ms * step_ms, step_ms)


def _step_ms(source: QueryText, word: Token, rest: Sequence[Token]) -> int:
    """The step, with which the clause ends."""
    where = rest[0] if rest else word
    if where.text.upper() in _BESIDES:
        raise source.error(where, _BESIDES[where.text.upper()])
    if where.text.upper() != "EVERY":
        raise source.error(
            where, f"LANDMARK takes its time as text, or none, and then EVERY; write {_FORM}"
        )
    if [token.token_type for token in rest[1:3]] != [TokenType.NUMBER, TokenType.VAR]:
        raise source.error(rest[1] if rest[1:] else where, f"EVERY takes a step; write {_FORM}")
    step = length_of(rest[1].text, rest[2].text, where)
    if step is None or rest[2].text.lower().removesuffix("s") in CALENDAR_UNITS:
        raise source.error(
            rest[1], f"a step since a landmark has a number of ms, s, min, h or d; write {_FORM}"
        )
    check_lengths(source, "step", step)
    if rest[3:]:
        raise source.error(
            rest[3],
            _BESIDES.get(
                rest[3].text.upper(), f"nothing follows the step of a landmark; write {_FORM}"
            ),
        )
    return step.ms


def _moment_ms(source: QueryText, time: Token) -> int:
    """ISO 8601, in UTC unless it names an offset; whole milliseconds."""
    try:
        moment = datetime.fromisoformat(time.text)
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        since_1970 = zoned - _EPOCH
    except (ValueError, OverflowError):
        since_1970 = None
    if since_1970 is None or since_1970 % timedelta(milliseconds=1):
        raise source.error(
            time,
            f"{time.text[:40]!r} is not a time in ISO 8601 of whole milliseconds; write it as in "
            f"{_FORM}",
        )
    return since_1970 // timedelta(milliseconds=1)
