"""The window of a query: a call in GROUP BY or in FROM, or its clause,

WINDOWING size [SLIDE slide | EVERY step] [OFFSET offset] [TIMEZONE 'zone']
WINDOWING LANDMARK ['time'] EVERY step
WINDOWING number ROWS [SLIDE number ROWS] [PER KEY EXPIRE length]
WINDOWING SESSION gap [MAX length]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from sqlglot import Token, TokenType, exp

from mars.core.windows import Cumulating, Sliding, WindowShape, Zone
from mars.core.windows.zones import shared
from mars.sql.expressions.scopes import ScopeNames
from mars.sql.lengths import (
    CALENDAR_UNITS,
    PANES_MAX,
    Length,
    Place,
    WrittenWindow,
    check_lengths,
    check_offset,
    check_steps,
    length_after,
    length_of,
)
from mars.sql.source import QueryText
from mars.sql.syntax import Statement
from mars.sql.table_call import TableCall
from mars.sql.windows.counting import counting, counts_rows
from mars.sql.windows.landmarks import landmark_of
from mars.sql.windows.sessions import session_of, sessions
from mars.sql.windows.zoned import zoned_cumulating, zoned_sliding

_FORMS: Final = (
    "WINDOWING 60 s, WINDOWING 60 s SLIDE 10 s, WINDOWING 1 h EVERY 1 min, "
    "WINDOWING LANDMARK EVERY 1 min, WINDOWING 1 d TIMEZONE 'Europe/Berlin', WINDOWING 1000 ROWS, "
    "WINDOWING SESSION 30 min, "
    "or in GROUP BY "
    "TUMBLE(ts, INTERVAL '60' SECOND), HOP(ts, INTERVAL '10' SECOND, INTERVAL '60' SECOND) or "
    "CUMULATE(ts, INTERVAL '1' MINUTE, INTERVAL '1' HOUR), SESSION(ts, INTERVAL '30' MINUTE)"
)
_INTERVAL_UNITS: Final = {
    "MILLISECOND": "ms",
    "SECOND": "s",
    "MINUTE": "min",
    "HOUR": "h",
    "DAY": "d",
    "WEEK": "week",
    "MONTH": "month",
    "QUARTER": "quarter",
    "YEAR": "year",
}
_NO_INTERVAL: Final = (
    "a duration is needed here; write INTERVAL '60' SECOND, or another unit up to YEAR"
)
_A_DURATION: Final = (
    "a number and one of ms, s, min, h, d, such as 60 s; in a time zone also of week, month, "
    "quarter, year"
)
ZoneOf: TypeAlias = Callable[[str], Zone | None]
"""Finds a time zone by its name."""


def is_window_call(node: exp.Expr) -> bool:
    """Whether a GROUP BY item is TUMBLE(...) or one of its like."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in _CALLS


def pinned(zone: Zone | None) -> ZoneOf:
    """Finds this time zone and no other, by any name: it is that of the query's definition."""
    return lambda _name: zone


NO_ZONE: Final = pinned(None)


def window_of(
    names: ScopeNames,
    statement: Statement,
    calls: Sequence[exp.Expr],
    zone_of: ZoneOf,
    begin_ms: int | None,
) -> WindowShape:
    """The one window of a query: its WINDOWING clause, or its TUMBLE, HOP or CUMULATE, in GROUP BY
    or in FROM. `begin_ms`: a time in the first step since a landmark that has none of its own.

    A missing window is missed behind the last word of the SELECT.
    """
    source, clause, table = names.source, statement.windowing, statement.call
    if clause and (calls or table):
        raise source.error(clause[0], "the window is given twice; leave out WINDOWING or the call")
    if len(calls) > (table is None):
        raise source.error(calls[-1], "the window is given twice; leave one out")
    if clause[1:2] and clause[1].text.upper() == "LANDMARK":
        return landmark_of(source, clause[1:], begin_ms)
    if clause[1:2] and clause[1].text.upper() == "SESSION":
        return session_of(source, clause[1:])
    if clause:
        by_rows = counts_rows(clause)
        return counting(source, clause) if by_rows else _windowing(source, clause, zone_of)
    if calls:
        return _window_call(names, calls[0], zone_of)
    if table:
        return _table_window(names, table)
    raise source.error(statement.select[-1], f"the window is missing after this; write {_FORMS}")


