"""Scalar functions, CASE and CAST."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from mars.core.plan import Function, Literal, ValueType
from mars.sql.expressions.compiler import Compiler, Form, Forms
from mars.sql.expressions.operands import INTEGERS, NUMBERS, Operand, strip

DIGITS_MAX: Final = 15
"""Most digits of ROUND, on either side of the point: a double has no more."""

TEXTS_MAX: Final = 32
"""Most texts that one CONCAT or chain of `||` joins: each adds as much as a batch of rows has."""

_CAST_TYPES: Final[dict[exp.DType, ValueType]] = {
    exp.DType.BIGINT: ValueType.INT64,
    exp.DType.INT: ValueType.INT64,
    exp.DType.INT128: ValueType.INTEGER,
    exp.DType.DOUBLE: ValueType.FLOAT64,
    exp.DType.FLOAT: ValueType.FLOAT64,
    exp.DType.TEXT: ValueType.STRING,
    exp.DType.VARCHAR: ValueType.STRING,
    exp.DType.BOOLEAN: ValueType.BOOL,
    exp.DType.TIMESTAMP: ValueType.TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: ValueType.TIMESTAMP,
}
_TEXT_FUNCTIONS: Final[dict[type[exp.Expr], tuple[Function, ValueType]]] = {
    exp.Lower: (Function.LOWER, ValueType.STRING),
    exp.Upper: (Function.UPPER, ValueType.STRING),
    exp.Length: (Function.LENGTH, ValueType.INT64),
}
_THIS: Final = frozenset(["this"])


def _case(compiler: Compiler, node: exp.Case) -> Operand:
    branches, default = node.args["ifs"], node.args.get("default") or exp.Null()
    subject = None if node.this is None else compiler.operand(node.this)
    conditions = [_when(compiler, subject, branch.this) for branch in branches]
    values = [*(branch.args["true"] for branch in branches), default]
    type_, typed = compiler.rules.unified([compiler.operand(value) for value in values], "CASE")
    *values_of, otherwise = typed
    pairs = zip(conditions, values_of, strict=True)
    parts = [part for pair in pairs for part in pair]
    return compiler.bounded(compiler.rules.call(node, Function.CASE, type_, *parts, otherwise))


def _when(compiler: Compiler, subject: Operand | None, node: exp.Expr) -> Operand:
    """The condition of a branch; in `CASE x WHEN 1`, that x equals it."""
    value = compiler.operand(node)
    if subject is None:
        return compiler.rules.want(value, "WHEN", ValueType.BOOL)
    return compiler.rules.compare(node, Function.EQUAL, subject, value)


def _coalesce(compiler: Compiler, node: exp.Coalesce) -> Operand:
    parts = [compiler.operand(part) for part in (node.this, *node.expressions)]
    type_, typed = compiler.rules.unified(parts, "COALESCE")
    return compiler.rules.call(node, Function.COALESCE, type_, *typed)


def _nullif(compiler: Compiler, node: exp.Nullif) -> Operand:
    parts = compiler.rules.comparable(compiler.both(node), "NULLIF")
    return compiler.rules.call(node, Function.NULLIF, parts[0].type, *parts)


def _absolute(compiler: Compiler, node: exp.Abs) -> Operand:
    return compiler.rules.arithmetic(node, Function.ABS, compiler.operand(node.this))


def _floor(compiler: Compiler, node: exp.Floor | exp.Ceil) -> Operand:
    function = Function.FLOOR if isinstance(node, exp.Floor) else Function.CEIL
    value = compiler.rules.want(compiler.operand(node.this), function.value.upper(), *NUMBERS)
    return compiler.rules.call(node, function, value.type, value)


def _round(compiler: Compiler, node: exp.Round) -> Operand:
    value = compiler.rules.want(compiler.operand(node.this), "ROUND", *NUMBERS)
    digits = node.args.get("decimals")
    last = [_digits(compiler, digits)] if digits is not None else []
    places = [part.expression.value for part in last if isinstance(part.expression, Literal)]
    is_wide = value.type in INTEGERS and any(isinstance(at, int) and at < 0 for at in places)
    type_ = ValueType.INTEGER if is_wide else value.type
    return compiler.rules.call(node, Function.ROUND, type_, value, *last)


def _digits(compiler: Compiler, node: exp.Expr) -> Operand:
    digits = compiler.operand(node)
    value = digits.expression.value if isinstance(digits.expression, Literal) else None
    if digits.type is not ValueType.INT64 or not isinstance(value, int):
        raise compiler.source.error(
            node, "the digits of ROUND must be written out; write ROUND(x, 2)"
        )
    if abs(value) > DIGITS_MAX:
        raise compiler.source.error(node, f"ROUND takes from -{DIGITS_MAX} to {DIGITS_MAX} digits")
    return digits


def _text_function(compiler: Compiler, node: exp.Func) -> Operand:
    function, type_ = _TEXT_FUNCTIONS[type(node)]
    text = compiler.rules.want(
        compiler.operand(node.this), function.value.upper(), ValueType.STRING
    )
    return compiler.rules.call(node, function, type_, text)


def _substring(compiler: Compiler, node: exp.Substring) -> Operand:
    text = compiler.rules.want(compiler.operand(node.this), "SUBSTR", ValueType.STRING)
    if node.args.get("start") is None:
        raise compiler.source.error(node, "SUBSTR needs a start; write SUBSTR(x, 1, 3)")
    given = [node.args["start"], node.args.get("length")]
    positions = [
        compiler.rules.want(compiler.operand(part), "SUBSTR", *INTEGERS)
        for part in given
        if part is not None
    ]
    return compiler.rules.call(node, Function.SUBSTR, ValueType.STRING, text, *positions)


def _concat(compiler: Compiler, node: exp.Concat) -> Operand:
    texts = [_as_text(compiler, compiler.operand(part)) for part in node.expressions]
    return _concatenated(compiler, node, texts)


def _concatenated(compiler: Compiler, node: exp.Expr, texts: list[Operand]) -> Operand:
    if len(texts) > TEXTS_MAX:
        raise compiler.source.error(node, f"at most {TEXTS_MAX} texts are joined at once")
    return compiler.rules.call(node, Function.CONCAT, ValueType.STRING, *texts)


def _as_text(compiler: Compiler, operand: Operand) -> Operand:
    """The operand as CONCAT takes it: as text."""
    typed = operand.given(ValueType.STRING)
    if typed.type is ValueType.STRING:
        return typed
    return compiler.rules.call(typed.node, Function.CAST, ValueType.STRING, typed)


def _joined(compiler: Compiler, node: exp.DPipe) -> Operand:
    """`a || b ...`: like CONCAT, but NULL as soon as one of them is."""
    texts = [_as_text(compiler, compiler.operand(part)) for part in _chained(compiler, node)]
    whole = _concatenated(compiler, node, texts)
    nulls = [
        compiler.rules.call(node, Function.IS_NULL, ValueType.BOOL, text)
        for text in texts
        if not isinstance(text.expression, Literal) or text.expression.value is None
    ]
    if not nulls:
        return whole
    missing = compiler.rules.call(node, Function.OR, ValueType.BOOL, *nulls)
    null = Operand(node, Literal(None, ValueType.STRING))
    chosen = missing if len(nulls) > 1 else nulls[0]
    return compiler.bounded(
        compiler.rules.call(node, Function.CASE, ValueType.STRING, chosen, null, whole)
    )


def _chained(compiler: Compiler, node: exp.DPipe) -> list[exp.Expr]:
    """The parts of a chain; what it begins with is one part where it is a group key."""
    chains = [node]
    while isinstance(first := strip(chains[-1].this), exp.DPipe):
        chains.append(first)
    behind: list[exp.Expr] = []
    for length, chain in zip(range(len(chains) + 1, 1, -1), chains, strict=True):
        if behind and length in compiler.key_chains and compiler.is_key(chain):
            return [chain, *reversed(behind)]
        behind.append(chain.expression)
    return [chains[-1].this, *reversed(behind)]


def _cast(compiler: Compiler, node: exp.Cast) -> Operand:
    target = _cast_type(compiler, node)
    value = compiler.operand(node.this).given(target)
    if {value.type, target} == {ValueType.BOOL, ValueType.TIMESTAMP}:
        raise compiler.source.error(
            node, "a boolean cannot become a timestamp, nor the other way round; leave the CAST out"
        )
    if value.type is target:
        return Operand(node, value.expression)
    return compiler.rules.call(node, Function.CAST, target, value)


def _cast_type(compiler: Compiler, node: exp.Cast) -> ValueType:
    type_ = node.args["to"]
    named = str(type_.args.get("kind") or "").lower()
    target = ValueType.FLOAT64 if named == "float64" else _CAST_TYPES.get(type_.this)
    if target is None or type_.expressions:
        shown = type_.sql("duckdb")[:40]
        raise compiler.source.error(
            node,
            f"CAST to {shown} is not supported; there are BIGINT, HUGEINT, DOUBLE, VARCHAR, "
            "BOOLEAN and TIMESTAMP",
        )
    return target


FORMS: Final[Forms] = {
    exp.Case: Form(_case, frozenset(["this", "ifs", "default"])),
    exp.Coalesce: Form(_coalesce, frozenset(["this", "expressions"])),
    exp.Nullif: Form(_nullif, frozenset(["this", "expression"])),
    exp.Abs: Form(_absolute, _THIS),
    exp.Floor: Form(_floor, _THIS),
    exp.Ceil: Form(_floor, _THIS),
    exp.Round: Form(_round, frozenset(["this", "decimals"])),
    exp.Substring: Form(_substring, frozenset(["this", "start", "length"])),
    exp.Concat: Form(_concat, frozenset(["expressions", "safe", "coalesce"])),
    exp.DPipe: Form(_joined, frozenset(["this", "expression", "safe"])),
    exp.Cast: Form(_cast, frozenset(["this", "to"])),
    exp.TryCast: Form(_cast, frozenset(["this", "to", "safe"])),
    **dict.fromkeys(_TEXT_FUNCTIONS, Form(_text_function, _THIS)),
}
