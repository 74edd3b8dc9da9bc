"""The states of a window's groups to the rows that users see, as the bytes that go to Kafka.

    states ──finish──▶ k*, a* ──▶ HAVING ──▶ outputs ──▶ ORDER BY, LIMIT (else by key) ──▶ JSON

JSON is written in columns: each value becomes its JSON text, and a row is the concatenation of
texts. Integers of any size are JSON numbers, NaN and infinities are null, floats are written in
the fewest digits that read back as the same number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import polars as pl

from mars.aggregates import OTHERS, key_names
from mars.aggregates import finish as finish_states
from mars.evaluate import to_polars
from mars.plan import WINDOW_END, WINDOW_START, Column, Expression, Key, Plan, ValueType

Value = str | int | float | bool | None

_ESCAPED = r'["\\\x00-\x1f]'
"""The characters that JSON texts must escape."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The result rows of one window: Kafka keys and values, in the order in which they are sent.

    The last `others` of them (0 or 1) stand for all groups over the task's `max_keys`.
    """

    window_start_ms: int
    keys: list[bytes]
    values: list[bytes]
    others: int = 0

    def part(self, *, others: bool) -> Finished:
        """The rows of groups alone, or that of the others."""
        own = len(self.keys) - self.others
        part = slice(own, None) if others else slice(own)
        count = self.others if others else 0
        return Finished(self.window_start_ms, self.keys[part], self.values[part], count)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result row, read back: the group key without the window's start, and the items."""

    window_start_ms: int
    window_end_ms: int
    key: tuple[Value, ...]
    items: tuple[Value, ...]


def finish(
    plan: Plan, states: pl.DataFrame, window_start_ms: int, *, refused: bool = False
) -> Finished:
    """The rows of one window.

    `states` are merged states of that window, one row per key; a column `pane` is not looked at.
    The group of all groups over `max_keys` comes last: HAVING, ORDER BY and LIMIT choose among
    groups, and it is none. `refused`: the groups that HAVING does not let pass, in place of others.
    """
    groups = finish_states(plan, states).with_columns(
        pl.lit(window_start_ms, pl.Int64).alias(WINDOW_START),
        pl.lit(window_start_ms + plan.window.size_ms, pl.Int64).alias(WINDOW_END),
    )
    others = groups.filter(OTHERS) if plan.folds else groups.clear()
    if plan.folds:
        groups = groups.filter(~pl.col(OTHERS))
    if plan.having is not None:
        passes = to_polars(plan.having).fill_null(value=False)
        groups = groups.filter(~passes if refused else passes)
    groups = (
        pl.concat([_ordered(plan, groups), others]) if others.height else _ordered(plan, groups)
    )
    start = Column(WINDOW_START, ValueType.TIMESTAMP)
    key: list[tuple[str, Expression]] = [("", one) for one in (start, *map(_key, plan.keys))]
    value = [(_quoted(name) + ":", one) for name, one in _members(plan)]
    return Finished(
        window_start_ms,
        _written(groups, "[", key, "]"),
        _written(groups, "{", value, "}"),
        others.height,
    )


def rows(plan: Plan, finished: Finished) -> Iterator[ResultRow]:
    """The rows read back, one at a time as they are asked for.

    `items` stand in the order of the plan's outputs.
    """
    for key, value in zip(finished.keys, finished.values, strict=True):
        members = msgspec.json.decode(value)
        yield ResultRow(
            members[WINDOW_START],
            members[WINDOW_END],
            tuple(msgspec.json.decode(key)[1:]),
            tuple(members[output.name] for output in plan.outputs),
        )


# -------------------------------------------------------------------------------------- order


def _ordered(plan: Plan, groups: pl.DataFrame) -> pl.DataFrame:
    """The rows that are emitted, in order: as asked, then by key; NULLs last."""
    asked = [f"__order{at}" for at in range(len(plan.order_by))]
    by = [*asked, *key_names(plan)]
    if by:
        descending = [order.descending for order in plan.order_by] + [False] * len(plan.keys)
        orders = [
            to_polars(order.expression).alias(name)
            for order, name in zip(plan.order_by, asked, strict=True)
        ]
        wide = groups.with_columns(orders)
        groups = wide.sort(by, descending=descending, nulls_last=True).drop(asked)
    return groups if plan.limit is None else groups.head(plan.limit)


# --------------------------------------------------------------------------------------- JSON


def _key(key: Key) -> Column:
    return Column(key.slot, key.expression.type)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _members(plan: Plan) -> list[tuple[str, Expression]]:
    """Names and expressions of a value's members; the window's own come first, and only once."""
    bounds = [Column(name, ValueType.TIMESTAMP) for name in (WINDOW_START, WINDOW_END)]
    items = [one for one in plan.outputs if one.name not in {WINDOW_START, WINDOW_END}]
    return [
        *((column.name, column) for column in bounds),
        *((one.name, one.expression) for one in items),
    ]


def _written(
    groups: pl.DataFrame, opening: str, members: list[tuple[str, Expression]], closing: str
) -> list[bytes]:
    """One JSON text per row: the values of the members, each after its prefix, between brackets."""
    slots = [f"__value{at}" for at in range(len(members))]
    wide = groups.with_columns(
        to_polars(expression).alias(slot)
        for slot, (_, expression) in zip(slots, members, strict=True)
    )
    pieces: list[pl.Expr] = []
    between = opening
    for slot, (prefix, expression) in zip(slots, members, strict=True):
        pieces += [pl.lit(between + prefix), _text(wide.get_column(slot), expression.type)]
        between = ","
    texts = wide.select(pl.concat_str([*pieces, pl.lit(closing)]))
    return texts.to_series().cast(pl.Binary).to_list()


def _text(column: pl.Series, kind: ValueType) -> pl.Expr:
    """A column's values as JSON texts."""
    value = pl.col(column.name)
    if kind is ValueType.STRING:
        escaped = _escaped(value) if column.str.contains(_ESCAPED).any() else value
        text = pl.concat_str(pl.lit('"'), escaped, pl.lit('"'))
    elif kind is ValueType.FLOAT64:
        text = pl.when(value.is_finite()).then(value.cast(pl.String))
    else:
        text = value.cast(pl.String)
    return text.fill_null("null")


def _escaped(value: pl.Expr) -> pl.Expr:
    plain = [*(chr(code) for code in range(0x20)), '"', "\\"]
    escapes = [_quoted(character)[1:-1] for character in plain]
    return value.str.replace_many(plain, escapes)
