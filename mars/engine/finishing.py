"""The states of a window's groups to the rows that users see, as the bytes that go to Kafka.

    states ──finish──▶ k*, a* ──▶ HAVING ──▶ outputs ──▶ ORDER BY, LIMIT (else by key) ──▶ JSON

JSON is written in columns: each value becomes its JSON text, and a row is the concatenation of
texts. Integers of any size are JSON numbers, NaN and infinities are null, floats are written in
the fewest digits that read back as the same number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import polars as pl

from mars.core.plan import (
    WINDOW_END,
    WINDOW_LOCAL,
    WINDOW_NUMBER,
    WINDOW_PARTITION,
    WINDOW_START,
    Column,
    Expression,
    Key,
    Plan,
    ValueType,
)
from mars.core.windows import Counting, CountingByKey, Session, Window
from mars.core.windows.counting import LANE_PLACES, partition_of
from mars.engine.aggregates import LAST_TIME, OTHERS, PANE, constant, key_names
from mars.engine.aggregates import finish as finish_states
from mars.engine.aggregates.states import PLANS_REMEMBERED
from mars.engine.evaluate import to_polars
from mars.engine.evaluate.shared import signs_of_zeros

Value = str | int | float | bool | None

EACH_ITS_OWN = Window(0, 0)
"""For the rows of sessions, each of which says when it begins and ends."""

RESULT_BYTES_MAX = 900 * 1024
"""Of the key and the value of a result together; a larger one is withheld. What Kafka and its
client take unless they are told otherwise, 1,000,000 bytes, leaves 76 KiB for the headers: those of
a window that counts rows of 2,000 lanes. It is a constant, because every reducer, and whoever
verifies a window, must find the same."""

KEY_BYTES_SHOWN = 256
"""How much of the key of a withheld result is told to people."""

BEGIN_BYTES = 100
"""Of a value: longer than two times with their names."""

_ESCAPED = r'["\\\x00-\x1f]'
"""The characters that JSON texts must escape."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """A result that is over RESULT_BYTES_MAX: its key, and the bytes of key and value.

    `begin` is how its value begins, which is with its window.
    """

    key: bytes
    size: int
    begin: bytes = field(default=b"", compare=False)

    @property
    def shown_key(self) -> str:
        """The begin of the key, as text."""
        if len(self.key) <= KEY_BYTES_SHOWN:
            return self.key.decode()
        return self.key[:KEY_BYTES_SHOWN].decode(errors="ignore") + "..."

    @property
    def detail(self) -> str:
        """What happened, for people."""
        return (
            f"the result with the key {self.shown_key} is withheld: it has {self.size} bytes with "
            f"its key, at most {RESULT_BYTES_MAX} are sent; select less text"
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """The result rows of one window: Kafka keys and values, in the order in which they are sent.

    The last `others` of them (0 or 1) stand for all groups over the task's `max_keys`. What is
    `withheld` is not among them.
    """

    window: Window
    keys: list[bytes]
    values: list[bytes]
    others: int = 0
    withheld: tuple[Withheld, ...] = ()

    def sendable(self) -> Finished:
        """The rows that Kafka takes; the others are withheld."""
        longest = max(map(len, self.keys), default=0) + max(map(len, self.values), default=0)
        if longest <= RESULT_BYTES_MAX:
            return self
        pairs = zip(self.keys, self.values, strict=True)
        sizes = [len(key) + len(value) for key, value in pairs]
        kept = [at for at, size in enumerate(sizes) if size <= RESULT_BYTES_MAX]
        own = len(self.keys) - self.others
        return Finished(
            self.window,
            [self.keys[at] for at in kept],
            [self.values[at] for at in kept],
            sum(at >= own for at in kept),
            tuple(
                Withheld(self.keys[at], size, self.values[at][:BEGIN_BYTES])
                for at, size in enumerate(sizes)
                if size > RESULT_BYTES_MAX
            ),
        )

    def part(self, *, others: bool) -> Finished:
        """The rows of groups alone, or that of the others."""
        own = len(self.keys) - self.others
        part = slice(own, None) if others else slice(own)
        count = self.others if others else 0
        return Finished(self.window, self.keys[part], self.values[part], count)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result row, read back: the group key without the window, and the items."""

    window_start_ms: int
    window_end_ms: int
    key: tuple[Value, ...]
    items: tuple[Value, ...]


