"""Plans as people read them: expressions as text, slots replaced by what they stand for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

import msgspec

from mars.client import answers
from mars.core.plan import (
    OFFSET_FIELD,
    RECORD_TIME_FIELD,
    WINDOW_END,
    WINDOW_NUMBER,
    WINDOW_PARTITION,
    WINDOW_START,
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Field,
    Function,
    Literal,
    Plan,
    Stream,
)
from mars.core.windows import Counting, Session, WindowShape
from mars.engine.aggregates import key_place_aggregates, scope_aggregates

INFIX = frozenset(
    {
        Function.ADD,
        Function.SUBTRACT,
        Function.MULTIPLY,
        Function.DIVIDE,
        Function.MODULO,
        Function.EQUAL,
        Function.NOT_EQUAL,
        Function.LESS,
        Function.LESS_EQUAL,
        Function.GREATER,
        Function.GREATER_EQUAL,
        Function.AND,
        Function.OR,
    }
)

NO_SLOTS: Mapping[str, str] = {}

AnswerType = TypeVar("AnswerType", bound=answers.Answer)


def alike(value: object, kind: type[AnswerType]) -> AnswerType:
    """A value as an answer, all members of which the value has by the same names."""
    return msgspec.convert(value, kind, from_attributes=True)


def stream_view(stream: Stream, warnings: Sequence[str] = ()) -> answers.Stream:
    """A stream as it was declared; warnings are for who declares it."""
    return answers.Stream(
        name=stream.name,
        topic=stream.topic,
        format=stream.format,
        fields={one.name: _field_view(one) for one in _declared(stream)},
        event_time=stream.event_time,
        csv_header=stream.csv_header,
        csv_delimiter=stream.csv_delimiter,
        csv_quote=stream.csv_quote,
        record_time=stream.record_time.value,
        warnings=list(warnings),
    )


def _declared(stream: Stream) -> list[Field]:
    """Without the one that `event_time` alone declares."""
    return [
        one for one in stream.fields if one != RECORD_TIME_FIELD or one.name != stream.event_time
    ]


def _field_view(field: Field) -> str | answers.FieldOfRecord:
    kind = field.type.value
    return (
        kind
        if field.origin is None
        else answers.FieldOfRecord(type=kind, origin=field.origin.value)
    )


def _window_view(shape: WindowShape) -> answers.Window:
    if isinstance(shape, Counting):
        said = shape.said
        return answers.Window("counting", size_ms=0, slide_ms=0, size=said.size, slide=said.slide)
    if isinstance(shape, Session):
        said = shape.said
        return answers.Window(
            "session", shape.most_ms, shape.gap_ms, size=said.size, slide=said.slide
        )
    zone = shape.zone
    return answers.Window(
        kind=_kind(shape),
        size_ms=shape.longest_ms,
        slide_ms=shape.ends_apart_ms,
        step_ms=shape.ends_apart_ms if shape.begin_together else None,
        size=shape.said.size,
        slide=shape.said.slide,
        offset_ms=shape.said.offset_ms,
        zone=None if zone is None else zone.name,
        zone_database=None if zone is None else zone.database,
        landmark_ms=shape.begins_ms,
    )


def _kind(shape: WindowShape) -> str:
    if shape.begin_together:
        return "cumulating" if shape.begins_ms is None else "landmark"
    return "tumbling" if shape.is_tumbling else "sliding"


def plan_view(plan: Plan) -> answers.Plan:
    """A plan for people."""
    slots = _slots(plan)
    time = plan.stream.event_time
    hidden = (*scope_aggregates(time), *key_place_aggregates(time))
    return answers.Plan(
        stream=plan.stream.name,
        topic=plan.stream.topic,
        window=_window_view(plan.window),
        fields=[
            answers.Column(name=field.name, type=field.type)
            for field in plan.fields
            if field != OFFSET_FIELD
        ],
        filter=None if plan.filter is None else text_of(plan.filter),
        keys=[_named(_key_name(plan, key.slot), key.expression, NO_SLOTS) for key in plan.keys],
        aggregates=[slots[one.slot] for one in plan.aggregates if one not in hidden],
        having=None if plan.having is None else text_of(plan.having, slots),
        order_by=[
            answers.Order(expression=text_of(order.expression, slots), descending=order.descending)
            for order in plan.order_by
        ],
        limit=plan.limit,
        outputs=[_named(output.name, output.expression, slots) for output in plan.outputs],
        options=asdict(plan.options),
    )


def output_view(plan: Plan) -> answers.Output:
    """What the result rows of a plan look like."""
    columns = {column.name: column.type.value for column in plan.window_columns}
    columns |= {output.name: output.expression.type.value for output in plan.outputs}
    return answers.Output(
        topic=plan.options.output_topic,
        key=[
            WINDOW_START,
            *(_key_name(plan, key.slot) for key in plan.keys),
            *([WINDOW_END] if plan.window.begin_together else []),
            *([WINDOW_PARTITION, WINDOW_NUMBER] if plan.counts_rows else []),
        ],
        columns=[answers.Column(name=name, type=kind) for name, kind in columns.items()],
    )


def _named(name: str, expression: Expression, slots: Mapping[str, str]) -> answers.ComputedColumn:
    return answers.ComputedColumn(
        name=name, type=expression.type.value, expression=text_of(expression, slots)
    )


def _key_name(plan: Plan, slot: str) -> str:
    """The name under which a key is selected, else its expression."""
    for output in plan.outputs:
        if isinstance(output.expression, Column) and output.expression.name == slot:
            return output.name
    return next(text_of(key.expression) for key in plan.keys if key.slot == slot)


def _slots(plan: Plan) -> dict[str, str]:
    slots = {key.slot: text_of(key.expression) for key in plan.keys}
    return slots | {aggregate.slot: _aggregate_text(aggregate) for aggregate in plan.aggregates}


def _aggregate_text(aggregate: Aggregate) -> str:
    argument = "*" if aggregate.argument is None else text_of(aggregate.argument)
    match aggregate.function:
        case AggregateFunction.COUNT_ALL:
            text = "count(*)"
        case AggregateFunction.COUNT_DISTINCT:
            text = f"count(DISTINCT {argument})"
        case _:
            text = f"{aggregate.function}({argument})"
    if aggregate.filter is None:
        return text
    return f"{text} FILTER (WHERE {text_of(aggregate.filter)})"


def text_of(expression: Expression, slots: Mapping[str, str] = NO_SLOTS) -> str:
    """An expression in the manner of SQL, with every operator in parentheses."""
    match expression:
        case Column():
            return slots.get(expression.name, expression.name)
        case Literal():
            return _literal_text(expression)
        case Call():
            return _call_text(expression, [text_of(part, slots) for part in expression.arguments])


def _literal_text(literal: Literal) -> str:
    match literal.value:
        case None:
            return "NULL"
        case str(text):
            return "'" + text.replace("'", "''") + "'"
        case value:
            return json.dumps(value)


def _call_text(call: Call, parts: list[str]) -> str:
    name = call.function.value
    if call.function in INFIX and len(parts) > 1:
        return "(" + f" {name.upper()} ".join(parts) + ")"
    match call.function:
        case Function.NOT:
            text = f"(NOT {parts[0]})"
        case Function.NEGATE:
            text = f"(-{parts[0]})"
        case Function.IS_NULL:
            text = f"({parts[0]} IS NULL)"
        case Function.IN:
            text = f"({parts[0]} IN ({', '.join(parts[1:])}))"
        case Function.LIKE:
            text = f"({' '.join(_like_words(parts))})"
        case Function.CAST:
            text = f"cast({parts[0]} AS {call.type})"
        case Function.CASE:
            text = _case_text(parts)
        case _:
            text = f"{name}({', '.join(parts)})"
    return text


def _like_words(parts: list[str]) -> list[str]:
    escape = ["ESCAPE", parts[2]] if len(parts) > 2 else []
    return [parts[0], "LIKE", parts[1], *escape]


def _case_text(parts: list[str]) -> str:
    branches = [
        f"WHEN {when} THEN {then}" for when, then in zip(parts[:-1:2], parts[1::2], strict=True)
    ]
    return " ".join(["CASE", *branches, f"ELSE {parts[-1]}", "END"])
