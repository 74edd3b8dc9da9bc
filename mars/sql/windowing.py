"""The window of a query: `WINDOWING 60 s [SLIDE 10 s | EVERY 10 s]`, or a call in GROUP BY."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from sqlglot import Token, TokenType, exp

from mars.core.windows import Cumulating, Sliding, WindowShape
from mars.sql.durations import duration_ms
from mars.sql.expressions.scopes import ScopeNames
from mars.sql.source import QueryText
from mars.sql.syntax import Statement
from mars.sql.table_call import TableCall

WINDOW_MS_MIN: Final = 100
"""Shortest window, slide and step: results are committed a few times a second at most."""
WINDOW_MS_MAX: Final = 366 * 86_400_000
"""Longest window: its state is held until it closes, and Kafka must keep its rows for replay."""
PANES_MAX: Final = 10_000
"""Most panes of a window: an owner that takes it over merges all of them at once."""

_FORMS: Final = (
    "WINDOWING 60 s, WINDOWING 60 s SLIDE 10 s, WINDOWING 1 h EVERY 1 min, or in GROUP BY "
    "TUMBLE(ts, INTERVAL '60' SECOND), HOP(ts, INTERVAL '10' SECOND, INTERVAL '60' SECOND) or "
    "CUMULATE(ts, INTERVAL '1' MINUTE, INTERVAL '1' HOUR)"
)
_INTERVAL_UNITS: Final = {
    "MILLISECOND": "ms",
    "SECOND": "s",
    "MINUTE": "min",
    "HOUR": "h",
    "DAY": "d",
}
_NO_INTERVAL: Final = (
    "a duration is needed here; write INTERVAL '60' SECOND, or another unit up to DAY"
)
_NOT_YET: Final = ("LANDMARK", "TIMEZONE")


class _Length(NamedTuple):
    """A length of time, and where it is written."""

    ms: int
    at: Token | exp.Expr


_Shaping: TypeAlias = Callable[[QueryText, _Length, _Length], WindowShape]
"""What makes a shape of a size and of how far apart windows end."""


def is_window_call(node: exp.Expr) -> bool:
    """Whether a GROUP BY item is TUMBLE(...), HOP(...) or CUMULATE(...)."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in _CALLS


def window_of(names: ScopeNames, statement: Statement, calls: Sequence[exp.Expr]) -> WindowShape:
    """The one window of a query: its WINDOWING clause, or its TUMBLE, HOP or CUMULATE, in GROUP BY
    or in FROM.

    A missing window is missed behind the last word of the SELECT.
    """
    source, clause, table = names.source, statement.windowing, statement.call
    if clause and (calls or table):
        raise source.error(clause[0], "the window is given twice; leave out WINDOWING or the call")
    if len(calls) > (table is None):
        raise source.error(calls[-1], "the window is given twice; leave one out")
    if clause:
        return _windowing(source, clause)
    if calls:
        return _window_call(names, calls[0])
    if table:
        return _table_window(names, table)
    raise source.error(statement.select[-1], f"the window is missing after this; write {_FORMS}")


def _windowing(source: QueryText, clause: Sequence[Token]) -> WindowShape:
    for token in clause[1:]:
        if token.text.upper() in _NOT_YET:
            raise source.error(
                token, f"{token.text.upper()} is not supported yet; write WINDOWING 60 s"
            )
    size_ms, rest = _duration(source, clause[0], clause[1:])
    size = apart = _Length(size_ms, clause[0])
    shaping: _Shaping = _sliding
    if rest and rest[0].text.upper() in _WORDS:
        word = rest[0]
        shaping = _WORDS[word.text.upper()]
        apart_ms, rest = _duration(source, word, rest[1:])
        apart = _Length(apart_ms, word)
        if rest and rest[0].text.upper() in _WORDS:
            raise source.error(
                rest[0], "windows either slide or cumulate; leave out SLIDE or EVERY, or the second"
            )
    if rest:
        raise source.error(
            rest[0],
            f"nothing but SLIDE or EVERY may follow here, and WINDOWING comes last; write {_FORMS}",
        )
    return shaping(source, size, apart)


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