def finish(plan: Plan, states: pl.DataFrame, window: Window, *, refused: bool = False) -> Finished:
    """The rows of one window.

    `states` are merged states of that window, one row per key; a column `pane` is looked at
    only where the rows of each key are counted: it is the place of a window's first row.
    The group of all groups over `max_keys` comes last: HAVING, ORDER BY and LIMIT choose among
    groups, and it is none. `refused`: the groups that HAVING does not let pass, in place of others.
    """
    groups = finish_states(plan, states)
    known = _of_window(plan, window).items()
    groups = groups.hstack([constant(name, value, groups.height) for name, value in known])
    if isinstance(plan.window, CountingByKey):
        groups = groups.hstack(_numbers(states.get_column(PANE)))
    if isinstance(plan.window, Session):
        groups = groups.with_columns(_session_end(plan.window))
    others = groups.filter(OTHERS) if plan.folds else groups.clear()
    if plan.folds:
        groups = groups.filter(~pl.col(OTHERS))
    if plan.having is not None:
        passes = to_polars(plan.having).fill_null(value=False)
        groups = groups.filter(~passes if refused else passes)
    groups = (
        pl.concat([_ordered(plan, groups), others]) if others.height else _ordered(plan, groups)
    )
    keys, values = _written(plan, groups)
    return Finished(window, keys, values, others.height)


def retractions(plan: Plan, window: Window, withheld: Sequence[Withheld]) -> Finished:
    """Rows in place of what is withheld, for groups that may have been emitted: all items NULL.

    A key that is too long by itself was never emitted.
    """
    members = dict.fromkeys(name for name, _ in _members(plan)) | _of_window(plan, window)
    value = msgspec.json.encode(members)
    keys = [one.key for one in withheld if len(one.key) <= RESULT_BYTES_MAX]
    return Finished(window, keys, [value] * len(keys))


def rows(plan: Plan, finished: Finished) -> Iterator[ResultRow]:
    """The rows read back, one at a time as they are asked for.

    `items` stand in the order of the plan's outputs.
    """
    for key, value in zip(finished.keys, finished.values, strict=True):
        members = msgspec.json.decode(value)
        yield ResultRow(
            members[WINDOW_START],
            members[WINDOW_END],
            group_of(plan, key),
            tuple(members[output.name] for output in plan.outputs),
        )


def group_of(plan: Plan, key: bytes) -> tuple[Value, ...]:
    """The group that the key of a result row names, without the window."""
    return tuple(msgspec.json.decode(key)[1 : 1 + len(plan.keys)])


# -------------------------------------------------------------------------------------- order


def _ordered(plan: Plan, groups: pl.DataFrame) -> pl.DataFrame:
    """The rows that are emitted, in order: as asked, then by key; NULLs last."""
    asked = [f"__order{at}" for at in range(len(plan.order_by))]
    if asked:
        groups = groups.with_columns_seq(
            to_polars(order.expression).alias(name)
            for order, name in zip(plan.order_by, asked, strict=True)
        )
    by = [*asked, *key_names(plan), *([WINDOW_START] if plan.has_sessions else [])]
    by += [WINDOW_NUMBER] if plan.counts_by_key else []
    if by and groups.height > 1:
        descending = [order.descending for order in plan.order_by]
        descending += [False] * (len(by) - len(asked))
        groups = groups.sort(by, descending=descending, nulls_last=True)
    if asked:
        groups = groups.drop(asked)
    return groups if plan.limit is None else groups.head(plan.limit)


# --------------------------------------------------------------------------------------- JSON


def _of_window(plan: Plan, window: Window) -> dict[str, int | str | None]:
    """What all rows of a window say of it; where it counts rows, the rest is its groups' own, and
    all of it where windows are those of one group.
    """
    known = {
        WINDOW_START: window.start_ms,
        WINDOW_END: window.end_ms,
        WINDOW_LOCAL: plan.window.local(window),
    }
    if isinstance(plan.window, Session | CountingByKey):
        return {}
    if isinstance(plan.window, Counting):
        known = {
            WINDOW_PARTITION: partition_of(window.start_ms),
            WINDOW_NUMBER: plan.window.number(window),
        }
    return {name: known[name] for name in _names(plan) if name in known}


