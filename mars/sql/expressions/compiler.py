"""The heart of compiling expressions: dispatch by the kind of a node, on an allow-list.

A kind of node that has no form is refused, and so is any part of a node that its form does not
name: what sqlglot learns to parse later stays refused until it is wanted.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from mars.core.errors import SqlError
from mars.core.plan import Expression, ValueType
from mars.sql.examples import AGGREGATES, SCALARS, written
from mars.sql.expressions.operands import Operand, Rules
from mars.sql.expressions.scopes import Scope
from mars.sql.source import GRAMMAR, QueryText

EXPRESSION_NODES_MAX: Final = 10_000
"""Largest expression after BETWEEN, CASE x WHEN and || have repeated their operands."""

_NAMES: Final[Mapping[str, str]] = {
    "table": "FROM",
    "tablealias": "AS",
    "group": "GROUP BY",
    "order": "ORDER BY",
    "ordered": "ORDER BY",
    "star": "*",
}
"""Of nodes that people call otherwise than the parser does."""

_NEAR: Final = 0.7
"""How alike names must be for one to be meant by the other: median is no min."""

_NO_CLOCK: Final = "leave it out: a query knows no time but that of its rows"
_WINDOW_CALLS: Final = ("tumble", "hop", "cumulate", "session")
_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("count_distinct", "approx_count_distinct"), "write count(DISTINCT x)"),
    **dict.fromkeys((f"{each}_start" for each in _WINDOW_CALLS), "write window_start"),
    **dict.fromkeys((f"{each}_end" for each in _WINDOW_CALLS), "write window_end"),
    **dict.fromkeys(("now", "current_timestamp", "unix_timestamp"), _NO_CLOCK),
    **dict.fromkeys(
        ("first_value", "last_value", "earliest_by_offset", "latest_by_offset"),
        "write min(x), max(x) or any_value(x): no aggregate goes by the order of rows",
    ),
    "topk": "write ORDER BY x DESC LIMIT n",
    "date_trunc": "write WINDOWING 1 h, as windows cut time into pieces",
}
"""What stands here for functions of other engines."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a kind of node is compiled, and which of its parts may be there."""

    compile: Callable[[Compiler, Any], Operand]
    parts: frozenset[str]


Forms = Mapping[type[exp.Expr], Form]


class Compiler:
    """Compiles nodes to typed expressions; columns mean what they mean in one scope."""

    key_chains: frozenset[int] = frozenset()
    """How many parts those group keys have that are chains of `||`."""

    def __init__(self, source: QueryText, scope: Scope, forms: Forms) -> None:
        self.source = source
        self.scope = scope
        self.rules = Rules(source)
        self._forms = forms

    def expression(self, node: exp.Expr) -> Expression:
        """The expression of a node; a bare NULL is an integer's."""
        return self.operand(node).given(ValueType.INT64).expression

    def condition(self, node: exp.Expr) -> Expression:
        """The expression of a node that must be a boolean."""
        return self.rules.want(self.operand(node), self.scope.clause, ValueType.BOOL).expression

    def operand(self, node: exp.Expr) -> Operand:
        """The typed operand that a node is; raises `SqlError`."""
        form = self._forms.get(type(node))
        if form is None:
            raise self.unsupported(node)
        self.check_parts(node, form.parts)
        return form.compile(self, node)

    def is_key(self, node: exp.Expr) -> bool:
        """Whether a node is a group key, whatever it is made of."""
        return False

    def both(self, node: exp.Expr) -> tuple[Operand, Operand]:
        """The two operands of an operator, or arguments of a function."""
        return self.operand(node.this), self.operand(node.args["expression"])

    def bounded(self, operand: Operand) -> Operand:
        """The operand, unless repeating its parts has made it too large."""
        if size_of(operand.expression, EXPRESSION_NODES_MAX) > EXPRESSION_NODES_MAX:
            raise self.source.error(operand.node, "this expression is too large; simplify it")
        return operand

    def check_parts(self, node: exp.Expr, parts: Iterable[str]) -> None:
        """Refuse a node with a part that is not on the list."""
        for name, part in node.args.items():
            if part and name not in parts:
                where = part[0] if isinstance(part, list) else part
                raise self.other_form(node, where if isinstance(where, exp.Expr) else node)

    def other_form(self, node: exp.Expr, where: exp.Expr) -> SqlError:
        """The error for something that is known, but not as it is written."""
        return self.source.error(
            where, f"this form of {self.named(node)} is not supported; {self.instead(node)}"
        )

    def instead(self, node: exp.Expr) -> str:
        """What may be written where something like a node is wanted."""
        example = written(self.key(node))
        return f"write it as in {example}" if example else f"write {GRAMMAR}"

    def key(self, node: exp.Expr) -> str:
        """Under what the examples have a node."""
        return node.key

    def unsupported(self, node: exp.Expr) -> SqlError:
        """The error for a kind of node that is not on the list."""
        if isinstance(node, exp.Star):
            return self.source.error(node, "* is not supported here; name the columns")
        if isinstance(node, exp.Filter):
            return self.source.error(node, f"FILTER belongs behind one of {_listed(AGGREGATES)}")
        if isinstance(node, exp.Func | exp.IgnoreNulls) and not isinstance(node, exp.Connector):
            return self._unsupported_function(node)
        return self.source.error(
            node,
            f"{self.named(node)} is not supported here; there are arithmetic, comparisons, AND, "
            f"OR, NOT, IN, BETWEEN, LIKE, IS NULL and {_listed(SCALARS)}",
        )

    def _unsupported_function(self, node: exp.Expr) -> SqlError:
        name = self.named(node)
        if name in AGGREGATES:
            hint = "use HAVING" if self.scope.clause == "WHERE" else "use plain columns"
            return self.source.error(node, f"{self.scope.clause} cannot hold {name}(); {hint}")
        near = difflib.get_close_matches(name, [*SCALARS, *AGGREGATES], 1, _NEAR)
        hint = (
            f"did you mean {near[0]}?" if near else f"there are {_listed([*SCALARS, *AGGREGATES])}"
        )
        return self.source.error(
            node, f"there is no function {name}(); {_ELSEWHERE.get(name, hint)}"
        )

    def named(self, node: exp.Expr) -> str:
        """What a node is called, as the query writes it where that is a function."""
        if isinstance(node, exp.Func | exp.IgnoreNulls):
            return self.source.called(node).lower()[:40] or node.key
        return _NAMES.get(node.key, node.key.upper())


def size_of(expression: Expression, enough: int) -> int:
    """Number of nodes of an expression, counted no further than just beyond `enough`."""
    size, pending = 0, [expression]
    while pending and size <= enough:
        size += 1
        pending.extend(getattr(pending.pop(), "arguments", ()))
    return size


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
