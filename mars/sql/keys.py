"""GROUP BY: the keys of a query, and the call that says its window among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from mars.core.errors import SqlError
from mars.core.plan import Call, Column, Expression, Key
from mars.sql.expressions.naming import find_name
from mars.sql.expressions.operands import strip
from mars.sql.expressions.scalars import row_compiler
from mars.sql.expressions.scopes import KeyScope, ScopeNames, is_window_column
from mars.sql.outputs import Item
from mars.sql.windowing import is_window_call

KEYS_MAX: Final = 64
"""Most keys of a task: each is a column of every partial and a part of every result key."""

PartsCheck = Callable[[exp.Expr, Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class Grouping:
    """The keys in the order of the result key, and the window calls."""

    keys: tuple[Key, ...]
    window_calls: tuple[exp.Expr, ...]


def grouping_of(names: ScopeNames, group: exp.Expr | None, items: Sequence[Item]) -> Grouping:
    """The keys of a GROUP BY clause: those selected, in SELECT order, then the rest."""
    compiler = row_compiler(names.source, KeyScope(names))
    calls: list[exp.Expr] = []
    keys: dict[Expression, None] = {}
    for written in _written(names, group, compiler.check_parts):
        node = _meant(names, written, items)
        if is_window_call(node):
            calls.append(node)
        elif not (isinstance(node, exp.Column) and is_window_column(names, node)):
            expression = compiler.expression(node)
            if not has_column(expression):
                raise names.source.error(
                    written, "GROUP BY a constant makes one group; leave it out"
                )
            keys[expression] = None
    if len(keys) > KEYS_MAX:
        raise names.source.error(group or 0, f"a task has at most {KEYS_MAX} keys")
    selected = dict.fromkeys(_over_rows(compiler.expression, item) for item in items)
    order = [key for key in selected if key is not None and key in keys]
    order += [key for key in keys if key not in order]
    ordered = tuple(Key(f"k{at}", key) for at, key in enumerate(order))
    return Grouping(ordered, tuple(calls))


def _written(names: ScopeNames, group: exp.Expr | None, check_parts: PartsCheck) -> list[exp.Expr]:
    """The items of a GROUP BY clause as they stand there."""
    if group is None:
        return []
    check_parts(group, ("expressions",))
    if not group.expressions:
        raise names.source.error(group, "GROUP BY names nothing; name columns or leave it out")
    return group.expressions


def _meant(names: ScopeNames, node: exp.Expr, items: Sequence[Item]) -> exp.Expr:
    """What a GROUP BY item stands for: itself, or the SELECT item it counts off or names."""
    bare = strip(node)
    if isinstance(bare, exp.Literal) and not bare.is_string:
        return strip(ordinal(names, bare, items).node)
    if isinstance(bare, exp.Column) and not bare.table:
        means_itself = names.field_of(bare) or is_window_column(names, bare)
        named = {item.name: item for item in reversed(items) if item.name is not None}
        found = None if means_itself else find_name(bare.name, named)
        if found is not None:
            return strip(named[found].node)
    return bare


def ordinal(names: ScopeNames, literal: exp.Literal, items: Sequence[Item]) -> Item:
    """The SELECT item that a number in GROUP BY or ORDER BY counts off, from 1."""
    text = literal.name
    position = int(text) if text.isdecimal() and len(text) < 4 else 0
    if not 1 <= position <= len(items):
        raise names.source.error(
            literal,
            f"{text[:20]} is not a position in the SELECT list, which has {len(items)} items; use "
            "one of these, or a name",
        )
    return items[position - 1]


def has_column(expression: Expression) -> bool:
    """Whether an expression is more than a constant."""
    match expression:
        case Call(arguments=arguments):
            return any(map(has_column, arguments))
    return isinstance(expression, Column)


def _over_rows(compile_: Callable[[exp.Expr], Expression], item: Item) -> Expression | None:
    """The item as an expression over rows, if it is one."""
    try:
        return compile_(item.node)
    except SqlError:
        return None