def _numbers(places: pl.Series) -> list[pl.Series]:
    """Where the rows of each key are counted: what names the windows that begin at these places."""
    return [
        (places // LANE_PLACES).alias(WINDOW_PARTITION),
        (places % LANE_PLACES).alias(WINDOW_NUMBER),
    ]


def _session_end(shape: Session) -> pl.Expr:
    """A gap behind the last row, or where the cell ends."""
    first, last = pl.col(WINDOW_START), pl.col(LAST_TIME)
    return pl.min_horizontal(last + shape.gap_ms, shape.cell(first) + shape.most_ms).alias(
        WINDOW_END
    )


def _names(plan: Plan) -> list[str]:
    return [column.name for column in plan.window_columns]


def _key_columns(plan: Plan) -> list[Column]:
    """What the key of a result row holds: the window, which its end tells where several begin
    together, or its number, and the group.
    """
    start, end = (Column(name, ValueType.TIMESTAMP) for name in (WINDOW_START, WINDOW_END))
    group = [start, *map(_key, plan.keys)]
    if plan.counts_rows:
        names = (WINDOW_PARTITION, WINDOW_NUMBER)
        return [*group, *(Column(name, ValueType.INT64) for name in names)]
    return [*group, end] if plan.window.begin_together else group


def _key(key: Key) -> Column:
    return Column(key.slot, key.expression.type)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _members(plan: Plan) -> list[tuple[str, Expression]]:
    """Names and expressions of a value's members; the window's own come first, and only once."""
    own = {WINDOW_START, WINDOW_END, *_names(plan)}
    items = [one for one in plan.outputs if one.name not in own]
    return [
        *((column.name, column) for column in plan.window_columns),
        *((one.name, one.expression) for one in items),
    ]


@dataclass(frozen=True, slots=True)
class _Form:
    """How the rows of a plan are written: columns to be computed, then the texts of columns of
    these types, then those joined.
    """

    computed: tuple[pl.Expr, ...]
    types: tuple[tuple[str, ValueType], ...]
    joined: tuple[pl.Expr, ...]


def _form(plan: Plan) -> _Form:
    return _form_of(plan, signs_of_zeros(one.expression for one in plan.outputs))


@lru_cache(maxsize=PLANS_REMEMBERED)
def _form_of(plan: Plan, _signs: tuple[float, ...]) -> _Form:
    """It is remembered by the plan, and by what `==` does not tell apart in it."""
    key = [("", column) for column in _key_columns(plan)]
    value: list[tuple[str, Column]] = []
    computed: list[pl.Expr] = []
    for name, expression in _members(plan):
        column = expression
        if not isinstance(column, Column):
            column = Column(f"__value{len(computed)}", expression.type)
            computed.append(to_polars(expression).alias(column.name))
        value.append((_quoted(name) + ":", column))
    joined = (
        _joined("[", [(prefix, one.name) for prefix, one in key], "]").alias("key"),
        _joined("{", [(prefix, one.name) for prefix, one in value], "}").alias("value"),
    )
    types = {one.name: one.type for _, one in key + value}
    return _Form(tuple(computed), tuple(types.items()), joined)


def _written(plan: Plan, groups: pl.DataFrame) -> tuple[list[bytes], list[bytes]]:
    """The JSON texts of the keys and of the values, one of each per row."""
    form = _form(plan)
    if form.computed:
        groups = groups.with_columns_seq(form.computed)
    written = _texts(groups, form.types).select_seq(form.joined)
    return written.get_column("key").to_list(), written.get_column("value").to_list()


def _joined(opening: str, members: list[tuple[str, str]], closing: str) -> pl.Expr:
    """The texts in these columns, each after its prefix, between brackets, as bytes."""
    pieces: list[pl.Expr] = []
    between = opening
    for prefix, name in members:
        pieces += [pl.lit(between + prefix), pl.col(name)]
        between = ","
    return pl.concat_str([*pieces, pl.lit(closing)]).cast(pl.Binary)


def _texts(groups: pl.DataFrame, types: tuple[tuple[str, ValueType], ...]) -> pl.DataFrame:
    """The values of these columns as JSON texts."""
    strings = [name for name, kind in types if kind is ValueType.STRING]
    to_escape: tuple[str, ...] = ()
    if strings:
        found = groups.select_seq(pl.col(strings).str.contains(_ESCAPED).any())
        to_escape = tuple(name for name in strings if found.item(0, name))
    return groups.select_seq(_texts_of(types, to_escape))


@lru_cache(maxsize=PLANS_REMEMBERED)
def _texts_of(
    types: tuple[tuple[str, ValueType], ...], to_escape: tuple[str, ...]
) -> tuple[pl.Expr, ...]:
    return tuple(
        _text(pl.col(name), kind, escape=name in to_escape).alias(name) for name, kind in types
    )


def _text(value: pl.Expr, kind: ValueType, *, escape: bool) -> pl.Expr:
    if kind is ValueType.STRING:
        text = pl.concat_str(pl.lit('"'), _escaped(value) if escape else value, pl.lit('"'))
    elif kind is ValueType.FLOAT64:
        text = pl.when(value.is_finite()).then(value.cast(pl.String))
    else:
        text = value.cast(pl.String)
    return text.fill_null("null")


def _escaped(value: pl.Expr) -> pl.Expr:
    plain = [*(chr(code) for code in range(0x20)), '"', "\\"]
    escapes = [_quoted(character)[1:-1] for character in plain]
    return value.str.replace_many(plain, escapes)
