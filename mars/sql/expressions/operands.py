"""Typed operands, and the rules by which types go together.

Numbers widen: INT64 to INTEGER (exact, 128 bits) to FLOAT64. Nothing else changes its type by
itself. A bare NULL takes the type that its place asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from mars.core.errors import SqlError
from mars.core.plan import Call, Expression, Function, Literal, ValueType
from mars.sql.source import QueryText

NUMBERS: Final = (ValueType.INT64, ValueType.INTEGER, ValueType.FLOAT64)
"""From narrow to wide."""
INTEGERS: Final = NUMBERS[:2]

NAMES: Final[dict[ValueType, str]] = {
    ValueType.STRING: "a string",
    ValueType.INT64: "an integer",
    ValueType.INTEGER: "an integer",
    ValueType.FLOAT64: "a number",
    ValueType.BOOL: "a boolean",
    ValueType.TIMESTAMP: "a timestamp",
}
_CASTS: Final[dict[ValueType, str]] = {
    ValueType.STRING: "VARCHAR",
    ValueType.INT64: "BIGINT",
    ValueType.INTEGER: "BIGINT",
    ValueType.FLOAT64: "DOUBLE",
    ValueType.BOOL: "BOOLEAN",
    ValueType.TIMESTAMP: "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class Operand:
    """An expression with the node it was made of; `bare_null` is the word NULL itself."""

    node: exp.Expr
    expression: Expression
    bare_null: bool = False

    @property
    def type(self) -> ValueType:
        """The type of the expression."""
        return self.expression.type

    def given(self, type_: ValueType) -> Operand:
        """The same; a bare NULL as the NULL of a type."""
        return replace(self, expression=Literal(None, type_)) if self.bare_null else self


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules, with the source in which complaints are placed."""

    source: QueryText

    def mismatch(self, operand: Operand, what: str, wanted: ValueType) -> SqlError:
        """The error for an operand of a wrong type."""
        return self.source.error(
            operand.node,
            f"{what} needs {NAMES[wanted]}, this is {NAMES[operand.type]}; "
            f"use CAST(... AS {_CASTS[wanted]})",
        )

    def want(self, operand: Operand, what: str, *wanted: ValueType) -> Operand:
        """The operand, if it has one of the wanted types; else an error that hints at CAST."""
        typed = operand.given(wanted[0])
        if typed.type not in wanted:
            raise self.mismatch(operand, what, wanted[-1])
        return typed

    def call(
        self, node: exp.Expr, function: Function, type_: ValueType, *parts: Operand
    ) -> Operand:
        """A call as an operand."""
        return Operand(node, Call(function, tuple(part.expression for part in parts), type_))

    def invert(self, node: exp.Expr, part: Operand) -> Operand:
        """NOT of a boolean."""
        return self.call(node, Function.NOT, ValueType.BOOL, part)

    def arithmetic(self, node: exp.Expr, function: Function, *parts: Operand) -> Operand:
        """`+ - *` and signs: exact over integers, which become INTEGER, else FLOAT64."""
        what = "-" if function is Function.NEGATE else function.value.upper()
        typed = [self.want(part, what, *NUMBERS) for part in parts]
        is_float = any(part.type is ValueType.FLOAT64 for part in typed)
        type_ = ValueType.FLOAT64 if is_float else ValueType.INTEGER
        return self.call(node, function, type_, *typed)

    def divide(self, node: exp.Expr, *parts: Operand) -> Operand:
        """True division, always FLOAT64."""
        typed = [self.want(part, "/", *NUMBERS) for part in parts]
        return self.call(node, Function.DIVIDE, ValueType.FLOAT64, *typed)

    def modulo(self, node: exp.Expr, *parts: Operand) -> Operand:
        """Remainder, in the wider of the two types."""
        typed = [self.want(part, "%", *NUMBERS) for part in parts]
        return self.call(node, Function.MODULO, widest(typed), *typed)

    def compare(self, node: exp.Expr, function: Function, *parts: Operand) -> Operand:
        """A comparison of operands that can be compared with each other."""
        return self.call(
            node, function, ValueType.BOOL, *self.comparable(parts, function.value.upper())
        )

    def comparable(self, parts: Sequence[Operand], what: str) -> list[Operand]:
        """Operands of which each may be compared with the first one that is not NULL."""
        return self._alike(parts, what, timestamps_as_integers=True)

    def unified(self, parts: Sequence[Operand], what: str) -> tuple[ValueType, list[Operand]]:
        """The one type that a choice between operands has, and the operands with it."""
        typed = self._alike(parts, what, timestamps_as_integers=False)
        return widest(typed), typed

    def _alike(
        self, parts: Sequence[Operand], what: str, *, timestamps_as_integers: bool
    ) -> list[Operand]:
        first = next((part for part in parts if not part.bare_null), None)
        if first is None:
            return [part.given(ValueType.INT64) for part in parts]
        allowed = NUMBERS if first.type in NUMBERS else (first.type,)
        if timestamps_as_integers and first.type in INTEGERS:
            allowed = (*allowed, ValueType.TIMESTAMP)
        elif timestamps_as_integers and first.type is ValueType.TIMESTAMP:
            allowed = (*allowed, *INTEGERS)
        typed = [part.given(first.type) for part in parts]
        for part in typed:
            if part.type not in allowed:
                raise self.mismatch(part, f"{what} with {NAMES[first.type]}", first.type)
        self._check_timestamps(typed, what)
        return typed

    def _check_timestamps(self, typed: Sequence[Operand], what: str) -> None:
        """A timestamp is compared with milliseconds, which are never fractions."""
        types = {part.type for part in typed}
        if ValueType.TIMESTAMP in types and ValueType.FLOAT64 in types:
            wrong = next(part for part in typed if part.type is ValueType.FLOAT64)
            raise self.mismatch(wrong, f"{what} with a timestamp", ValueType.INT64)


def widest(parts: Sequence[Operand]) -> ValueType:
    """The type of operands that have one, the widest of numbers."""
    types = {part.type for part in parts}
    return next((type_ for type_ in reversed(NUMBERS) if type_ in types), parts[0].type)


def strip(node: exp.Expr) -> exp.Expr:
    """The node without brackets around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node
