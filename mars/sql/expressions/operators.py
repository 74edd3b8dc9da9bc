"""Operators: arithmetic, comparisons, logic, IN, BETWEEN, LIKE, IS NULL."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from mars.core.plan import Function, Literal, ValueType
from mars.sql.expressions.compiler import Compiler, Form, Forms
from mars.sql.expressions.constants import number
from mars.sql.expressions.operands import Operand, strip

LIST_MAX: Final = 1_000
"""Most values of an IN list."""
PATTERN_CHARACTERS_MAX: Final = 1_000
"""Longest pattern of LIKE: it becomes an automaton, about 1 KB a character."""

_COMPARISONS: Final[dict[type[exp.Expr], Function]] = {
    exp.EQ: Function.EQUAL,
    exp.NEQ: Function.NOT_EQUAL,
    exp.LT: Function.LESS,
    exp.LTE: Function.LESS_EQUAL,
    exp.GT: Function.GREATER,
    exp.GTE: Function.GREATER_EQUAL,
}
_BINARY: Final = frozenset(["this", "expression"])
_LIKE_PARTS: Final = frozenset(["this", "expression", "negate"])
_THIS: Final = frozenset(["this"])


def _negate(compiler: Compiler, node: exp.Neg) -> Operand:
    inner = strip(node.this)
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return Operand(node, number(compiler, node, inner.name, negative=True))
    return compiler.rules.arithmetic(node, Function.NEGATE, compiler.operand(node.this))


def _add(compiler: Compiler, node: exp.Add) -> Operand:
    return compiler.rules.arithmetic(node, Function.ADD, *compiler.both(node))


def _subtract(compiler: Compiler, node: exp.Sub) -> Operand:
    return compiler.rules.arithmetic(node, Function.SUBTRACT, *compiler.both(node))


def _multiply(compiler: Compiler, node: exp.Mul) -> Operand:
    return compiler.rules.arithmetic(node, Function.MULTIPLY, *compiler.both(node))


def _divide(compiler: Compiler, node: exp.Div) -> Operand:
    return compiler.rules.divide(node, *compiler.both(node))


def _modulo(compiler: Compiler, node: exp.Mod) -> Operand:
    return compiler.rules.modulo(node, *compiler.both(node))


def _comparison(compiler: Compiler, node: exp.Binary) -> Operand:
    return compiler.rules.compare(node, _COMPARISONS[type(node)], *compiler.both(node))


def _connect(compiler: Compiler, node: exp.Connector) -> Operand:
    function = Function.AND if isinstance(node, exp.And) else Function.OR
    parts = [
        compiler.rules.want(part, function.value.upper(), ValueType.BOOL)
        for part in compiler.both(node)
    ]
    return compiler.rules.call(node, function, ValueType.BOOL, *parts)


def _invert(compiler: Compiler, node: exp.Not) -> Operand:
    part = compiler.rules.want(compiler.operand(node.this), "NOT", ValueType.BOOL)
    return compiler.rules.invert(node, part)


def _is_null(compiler: Compiler, node: exp.Is) -> Operand:
    if not isinstance(node.expression, exp.Null):
        raise compiler.source.error(
            node,
            "IS is supported as IS NULL and IS NOT NULL only; for a boolean use it alone, or NOT",
        )
    value = compiler.operand(node.this).given(ValueType.INT64)
    found = compiler.rules.call(node, Function.IS_NULL, ValueType.BOOL, value)
    return compiler.rules.invert(node, found) if node.args.get("negate") else found


def _isin(compiler: Compiler, node: exp.In) -> Operand:
    if len(node.expressions) > LIST_MAX:
        raise compiler.source.error(node, f"an IN list has at most {LIST_MAX} values")
    if not node.expressions:
        raise compiler.source.error(node, "IN has an empty list; write at least one value")
    parts = [compiler.operand(part) for part in (node.this, *node.expressions)]
    return compiler.rules.compare(node, Function.IN, *parts)


def _between(compiler: Compiler, node: exp.Between) -> Operand:
    value = compiler.operand(node.this)
    least, most = compiler.operand(node.args["low"]), compiler.operand(node.args["high"])
    return compiler.bounded(
        compiler.rules.call(
            node,
            Function.AND,
            ValueType.BOOL,
            compiler.rules.compare(node, Function.GREATER_EQUAL, value, least),
            compiler.rules.compare(node, Function.LESS_EQUAL, value, most),
        )
    )


def _like(compiler: Compiler, node: exp.Like, escape: Literal | None = None) -> Operand:
    text = compiler.rules.want(compiler.operand(node.this), "LIKE", ValueType.STRING)
    pattern = _pattern(compiler, node.expression, escape)
    last = [Operand(node, escape)] if escape else []
    found = compiler.rules.call(node, Function.LIKE, ValueType.BOOL, text, pattern, *last)
    return compiler.rules.invert(node, found) if node.args.get("negate") else found


def _pattern(compiler: Compiler, node: exp.Expr, escape: Literal | None) -> Operand:
    """The pattern of LIKE: a literal, so that it is checked before it runs."""
    pattern = compiler.operand(node).given(ValueType.STRING)
    value = pattern.expression.value if isinstance(pattern.expression, Literal) else 0
    if not isinstance(value, str | None):
        raise compiler.source.error(node, "the pattern of LIKE must be written out; write 'text%'")
    if value and len(value) > PATTERN_CHARACTERS_MAX:
        most = PATTERN_CHARACTERS_MAX
        raise compiler.source.error(node, f"a pattern of LIKE has at most {most} characters")
    sign = escape.value if escape else None
    if value and isinstance(sign, str) and value.replace(sign * 2, "").endswith(sign):
        raise compiler.source.error(
            node, "the pattern of LIKE ends with its escape character; write that twice"
        )
    return pattern


def _escape(compiler: Compiler, node: exp.Escape) -> Operand:
    sign = strip(node.expression)
    if not isinstance(sign, exp.Literal) or not sign.is_string or len(sign.name) != 1:
        raise compiler.source.error(node.expression, "ESCAPE takes one character; write '!'")
    if not isinstance(node.this, exp.Like):
        raise compiler.source.error(node, "ESCAPE belongs behind LIKE 'pattern'")
    compiler.check_parts(node.this, _LIKE_PARTS)
    return _like(compiler, node.this, Literal(sign.name, ValueType.STRING))


FORMS: Final[Forms] = {
    exp.Neg: Form(_negate, _THIS),
    exp.Add: Form(_add, _BINARY),
    exp.Sub: Form(_subtract, _BINARY),
    exp.Mul: Form(_multiply, _BINARY),
    exp.Div: Form(_divide, _BINARY),
    exp.Mod: Form(_modulo, _BINARY),
    exp.And: Form(_connect, _BINARY),
    exp.Or: Form(_connect, _BINARY),
    exp.Not: Form(_invert, _THIS),
    exp.Is: Form(_is_null, _LIKE_PARTS),
    exp.In: Form(_isin, frozenset(["this", "expressions"])),
    exp.Between: Form(_between, frozenset(["this", "low", "high"])),
    exp.Like: Form(_like, _LIKE_PARTS),
    exp.Escape: Form(_escape, _BINARY),
    **dict.fromkeys(_COMPARISONS, Form(_comparison, _BINARY)),
}