def _window_call(names: ScopeNames, call: exp.Expr) -> WindowShape:
    source, arguments, name = names.source, call.expressions, call.name.upper()
    count, shaping = _CALLS[name]
    if len(arguments) != count:
        raise source.error(call, f"{name} is not written like that; write {_FORMS}")
    if not isinstance(arguments[0], exp.Column) or not names.is_event_time(arguments[0]):
        raise source.error(
            arguments[0],
            f"the first argument is the stream's time; write {names.stream.event_time}",
        )
    places = _places(source, call)
    size = _Length(_interval(source, arguments[-1], places[-1]), places[-1])
    return shaping(source, size, _Length(_interval(source, arguments[1], places[1]), places[1]))


def _table_window(names: ScopeNames, call: TableCall) -> WindowShape:
    if not names.is_event_time(exp.column(call.time.text)):
        raise names.source.error(
            call.time,
            f"it is the stream's time that windows go by; write {names.stream.event_time}",
        )
    _count, shaping = _CALLS[call.name.text.upper()]
    lengths = [_written_length(names.source, call, written) for written in call.lengths]
    return shaping(names.source, lengths[-1], lengths[0])


def _written_length(source: QueryText, call: TableCall, written: Sequence[Token]) -> _Length:
    """`INTERVAL '1' MINUTE`, as its words."""
    if len(written) == 3 and written[0].token_type is TokenType.INTERVAL:
        unit = written[2].text.upper().removesuffix("S")
        found = duration_ms(written[1].text.strip(), _INTERVAL_UNITS.get(unit, ""))
        if found is not None:
            return _Length(found, written[0])
    raise source.error(written[0] if written else call.name, _NO_INTERVAL)


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
    raise source.error(where, _NO_INTERVAL)


def _sliding(source: QueryText, size: _Length, slide: _Length) -> Sliding:
    _check_lengths(source, "window or slide", size, slide)
    if slide.ms > size.ms:
        raise source.error(
            slide.at,
            "the slide is longer than the window, so rows would fall between windows; choose a "
            "shorter slide",
        )
    shape = Sliding(size.ms, slide.ms)
    panes = shape.panes_in(size.ms)
    if panes > PANES_MAX:
        raise source.error(
            slide.at,
            f"the window falls into {panes} panes of {shape.pane_ms} ms, at "
            f"most {PANES_MAX} are possible; choose a slide that divides it more evenly",
        )
    return shape


def _cumulating(source: QueryText, size: _Length, step: _Length) -> WindowShape:
    """Of one step alone, which is a tumbling window, nothing cumulates."""
    _check_lengths(source, "window or step", size, step)
    if step.ms > size.ms:
        raise source.error(
            step.at,
            f"the step of {step.ms} ms is longer than the window of {size.ms} ms; choose a shorter "
            "one",
        )
    if size.ms % step.ms:
        raise source.error(
            step.at,
            f"the window of {size.ms} ms is not a multiple of the step of {step.ms} ms; choose a "
            f"step that divides it",
        )
    steps = size.ms // step.ms
    if steps > PANES_MAX:
        raise source.error(
            step.at,
            f"the window has {steps} steps, and all its groups would be emitted at each; at most "
            f"{PANES_MAX} are possible; choose a longer step",
        )
    return Sliding(size.ms, step.ms) if steps == 1 else Cumulating(size.ms, step.ms)


def _check_lengths(source: QueryText, what: str, *lengths: _Length) -> None:
    for length in lengths:
        if not WINDOW_MS_MIN <= length.ms <= WINDOW_MS_MAX:
            days = WINDOW_MS_MAX // 86_400_000
            raise source.error(length.at, f"a {what} has from {WINDOW_MS_MIN} ms to {days} d")


_WORDS: Final[Mapping[str, _Shaping]] = {"SLIDE": _sliding, "EVERY": _cumulating}
"""What may follow a size, with another length."""

_CALLS: Final[Mapping[str, tuple[int, _Shaping]]] = {
    "TUMBLE": (2, _sliding),
    "HOP": (3, _sliding),
    "CUMULATE": (3, _cumulating),
}
"""How many arguments each takes: the time, how far apart windows end, and their size."""
