"""Windows of so many rows, as a query writes them: `WINDOWING 1000 ROWS [SLIDE 100 ROWS]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import Token, TokenType

from mars.core.errors import Rejected
from mars.core.plan import Plan
from mars.core.windows import Counting
from mars.sql.lengths import PANES_MAX
from mars.sql.source import QueryText

ROWS_MAX: Final = 10_000_000
"""Most rows of a window: until it is full its state is held, and Kafka must keep its rows."""

_FORM: Final = "WINDOWING 1000 ROWS or WINDOWING 1000 ROWS SLIDE 100 ROWS"

_DIGITS_MAX: Final = 12

_NOTHING_FOLLOWS: Final[Mapping[str, str]] = {
    "PER": "windows of so many rows are those of a partition; PER KEY is not supported yet: leave "
    "it out, or have the producer give each key a partition of its own",
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
    panes = shape.panes_in(size)
    if panes > PANES_MAX:
        raise source.error(
            at,
            f"the window falls into {panes} slices of {size // panes} rows, at most {PANES_MAX} "
            "are possible; choose a slide that divides it more evenly",
        )
    return shape


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
