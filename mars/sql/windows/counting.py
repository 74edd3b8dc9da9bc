"""Windows of so many rows, as a query writes them.

WINDOWING number ROWS [SLIDE number ROWS] [PER KEY EXPIRE length]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import Token, TokenType

from mars.core.errors import Rejected
from mars.core.plan import Plan
from mars.core.windows import Counting, CountingByKey
from mars.sql.lengths import CALENDAR_UNITS, PANES_MAX, Length, check_lengths, length_after
from mars.sql.source import QueryText

ROWS_MAX: Final = 10_000_000
"""Most rows of a window: until it is full its state is held, and Kafka must keep its rows."""

_FORM: Final = "WINDOWING 1000 ROWS or WINDOWING 1000 ROWS SLIDE 100 ROWS"

_BY_KEY: Final = "WINDOWING 1000 ROWS PER KEY EXPIRE 1 d"

SLICES_BY_KEY_MAX: Final = 100
"""Slices of a window that counts the rows of each key: all of its windows that are not full come at
once when a key falls silent, each made of its slices."""

_DIGITS_MAX: Final = 12

_NOTHING_FOLLOWS: Final[Mapping[str, str]] = {
    "TIMEZONE": "windows of so many rows go by no clock; leave out TIMEZONE",
    "EVERY": "windows of so many rows do not cumulate; leave out EVERY, or write SLIDE and a "
    "number of rows",
    "OFFSET": "windows of so many rows begin with the first row of a partition; leave out OFFSET",
    "SLIDE": "SLIDE stands here twice; write it once",
}
"""Why a word cannot follow."""


def counts_rows(clause: Sequence[Token]) -> bool:
    """Whether a WINDOWING clause is of so many rows."""
    kinds = [token.token_type for token in clause[1:2]]
    return kinds == [TokenType.NUMBER] and _is_rows(clause[2:3])


def counting(source: QueryText, clause: Sequence[Token]) -> Counting:
    """Its windows. Raises `SqlError`."""
    size, rest = _number(source, clause[0], clause[1:])
    slide, at = size, clause[1]
    if rest and rest[0].text.upper() == "SLIDE":
        at = rest[0]
        slide, rest = _number(source, at, rest[1:])
    expire = None
    if rest and rest[0].text.upper() == "PER":
        expire, rest = _expire(source, rest)
    if rest:
        why = _NOTHING_FOLLOWS.get(rest[0].text.upper())
        raise source.error(rest[0], why or f"WINDOWING comes last; write {_FORM}")
    if slide > size:
        raise source.error(
            at,
            "the slide is longer than the window, so rows would fall between windows; choose a "
            "shorter slide",
        )
    shape = Counting(size, slide)
    panes, most = shape.panes_in(size), PANES_MAX if expire is None else SLICES_BY_KEY_MAX
    if panes > most:
        raise source.error(
            at,
            f"the window falls into {panes} slices of {size // panes} rows, at most {most} "
            "are possible; choose a slide that divides it more evenly",
        )
    return shape if expire is None else CountingByKey(size, slide, expire.ms)


def _expire(source: QueryText, words: Sequence[Token]) -> tuple[Length, Sequence[Token]]:
    """How long a key may be silent, behind PER KEY, and what follows it."""
    if len(words) < 2 or words[1].text.upper() != "KEY":
        raise source.error(words[0], f"PER is followed by KEY here; write {_BY_KEY}")
    if len(words) < 3 or words[2].text.upper() != "EXPIRE":
        raise source.error(
            words[1],
            "windows PER KEY need EXPIRE, or rows of a key that falls silent are held for ever; "
            f"write {_BY_KEY}",
        )
    found, rest = length_after(
        source, words[2], words[3:], f"a number and ms, s, min, h or d; write {_BY_KEY}"
    )
    check_lengths(source, "time to EXPIRE", found)
    if found.unit.value in CALENDAR_UNITS:
        raise source.error(
            words[3], f"how long {found} is depends on a calendar; count days instead"
        )
    return found, rest


def _number(
    source: QueryText, word: Token, following: Sequence[Token]
) -> tuple[int, Sequence[Token]]:
    """The number of rows after a word, and what follows it."""
    text = following[0].text if following else ""
    where = following[0] if following else word
    whole = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    if not whole or not _is_rows(following[1:2]):
        name = word.text.upper()
        raise source.error(where, f"{name} takes a number of rows here; write {_FORM}")
    if not 1 <= int(text) <= ROWS_MAX:
        raise source.error(where, f"a window or slide has from 1 to {ROWS_MAX} rows")
    return int(text), following[2:]


def _is_rows(tokens: Sequence[Token]) -> bool:
    return [token.text.upper() for token in tokens] in (["ROWS"], ["ROW"])


_OPTIONS: Final[Mapping[str, str]] = {
    "delay": "windows of so many rows are full once these are there, and wait for no time",
    "idle_after": "windows of so many rows wait for no other partition",
    "late": "no row comes too late for a window of so many rows",
    "lateness": "no row comes too late for a window of so many rows",
    "watermark": "windows of so many rows go by the numbers of the rows, and by no watermark",
    "key_lag": "windows of so many rows go by the numbers of the rows, and by no watermark",
}
"""Why a task whose windows count rows does not have an option."""


def check_counting(plan: Plan, options: Mapping[str, object]) -> None:
    """Raise Rejected for options that say nothing where windows count rows."""
    if not plan.counts_rows:
        return
    for name, why in _OPTIONS.items():
        if name in options:
            raise Rejected(f"option {name}: {why}; leave it out")
    if plan.folds:
        raise Rejected(
            "option over_max_keys: fold is not possible where windows count rows, because which "
            "groups have a row of their own would depend on how the rows were read; use "
            "over_max_keys: fail, or no max_keys"
        )
    if plan.counts_by_key:
        _check_by_key(plan)


def _check_by_key(plan: Plan) -> None:
    """Raise Rejected for what means nothing where the rows of each key are counted."""
    if not plan.keys:
        raise Rejected(
            "PER KEY counts the rows of each key, and the query groups by none: add one to GROUP "
            "BY, or leave out PER KEY and EXPIRE"
        )
    if plan.options.max_keys is not None:
        raise Rejected(
            "option max_keys counts the groups of a window, and with PER KEY each window is of one "
            "key; leave it out: EXPIRE says when keys are forgotten"
        )
    if plan.order_by or plan.limit is not None:
        raise Rejected(
            "ORDER BY and LIMIT choose among the groups of a window, and with PER KEY each window "
            "is of one key; leave them out"
        )
