"""Expressions over groups: aggregates get slots, group keys are found, the rest is scalar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from mars.core.errors import SqlError
from mars.core.plan import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Function,
    Key,
    Literal,
    ValueType,
)
from mars.sql.examples import AGGREGATES
from mars.sql.expressions.compiler import Compiler
from mars.sql.expressions.operands import NUMBERS, Operand
from mars.sql.expressions.scalars import FORMS, row_compiler
from mars.sql.expressions.scopes import GroupScope, KeyScope, RowScope, ScopeNames

AGGREGATES_MAX: Final = 64
"""Most different aggregates of a task: each is a column or more of every partial."""

_FUNCTIONS: Final[Mapping[type[exp.Expr], AggregateFunction]] = {
    exp.Count: AggregateFunction.COUNT,
    exp.CountIf: AggregateFunction.COUNT_IF,
    exp.Sum: AggregateFunction.SUM,
    exp.Min: AggregateFunction.MIN,
    exp.Max: AggregateFunction.MAX,
    exp.Avg: AggregateFunction.AVG,
    exp.Variance: AggregateFunction.VAR_SAMP,
    exp.VariancePop: AggregateFunction.VAR_POP,
    exp.Stddev: AggregateFunction.STDDEV_SAMP,
    exp.StddevSamp: AggregateFunction.STDDEV_SAMP,
    exp.StddevPop: AggregateFunction.STDDEV_POP,
    exp.AnyValue: AggregateFunction.ANY_VALUE,
    exp.LogicalAnd: AggregateFunction.BOOL_AND,
    exp.LogicalOr: AggregateFunction.BOOL_OR,
}
_BOOLEAN: Final = frozenset(
    [AggregateFunction.COUNT_IF, AggregateFunction.BOOL_AND, AggregateFunction.BOOL_OR]
)
_ANY_TYPE: Final = frozenset(
    [
        *(AggregateFunction.COUNT, AggregateFunction.COUNT_DISTINCT, AggregateFunction.MIN),
        *(AggregateFunction.MAX, AggregateFunction.ANY_VALUE),
    ]
)
_COUNTS: Final = frozenset(
    [AggregateFunction.COUNT, AggregateFunction.COUNT_DISTINCT, AggregateFunction.COUNT_IF]
)


def aggregate_call(node: exp.Expr) -> exp.Expr | None:
    """The aggregate that a node is, without FILTER and what the parser wraps around it."""
    while isinstance(node, exp.Filter | exp.IgnoreNulls):
        node = node.this
    return node if type(node) in _FUNCTIONS else None


_Identity = tuple[AggregateFunction, Expression | None, Expression | None]


class Slots:
    """The aggregates of a query; equal ones share a slot."""

    def __init__(self) -> None:
        self._slots: dict[_Identity, Aggregate] = {}

    @property
    def all(self) -> tuple[Aggregate, ...]:
        """All aggregates, in the order of their slots."""
        return tuple(self._slots.values())

    def column(
        self,
        function: AggregateFunction,
        argument: Expression | None,
        condition: Expression | None,
        type_: ValueType,
    ) -> Column:
        """The column of an aggregate's results."""
        identity = (function, argument, condition)
        if identity not in self._slots:
            slot = f"a{len(self._slots)}"
            self._slots[identity] = Aggregate(slot, function, argument, condition, type_)
        return Column(self._slots[identity].slot, type_)


