"""Expressions of plans as text for DuckDB, which says what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mars.core.plan import Call, Column, Expression, Function, Literal, ValueType
from mars.engine.evaluate.values import INTEGER_MAX

SQL_TYPES = {
    ValueType.STRING: "VARCHAR",
    ValueType.INT64: "BIGINT",
    ValueType.INTEGER: "HUGEINT",
    ValueType.FLOAT64: "DOUBLE",
    ValueType.BOOL: "BOOLEAN",
    ValueType.TIMESTAMP: "BIGINT",
}


def render(expression: Expression) -> str:
    """The expression for DuckDB, which gets timestamps as milliseconds."""
    match expression:
        case Column(name):
            return f'"{name}"'
        case Literal(None, type_):
            return f"CAST(NULL AS {SQL_TYPES[type_]})"
        case Literal(value, type_):
            text = str(value).replace("'", "''")
            return f"CAST('{text}' AS {SQL_TYPES[type_]})"
        case Call(function, arguments):
            special = _SPECIAL.get(function)
            if special:
                return f"({special(expression)})"
            return f"{function}({', '.join(map(render, arguments))})"


def _as(expression: Expression, type_: ValueType) -> str:
    if expression.type is type_:
        return render(expression)
    return f"CAST({render(expression)} AS {SQL_TYPES[type_]})"


def _alike(arguments: Sequence[Expression]) -> list[str]:
    """The arguments, numbers as the widest of their types."""
    types = {argument.type for argument in arguments}
    wide = next((of for of in (ValueType.FLOAT64, ValueType.INTEGER) if of in types), None)
    return [_as(argument, wide or argument.type) for argument in arguments]


def _wide(call: Call) -> list[str]:
    """The arguments as the type of the call."""
    return [_as(argument, call.type) for argument in call.arguments]


def _limited(text: str, type_: ValueType) -> str:
    """NULL beyond 128 bits, as in Mars."""
    if type_ is not ValueType.INTEGER:
        return text
    return f"CASE WHEN ABS(CAST({text} AS DOUBLE)) <= {float(INTEGER_MAX)!r} THEN {text} END"


def _arithmetic(call: Call) -> str:
    left, right = _wide(call)
    return _limited(f"TRY({left} {call.function} {right})", call.type)


def _divide(call: Call) -> str:
    left, right = _wide(call)
    return f"{left} / NULLIF({right}, 0)"


def _modulo(call: Call) -> str:
    """DuckDB takes the remainder of the least BIGINT and -1 for an overflow; HUGEINT has room."""
    is_float = call.type is ValueType.FLOAT64
    through = ValueType.FLOAT64 if is_float else ValueType.INTEGER
    left, right = (_as(argument, through) for argument in call.arguments)
    return f"CAST({left} % NULLIF({right}, 0) AS {SQL_TYPES[call.type]})"


def _compare(call: Call) -> str:
    left, right = _alike(call.arguments)
    return f"{left} {call.function} {right}"


def _connect(call: Call) -> str:
    return f" {call.function} ".join(map(render, call.arguments))


def _in(call: Call) -> str:
    value, *candidates = _alike(call.arguments)
    return f"{value} IN ({', '.join(candidates)})"


def _like(call: Call) -> str:
    text, pattern, *escape = map(render, call.arguments)
    return f"{text} LIKE {pattern}" + "".join(f" ESCAPE {sign}" for sign in escape)


def _case(call: Call) -> str:
    values = _wide(call)
    whens = zip(call.arguments[:-1:2], values[1:-1:2], strict=True)
    branches = " ".join(f"WHEN {render(when)} THEN {then}" for when, then in whens)
    return f"CASE {branches} ELSE {values[-1]} END"


def _nullif(call: Call) -> str:
    left, right = _alike(call.arguments)
    return f"CASE WHEN {left} = {right} THEN NULL ELSE {render(call.arguments[0])} END"


def _coalesce(call: Call) -> str:
    return f"COALESCE({', '.join(_wide(call))})"


def _round(call: Call) -> str:
    value, digits = _wide(call)[0], call.arguments[1]
    assert isinstance(digits, Literal)
    assert isinstance(digits.value, int)
    if call.type is ValueType.FLOAT64:
        return f"ROUND({value}, {digits.value})"
    unit = f"CAST({10**-digits.value} AS HUGEINT)"
    return f"SIGN({value}) * ((ABS({value}) + {unit} // 2) // {unit} * {unit})"


def _whole(call: Call) -> str:
    value = render(call.arguments[0])
    return f"{call.function}({value})" if call.type is ValueType.FLOAT64 else value


def _cast(call: Call) -> str:
    (argument,) = call.arguments
    text, source, target = render(argument), argument.type, call.type
    if source is ValueType.STRING and target is ValueType.TIMESTAMP:
        return f"epoch_ms(TRY_CAST({text} AS TIMESTAMP))"
    if source is ValueType.TIMESTAMP and target is ValueType.STRING:
        inside = f"{text} BETWEEN -62135596800000 AND 253402300799999"
        return f"CASE WHEN {inside} THEN CAST(make_timestamp_ms({text}) AS VARCHAR) END"
    if source is target:
        return text
    return _limited(f"TRY_CAST({text} AS {SQL_TYPES[target]})", target)


_SPECIAL: dict[Function, Callable[[Call], str]] = {
    **dict.fromkeys([Function.ADD, Function.SUBTRACT, Function.MULTIPLY], _arithmetic),
    **dict.fromkeys(map(Function, ["=", "<>", "<", "<=", ">", ">="]), _compare),
    **dict.fromkeys([Function.AND, Function.OR], _connect),
    **dict.fromkeys([Function.FLOOR, Function.CEIL], _whole),
    Function.DIVIDE: _divide,
    Function.MODULO: _modulo,
    Function.NEGATE: lambda call: f"- {_wide(call)[0]}",
    Function.ABS: lambda call: f"ABS({_wide(call)[0]})",
    Function.NOT: lambda call: f"NOT {render(call.arguments[0])}",
    Function.IS_NULL: lambda call: f"{render(call.arguments[0])} IS NULL",
    Function.IN: _in,
    Function.LIKE: _like,
    Function.CASE: _case,
    Function.NULLIF: _nullif,
    Function.COALESCE: _coalesce,
    Function.ROUND: _round,
    Function.CAST: _cast,
}