def _windowing(source: QueryText, clause: Sequence[Token], zone_of: ZoneOf) -> WindowShape:
    size, rest = length_after(source, clause[0], clause[1:], _A_DURATION)
    apart, offset, zone = size._replace(at=clause[0]), None, None
    word, given = "SLIDE", set[str]()
    while rest:
        at, name = rest[0], rest[0].text.upper()
        if name not in _MAY_FOLLOW:
            raise source.error(
                at,
                f"nothing but {', '.join(_MAY_FOLLOW)} may follow here, and WINDOWING comes last; "
                f"write {_FORMS}",
            )
        if _MAY_FOLLOW[name] in given:
            raise source.error(at, _TWICE.get(name, f"{name} stands here twice; write it once"))
        given.add(_MAY_FOLLOW[name])
        if name == "TIMEZONE":
            zone, rest = _zone(source, at, rest[1:2], zone_of), rest[2:]
            continue
        found, rest = length_after(source, at, rest[1:], _A_DURATION)
        found = found._replace(at=at)
        if name == "OFFSET":
            offset = found
        else:
            apart, word = found, name
    return _shaped(source, word, WrittenWindow(size._replace(at=clause[0]), apart, offset), zone)


def _zone(source: QueryText, word: Place, following: Sequence[Place], zone_of: ZoneOf) -> Zone:
    """The zone whose name is written there."""
    name = _text(following[0]) if following else None
    if name is None:
        where = following[0] if following else word
        raise source.error(
            where, "TIMEZONE takes the name of a time zone as text, such as 'Europe/Berlin'"
        )
    zone = zone_of(name)
    if zone is None:
        raise source.error(
            following[0],
            f"there is no time zone {name[:40]!r}; choose a name of the IANA database, such "
            "as 'Europe/Berlin', 'Asia/Shanghai' or 'UTC'",
        )
    return shared(zone)


def _text(place: Place) -> str | None:
    """A text that is written there."""
    if isinstance(place, Token):
        return place.text if place.token_type is TokenType.STRING else None
    return place.name if isinstance(place, exp.Literal) and place.is_string else None


def _window_call(names: ScopeNames, call: exp.Expr, zone_of: ZoneOf) -> WindowShape:
    source, arguments, name = names.source, call.expressions, call.name.upper()
    count, word = _CALLS[name]
    places = _places(source, call)
    zone = None
    if len(arguments) > count and _text(arguments[-1]) is not None:
        zone = _zone(source, call, places[-1:], zone_of)
        arguments, places = arguments[:-1], places[:-1]
    if len(arguments) not in (count, count + 1) or (zone is not None and word == "SESSION"):
        raise source.error(call, f"{name} is not written like that; write {_FORMS}")
    if not isinstance(arguments[0], exp.Column) or not names.is_event_time(arguments[0]):
        raise source.error(
            arguments[0],
            f"the first argument is the stream's time; write {names.stream.event_time}",
        )
    lengths = [
        _interval(source, argument, place)
        for argument, place in zip(arguments[1:], places[1:], strict=True)
    ]
    return _shaped(source, word, _written(lengths, count), zone)


def _table_window(names: ScopeNames, call: TableCall) -> WindowShape:
    if not names.is_event_time(exp.column(call.time.text)):
        raise names.source.error(
            call.time,
            "windows go by the event time of the stream; write DESCRIPTOR("
            f"{names.stream.event_time})",
        )
    count, word = _CALLS[call.name.text.upper()]
    lengths = [_written_length(names.source, call, written) for written in call.lengths]
    return _shaped(names.source, word, _written(lengths, count), None)


def _written(lengths: Sequence[Length], count: int) -> WrittenWindow:
    """How far apart windows end, their size, and an offset where there is one more."""
    size = lengths[count - 2]
    return WrittenWindow(size, lengths[0], lengths[count - 1] if len(lengths) == count else None)


