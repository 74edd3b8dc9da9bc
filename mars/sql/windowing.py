"""The window of a query: `WINDOWING 60 s [SLIDE 10 s]`, `TUMBLE(...)` or `HOP(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import Token, TokenType, exp

from mars.core.errors import SqlError
from mars.core.windows import Sliding
from mars.sql.durations import duration_ms
from mars.sql.expressions.scopes import ScopeNames
from mars.sql.source import QueryText

WINDOW_MS_MIN: Final = 100
"""Shortest window and slide: results are committed a few times a second at most."""
WINDOW_MS_MAX: Final = 366 * 86_400_000
"""Longest window: its state is held until it closes, and Kafka must keep its rows for replay."""
PANES_MAX: Final = 10_000
"""Most panes of a window: an owner that takes it over merges all of them at once."""

_FORMS: Final = (
    "WINDOWING 60 s, WINDOWING 60 s SLIDE 10 s, or in GROUP BY "
    "TUMBLE(ts, INTERVAL '60' SECOND) or HOP(ts, INTERVAL '10' SECOND, INTERVAL '60' SECOND)"
)
_INTERVAL_UNITS: Final = {
    "MILLISECOND": "ms",
    "SECOND": "s",
    "MINUTE": "min",
    "HOUR": "h",
    "DAY": "d",
}
_NOT_YET: Final = ("LANDMARK", "TIMEZONE", "EVERY")


def is_window_call(node: exp.Expr) -> bool:
    """Whether a GROUP BY item is TUMBLE(...) or HOP(...)."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in ("TUMBLE", "HOP")


def window_of(
    names: ScopeNames, clause: Sequence[Token], calls: Sequence[exp.Expr], end: Token
) -> Sliding:
    """The one window of a query: its WINDOWING clause or its TUMBLE or HOP.

    `end` is the last word of the SELECT, where a missing window is missed.
    """
    source = names.source
    if clause and calls:
        raise source.error(clause[0], "the window is given twice; leave out WINDOWING or the call")
    if len(calls) > 1:
        raise source.error(calls[1], "the window is given twice; leave one out")
    if clause:
        return _windowing(source, clause)
    if calls:
        return _window_call(names, calls[0])
    raise source.error(end, f"the window is missing after this; write {_FORMS}")


def _windowing(source: QueryText, clause: Sequence[Token]) -> Sliding:
    for token in clause[1:]:
        if token.text.upper() in _NOT_YET:
            raise source.error(
                token, f"{token.text.upper()} is not supported yet; write WINDOWING 60 s"
            )
    size_ms, rest = _duration(source, clause[0], clause[1:])
    slide_ms, slide_at = size_ms, clause[0]
    if rest and rest[0].text.upper() == "SLIDE":
        slide_at = rest[0]
        slide_ms, rest = _duration(source, rest[0], rest[1:])
    if rest:
        raise source.error(
            rest[0], f"nothing but SLIDE may follow here, and WINDOWING comes last; write {_FORMS}"
        )
    return _checked(source, size_ms, slide_ms, clause[0], slide_at)


def _duration(
    source: QueryText, word: Token, following: Sequence[Token]
) -> tuple[int, Sequence[Token]]:
    """The duration after a word, and what follows it."""
    where = following[0] if following else word
    kinds = [token.token_type for token in following[:2]]
    if kinds == [TokenType.NUMBER, TokenType.VAR]:
        found = duration_ms(following[0].text, following[1].text)
        if found is not None:
            return found, following[2:]
    raise source.error(
        where, f"{word.text.upper()} takes a number and one of s, min, h, d, such as 60 s"
    )


def _window_call(names: ScopeNames, call: exp.Expr) -> Sliding:
    source, arguments = names.source, call.expressions
    is_hop = call.name.upper() == "HOP"
    if len(arguments) != 2 + is_hop:
        raise source.error(call, f"{call.name.upper()} does not look like that; write {_FORMS}")
    if not isinstance(arguments[0], exp.Column) or not names.is_event_time(arguments[0]):
        raise source.error(
            arguments[0],
            f"the first argument is the stream's time; write {names.stream.event_time}",
        )
    places = _places(source, call)
    size_ms = _interval(source, arguments[-1], places[-1])
    slide_ms = _interval(source, arguments[1], places[1])
    return _checked(source, size_ms, slide_ms, places[-1], places[1])


def _places(source: QueryText, call: exp.Expr) -> list[Token | exp.Expr]:
    """Where the arguments of a call stand; the parser forgets it of `INTERVAL 60 SECOND`."""
    begin = source.index_of(call) or 0
    following = source.tokens[begin:]
    intervals = (token for token in following if token.token_type is TokenType.INTERVAL)
    return [
        next(intervals, argument) if isinstance(argument, exp.Interval) else argument
        for argument in call.expressions
    ]


def _interval(source: QueryText, node: exp.Expr, where: Token | exp.Expr) -> int:
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        written = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
        found = duration_ms(node.this.name.strip(), _INTERVAL_UNITS.get(written, ""))
        if found is not None:
            return found
    raise source.error(
        where, "a duration is needed here; write INTERVAL '60' SECOND, or another unit up to DAY"
    )


def _checked(
    source: QueryText,
    size_ms: int,
    slide_ms: int,
    size_at: Token | exp.Expr,
    slide_at: Token | exp.Expr,
) -> Sliding:
    def refuse(where: Token | exp.Expr, detail: str) -> SqlError:
        return source.error(where, detail)

    for length_ms, where in ((size_ms, size_at), (slide_ms, slide_at)):
        if not WINDOW_MS_MIN <= length_ms <= WINDOW_MS_MAX:
            days = WINDOW_MS_MAX // 86_400_000
            raise refuse(where, f"a window or slide has from {WINDOW_MS_MIN} ms to {days} d")
    if slide_ms > size_ms:
        raise refuse(
            slide_at,
            "the slide is longer than the window, rows would fall between; choose a shorter one",
        )
    shape = Sliding(size_ms, slide_ms)
    panes = shape.panes_in(size_ms)
    if panes > PANES_MAX:
        raise refuse(
            slide_at,
            f"the window falls into {panes} panes of {shape.pane_ms} ms, at "
            f"most {PANES_MAX} are possible; choose a slide that divides it more evenly",
        )
    return shape
