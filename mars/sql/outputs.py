"""The SELECT list: what the results are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from mars.core.plan import Expression, Output
from mars.sql.expressions.compiler import Compiler
from mars.sql.expressions.groups import aggregate_call
from mars.sql.expressions.operands import strip
from mars.sql.expressions.scopes import WINDOW_COLUMNS, ScopeNames

OUTPUTS_MAX: Final = 64
"""Most items of a SELECT list: each is a member of every result row."""
NAME_CHARACTERS_MAX: Final = 128
"""Longest name of an item: it is written into every result row."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the SELECT list: its node without AS, and its name if it has one."""

    node: exp.Expr
    name: str | None
    named_at: exp.Expr


def items_of(names: ScopeNames, select: exp.Select) -> list[Item]:
    """The items of a SELECT list with their names."""
    nodes = select.expressions
    if not nodes:
        raise names.source.error(
            names.source.tokens[0], "the SELECT list is empty; name columns and aggregates"
        )
    if len(nodes) > OUTPUTS_MAX:
        raise names.source.error(nodes[OUTPUTS_MAX], f"SELECT has at most {OUTPUTS_MAX} items")
    return [_item(names, node) for node in nodes]


def _item(names: ScopeNames, node: exp.Expr) -> Item:
    if not isinstance(node, exp.Alias):
        return Item(node, _default_name(names, node), node)
    name = node.alias
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise names.source.error(
            node.args["alias"], f"a name has from 1 to {NAME_CHARACTERS_MAX} characters"
        )
    return Item(node.this, name, node.args["alias"])


def _default_name(names: ScopeNames, node: exp.Expr) -> str | None:
    """A column's name; `count`, `sum_bytes`, `count_distinct_sip` for an aggregate of one."""
    bare = strip(node)
    if isinstance(bare, exp.Column) and not isinstance(bare.this, exp.Star):
        return _column_name(names, bare)
    if isinstance(bare, exp.Star):
        raise names.source.error(bare, "SELECT * is not supported; name columns and aggregates")
    call = aggregate_call(bare)
    return None if call is None else _aggregate_name(names, call)


def _column_name(names: ScopeNames, column: exp.Column) -> str:
    found = names.field_of(column)
    if found:
        return found.name
    lowered = column.name.lower()
    return lowered if lowered in WINDOW_COLUMNS else column.name


def _aggregate_name(names: ScopeNames, call: exp.Expr) -> str | None:
    function = names.source.called(call).lower() or call.key
    inner = call.this
    if isinstance(inner, exp.Star | exp.Literal) and isinstance(call, exp.Count):
        return function
    if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
        function, inner = f"{function}_distinct", inner.expressions[0]
    inner = strip(inner) if inner is not None else None
    if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
        return f"{function}_{_column_name(names, inner)}"
    return None


def outputs_of(
    names: ScopeNames, items: list[Item], compiler: Compiler
) -> tuple[tuple[Output, ...], dict[str, Expression]]:
    """The outputs of a plan, and every item's expression by its name.

    Result rows carry `window_start` and `window_end` by themselves: selected under their own
    names they are no outputs, and nothing else may have these names.
    """
    expressions: dict[str, Expression] = {}
    outputs: list[Output] = []
    for item in items:
        expression = compiler.expression(item.node)
        if item.name is None:
            raise names.source.error(item.node, "this item has no name; add one with AS")
        own = WINDOW_COLUMNS.get(item.name)
        if item.name in expressions:
            raise names.source.error(
                item.named_at, f"two items are called {item.name!r}; name one with AS"
            )
        if own is not None and own != expression:
            raise names.source.error(
                item.named_at, f"{item.name} is the window's own in results; choose another name"
            )
        expressions[item.name] = expression
        if own is None:
            outputs.append(Output(item.name, expression))
    return tuple(outputs), expressions
