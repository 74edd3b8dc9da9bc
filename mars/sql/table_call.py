"""Flink's form of a window, which stands for a stream: `FROM TABLE(CUMULATE(TABLE flows, ...))`.

    FROM TABLE(CUMULATE(TABLE flows, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' DAY))
    GROUP BY window_start, window_end, ...

It is read word by word, and cut out of the query, which is left with the name of the stream. Its
arguments stand in Flink's order, or are named: `DATA => TABLE flows, TIMECOL => DESCRIPTOR(ts)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import Token, TokenType, exp

from mars.core.plan import WINDOW_END, WINDOW_START
from mars.sql.source import QueryText

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP", "MAX"),
}
"""What each takes, in order: the last may be left out."""

FORM: Final = (
    "TABLE(CUMULATE(TABLE flows, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' DAY)), or "
    "TUMBLE or HOP instead; or TABLE(SESSION(TABLE flows PARTITION BY sip, DESCRIPTOR(ts), "
    "INTERVAL '30' MINUTE))"
)


@dataclass(frozen=True, slots=True)
class TableCall:
    """A call that stands for a stream: its name, what it reads, and its lengths.

    `lengths` are those between time and size, if there is one, the size, and an offset, if there is
    one. `partition` names the columns whose values each have sessions of their own.
    """

    name: Token
    stream: Token
    time: Token
    lengths: tuple[tuple[Token, ...], ...]
    partition: tuple[Token, ...] = ()


def table_call(source: QueryText, tokens: Sequence[Token], at: int) -> tuple[TableCall, int] | None:
    """The call that begins at a place, and the place behind it; None where there is none.

    Raises `SqlError` for one that is not as it should be.
    """
    is_wrapped = _texts(tokens, at, 2) == ["TABLE", "("]
    begin = at + 2 if is_wrapped else at
    is_call = _texts(tokens, begin + 1, 1) == ["("]
    if not is_call or not (is_wrapped or _texts(tokens, begin + 2, 1)[:1] in (["TABLE"], ["DATA"])):
        return None
    name = tokens[begin]
    parameters = PARAMETERS.get(name.text.upper())
    if parameters is None:
        raise source.error(name, f"{name.text[:20]} makes no windows here; write {FORM}")
    end = _closing(tokens, begin + 1)
    given = _named(source, name, parameters, _split(tokens[begin + 2 : end]))
    if is_wrapped and _texts(tokens, end + 1, 1) != [")"]:
        raise source.error(tokens[min(end + 1, len(tokens) - 1)], f"a ')' is missing; write {FORM}")
    data, partition = _partitioned(source, name, given)
    call = TableCall(
        name,
        _inside(source, name, data, "TABLE"),
        _inside(source, name, given["TIMECOL"], "DESCRIPTOR"),
        tuple(tuple(given[parameter]) for parameter in parameters[2:] if parameter in given),
        partition,
    )
    return call, end + 2 if is_wrapped else end + 1


def check_grouped(source: QueryText, call: TableCall, group: exp.Expr | None) -> None:
    """Raise `SqlError` unless a query groups by both columns of the window: elsewhere it would mean
    another thing.
    """
    items = () if group is None else group.expressions
    names = {item.name.lower() for item in items if isinstance(item, exp.Column)}
    plain = all(isinstance(item, exp.Column) for item in items)
    windows = {WINDOW_START, WINDOW_END}
    partition = {token.text.lower() for token in call.partition}
    if call.name.text.upper() == "SESSION" and (names - windows != partition or not plain):
        raise source.error(
            call.name,
            "sessions are those of each group: PARTITION BY names the same columns as GROUP BY "
            f"does besides {WINDOW_START} and {WINDOW_END}, all of them columns",
        )
    missing = [name for name in (WINDOW_START, WINDOW_END) if name not in names]
    if missing:
        raise source.error(
            call.name,
            f"each window of {call.name.text.upper()} is grouped by itself; add "
            f"{' and '.join(missing)} to GROUP BY",
        )


def _texts(tokens: Sequence[Token], at: int, count: int) -> list[str]:
    return [token.text.upper() for token in tokens[at : at + count]]


def _closing(tokens: Sequence[Token], at: int) -> int:
    """Where the bracket is closed that is opened at a place: all of a query are."""
    depth = 0
    for place in range(at, len(tokens)):
        kind = tokens[place].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if not depth:
            return place
    return len(tokens) - 1


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Arguments, which commas part that stand in no further brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        kind = token.token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if kind is TokenType.COMMA and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _named(
    source: QueryText, call: Token, parameters: Sequence[str], arguments: Sequence[list[Token]]
) -> dict[str, list[Token]]:
    """The arguments by what they are, whether they are named or stand in order."""
    found: dict[str, list[Token]] = {}
    for argument, at_this_place in zip(arguments, parameters, strict=False):
        is_named = [token.token_type for token in argument[1:2]] == [TokenType.FARROW]
        name = argument[0].text.upper() if is_named else at_this_place
        found[name] = argument[2:] if is_named else argument
    needed = set(parameters[:-1])
    if len(arguments) != len(found) or not needed <= found.keys() <= set(parameters):
        raise source.error(call, f"{call.text.upper()} is not written like that; write {FORM}")
    return found


def _partitioned(
    source: QueryText, call: Token, given: Mapping[str, Sequence[Token]]
) -> tuple[Sequence[Token], tuple[Token, ...]]:
    """The table, and the columns behind PARTITION BY, which sessions alone have."""
    data = given["DATA"]
    order = next((one for one in data if one.token_type is TokenType.ORDER_BY), None)
    if order is not None:
        raise source.error(order, "windows take rows by event time; leave out ORDER BY")
    at = next((at for at, one in enumerate(data) if one.token_type is TokenType.PARTITION_BY), None)
    if at is None or call.text.upper() != "SESSION":
        return data, ()
    behind = data[at + 1 :]
    in_brackets = [one.token_type for one in behind[:1]] == [TokenType.L_PAREN]
    if behind and not in_brackets and _texts(given["TIMECOL"], 0, 1) != ["DESCRIPTOR"]:
        raise source.error(data[at], "several columns stand in brackets: PARTITION BY (sip, type)")
    parts = _split(behind[1:-1] if in_brackets else behind)
    return data[:at], tuple(_column(source, data[at], data[at - 1], part) for part in parts)


def _column(source: QueryText, clause: Token, table: Token, part: Sequence[Token]) -> Token:
    """The column in `name` or `table.name`."""
    if len(part) == 3 and part[0].text == table.text and part[1].token_type is TokenType.DOT:
        return part[2]
    if len(part) != 1:
        where = part[0] if part else clause
        raise source.error(where, f"PARTITION BY names columns of the table; write {FORM}")
    return part[0]


def _inside(source: QueryText, call: Token, argument: Sequence[Token], word: str) -> Token:
    """The name in `TABLE name` or `DESCRIPTOR(name)`."""
    signs = [token for token in argument if token.text not in ("(", ")")]
    bare = len(argument) == 2 if word == "TABLE" else len(argument) == 4
    if not bare or len(signs) != 2 or signs[0].text.upper() != word:
        where = argument[0] if argument else call
        raise source.error(where, f"{word} and a name belong here; write {FORM}")
    return signs[1]
