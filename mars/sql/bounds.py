"""Bounds of event time as a filter of a plan."""

from __future__ import annotations

from dataclasses import replace

from mars.core.plan import Call, Column, Expression, Function, Literal, Plan, ValueType


def since(plan: Plan, time_ms: int | None) -> Plan:
    """The plan for rows at or after a time (None: all); earlier ones count as filtered."""
    return _narrowed(plan, Function.GREATER_EQUAL, time_ms)


def until(plan: Plan, time_ms: int | None) -> Plan:
    """The plan for rows before a time (None: all); later ones count as filtered."""
    return _narrowed(plan, Function.LESS, time_ms)


def _narrowed(plan: Plan, comparison: Function, time_ms: int | None) -> Plan:
    if time_ms is None:
        return plan
    time = Column(plan.stream.event_time, ValueType.TIMESTAMP)
    bound = Literal(time_ms, ValueType.TIMESTAMP)
    inside: Expression = Call(comparison, (time, bound), ValueType.BOOL)
    if plan.filter is not None:
        inside = Call(Function.AND, (inside, plan.filter), ValueType.BOOL)
    return replace(plan, filter=inside)