def _written_length(source: QueryText, call: TableCall, written: Sequence[Token]) -> Length:
    """`INTERVAL '1' MINUTE`, as its words."""
    if len(written) == 3 and written[0].token_type is TokenType.INTERVAL:
        unit = written[2].text.upper().removesuffix("S")
        found = length_of(written[1].text.strip(), _INTERVAL_UNITS.get(unit, ""), written[0])
        if found is not None:
            return found
    raise source.error(written[0] if written else call.name, _NO_INTERVAL)


def _places(source: QueryText, call: exp.Expr) -> list[Place]:
    """Where the arguments of a call stand; the parser forgets it of `INTERVAL 60 SECOND`."""
    begin = source.index_of(call) or 0
    following = source.tokens[begin:]
    intervals = (token for token in following if token.token_type is TokenType.INTERVAL)
    return [
        next(intervals, argument) if isinstance(argument, exp.Interval) else argument
        for argument in call.expressions
    ]


def _interval(source: QueryText, node: exp.Expr, where: Place) -> Length:
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        written = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
        found = length_of(node.this.name.strip(), _INTERVAL_UNITS.get(written, ""), where)
        if found is not None:
            return found
    raise source.error(where, _NO_INTERVAL)


def _shaped(source: QueryText, word: str, written: WrittenWindow, zone: Zone | None) -> WindowShape:
    """The shape of windows that slide, or cumulate, or of sessions."""
    if word == "SESSION":
        return sessions(source, written.size, written.offset)
    if zone is not None:
        zoned = zoned_sliding if word == "SLIDE" else zoned_cumulating
        return zoned(source, zone, written)
    for length in (written.size, written.apart, written.offset):
        if length is not None and length.unit.value in CALENDAR_UNITS:
            raise source.error(
                length.at,
                f"how long {length} is depends on a calendar, and when it begins on a clock; write "
                f"whose: WINDOWING {length} TIMEZONE 'UTC', or 'UTC' as a call's last argument",
            )
    return _sliding(source, written) if word == "SLIDE" else _cumulating(source, written)


def _sliding(source: QueryText, written: WrittenWindow) -> Sliding:
    size, slide = written.size, written.apart
    check_lengths(source, "window or slide", size, slide)
    if slide.ms > size.ms:
        raise source.error(
            slide.at,
            "the slide is longer than the window, so rows would fall between windows; choose a "
            "shorter slide",
        )
    check_offset(source, written, slide.ms)
    shape = Sliding(size.ms, slide.ms, written.offset_ms)
    panes = shape.panes_in(size.ms)
    if panes > PANES_MAX:
        raise source.error(
            slide.at,
            f"the window falls into {panes} panes of {shape.pane_ms} ms, at "
            f"most {PANES_MAX} are possible; choose a slide that divides it more evenly",
        )
    return shape


def _cumulating(source: QueryText, written: WrittenWindow) -> WindowShape:
    """Of one step alone, which is a tumbling window, nothing cumulates."""
    size, step = written.size, written.apart
    check_lengths(source, "window or step", size, step)
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
            "step that divides it",
        )
    check_offset(source, written, size.ms)
    steps = size.ms // step.ms
    check_steps(source, step, steps)
    shape = Cumulating(size.ms, step.ms, written.offset_ms)
    return Sliding(size.ms, step.ms, written.offset_ms) if steps == 1 else shape


_MAY_FOLLOW: Final[Mapping[str, str]] = {
    "SLIDE": "windows overlap",
    "EVERY": "windows overlap",
    "OFFSET": "they begin later",
    "TIMEZONE": "whose clock",
}
"""What may follow a size, and what it says, which is said once."""

_TWICE: Final[Mapping[str, str]] = dict.fromkeys(
    ("SLIDE", "EVERY"),
    "windows either slide or cumulate; leave out SLIDE or EVERY, or the second",
)

_CALLS: Final[Mapping[str, tuple[int, str]]] = {
    "TUMBLE": (2, "SLIDE"),
    "HOP": (3, "SLIDE"),
    "CUMULATE": (3, "EVERY"),
    "SESSION": (2, "SESSION"),
}
"""How many arguments each takes: the time, how far apart windows end, and their size. An offset may
follow, and in GROUP BY a zone. Of sessions it is the gap; how long they are at most may follow."""
