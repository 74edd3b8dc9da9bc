"""Names and constants."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from sqlglot import exp

from mars.core.plan import Literal, ValueType
from mars.sql.expressions.compiler import Compiler, Form, Forms
from mars.sql.expressions.operands import Operand

INT64_MAX: Final = 2**63 - 1
_INT64_DIGITS: Final = 19


def _column(compiler: Compiler, node: exp.Column) -> Operand:
    if isinstance(node.this, exp.Star):
        raise compiler.unsupported(node.this)
    return Operand(node, compiler.scope.resolve(node))


def _literal(compiler: Compiler, node: exp.Literal) -> Operand:
    if node.is_string:
        return Operand(node, Literal(node.name, ValueType.STRING))
    return Operand(node, number(compiler, node, node.name, negative=False))


def number(compiler: Compiler, node: exp.Expr, text: str, *, negative: bool) -> Literal:
    """A number as written, with its sign; an integer must fit into 64 bits."""
    if not (text.isascii() and text.isdecimal()):
        return Literal(_float(compiler, node, text, negative=negative), ValueType.FLOAT64)
    # int() refuses texts of thousands of digits.
    digits = text.lstrip("0") or "0"
    if len(digits) > _INT64_DIGITS or int(digits) > INT64_MAX + negative:
        raise compiler.source.error(
            node, f"{text[:40]} does not fit into 64 bits; write it as a float, such as 1e20"
        )
    return Literal(-int(digits) if negative else int(digits), ValueType.INT64)


def _float(compiler: Compiler, node: exp.Expr, text: str, *, negative: bool) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise compiler.source.error(
            node, f"{text[:40]} is not a number; write it in digits: 10, 1.5 or 1e9"
        ) from error
    if not math.isfinite(value):
        raise compiler.source.error(
            node, f"{text[:40]} is too large for a float of 64 bits; use at most 1.7e308"
        )
    return -value if negative else value


def _boolean(compiler: Compiler, node: exp.Boolean) -> Operand:
    return Operand(node, Literal(bool(node.this), ValueType.BOOL))


def _null(compiler: Compiler, node: exp.Null) -> Operand:
    return Operand(node, Literal(None, ValueType.INT64), bare_null=True)


def _paren(compiler: Compiler, node: exp.Paren) -> Operand:
    return replace(compiler.operand(node.this), node=node)


_THIS: Final = frozenset(["this"])

FORMS: Final[Forms] = {
    exp.Column: Form(_column, frozenset(["this", "table"])),
    exp.Literal: Form(_literal, frozenset(["this", "is_string"])),
    exp.Boolean: Form(_boolean, _THIS),
    exp.Null: Form(_null, frozenset()),
    exp.Paren: Form(_paren, _THIS),
}