class GroupCompiler(Compiler):
    """Compiles SELECT, HAVING and ORDER BY."""

    def __init__(
        self, names: ScopeNames, scope: GroupScope, keys: tuple[Key, ...], slots: Slots
    ) -> None:
        super().__init__(names.source, scope, FORMS)
        self._names = names
        self._keys = {key.expression: key for key in keys}
        self._key_compiler = row_compiler(names.source, KeyScope(names))
        self._slots = slots
        self.key_chains = frozenset(map(_chain_length, self._keys))

    def operand(self, node: exp.Expr) -> Operand:
        """An aggregate, a group key, or a scalar over such."""
        call = aggregate_call(node)
        if call is not None:
            return self._aggregate(node, call)
        key = self._key(node)
        return Operand(node, key) if key else super().operand(node)

    def is_key(self, node: exp.Expr) -> bool:
        """Whether a node is a group key, whatever it is made of."""
        return self._key(node) is not None

    def _key(self, node: exp.Expr) -> Column | None:
        if not self._keys:
            return None
        try:
            expression = self._key_compiler.expression(node)
        except SqlError:
            return None
        key = self._keys.get(expression)
        return Column(key.slot, expression.type) if key else None

    def _aggregate(self, node: exp.Expr, call: exp.Expr) -> Operand:
        condition = None
        if isinstance(node, exp.Filter):
            rows = row_compiler(self.source, RowScope(self._names, "FILTER"))
            condition = rows.condition(node.expression.this)
        function, argument = self._argument(call)
        type_ = self._result_type(function, argument)
        column = self._slots.column(
            function, argument.expression if argument else None, condition, type_
        )
        if len(self._slots.all) > AGGREGATES_MAX:
            raise self.source.error(node, f"a task has at most {AGGREGATES_MAX} aggregates")
        return Operand(node, column)

    def _argument(self, call: exp.Expr) -> tuple[AggregateFunction, Operand | None]:
        self.check_parts(call, ("this", "big_int"))
        function, inner = _FUNCTIONS[type(call)], call.this
        if isinstance(inner, exp.Star) and function is AggregateFunction.COUNT:
            self.check_parts(inner, ())
            return AggregateFunction.COUNT_ALL, None
        if inner is None:
            raise self.source.error(
                call, f"{self.named(call)}() needs an argument; {self.instead(call)}"
            )
        if isinstance(inner, exp.Distinct):
            function, inner = AggregateFunction.COUNT_DISTINCT, self._distinct(inner)
        rows = row_compiler(self.source, RowScope(self._names, f"the inside of {self.named(call)}"))
        argument = rows.operand(inner)
        if function is AggregateFunction.COUNT and _is_value(argument.expression):
            return AggregateFunction.COUNT_ALL, None
        return function, self._typed(function, argument, self.named(call))

    def _distinct(self, node: exp.Distinct) -> exp.Expr:
        self.check_parts(node, ("expressions",))
        if len(node.expressions) != 1:
            raise self.source.error(
                node, "count(DISTINCT x) takes one argument; join several with CONCAT"
            )
        inner: exp.Expr = node.expressions[0]
        return inner

    def _typed(self, function: AggregateFunction, argument: Operand, name: str) -> Operand:
        if function in _BOOLEAN:
            return self.rules.want(argument, f"{name}()", ValueType.BOOL)
        if function in _ANY_TYPE:
            return argument.given(ValueType.INT64)
        return self.rules.want(argument, f"{name}()", *NUMBERS)

    def _result_type(self, function: AggregateFunction, argument: Operand | None) -> ValueType:
        if argument is None or function in _COUNTS:
            return ValueType.INT64
        if function in _BOOLEAN:
            return ValueType.BOOL
        if function in _ANY_TYPE:
            return argument.type
        is_exact_sum = function is AggregateFunction.SUM and argument.type is not ValueType.FLOAT64
        return ValueType.INTEGER if is_exact_sum else ValueType.FLOAT64

    def unsupported(self, node: exp.Expr) -> SqlError:
        """The error for a kind of node that is not on the list."""
        if self.named(node) in AGGREGATES:
            return self.other_form(node, node)
        return super().unsupported(node)

    def key(self, node: exp.Expr) -> str:
        """Under what the examples have a node: an aggregate by its name."""
        if type(node) in _FUNCTIONS:
            return _FUNCTIONS[type(node)].value
        return self.named(node) if self.named(node) in AGGREGATES else super().key(node)


def _is_value(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is not None


def _chain_length(key: Expression) -> int:
    """How many parts a key has that is made by `||`; 0 for another."""
    if isinstance(key, Call) and key.function is Function.CASE:
        key = key.arguments[-1]
    if isinstance(key, Call) and key.function is Function.CONCAT:
        return len(key.arguments)
    return 0
