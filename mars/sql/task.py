"""A query and its options, as a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from mars.core.errors import Rejected
from mars.core.plan import (
    OF_COUNTED,
    OFFSET_FIELD,
    WINDOW_LOCAL,
    Aggregate,
    Call,
    Column,
    Expression,
    LatePolicy,
    Order,
    Plan,
    Stream,
    WatermarkScope,
)
from mars.core.types import TaskName
from mars.core.windows import OPEN_PANES_MAX, Counting, WindowShape
from mars.core.windows.moments import MINUTE_MS
from mars.engine.aggregates import (
    key_place_aggregates,
    place_aggregates,
    scope_aggregates,
    session_aggregates,
)
from mars.sql.bounds import since
from mars.sql.expressions.compiler import size_of
from mars.sql.expressions.groups import GroupCompiler, Slots
from mars.sql.expressions.naming import StreamOf
from mars.sql.expressions.operands import strip
from mars.sql.expressions.scalars import row_compiler
from mars.sql.expressions.scopes import GroupScope, RowScope, ScopeNames, did_you_mean
from mars.sql.keys import Grouping, grouping_of, ordinal
from mars.sql.options import WINDOWS_KEPT_MAX, parse_options
from mars.sql.outputs import Item, items_of, outputs_of
from mars.sql.source import tokenize
from mars.sql.syntax import ONE_STREAM, Statement, cut, parse
from mars.sql.table_call import check_grouped
from mars.sql.windowing import NO_ZONE, ZoneOf, window_of
from mars.sql.windows.counting import check_counting
from mars.sql.windows.sessions import check_sessions

LIMIT_MAX: Final = 100_000
"""Largest LIMIT: such a task lives in one bucket, and its window is one transaction."""
STEP_ROWS_A_MINUTE_MAX: Final = 6_000_000
"""Result rows a minute of a task whose windows cumulate: a bucket writes some 100,000 a second."""

PLAN_NODES_MAX: Final = 50_000
"""Largest plan, in nodes of all its expressions: it is sent to every process of the task."""

_CLAUSES: Final = (*("expressions", "from_", "where", "group", "having", "order", "limit"),)


def source_name(sql: str) -> str:
    """The name of the stream that a query reads; raises `SqlError` where there is none."""
    return cut(tokenize(sql)).stream.text


def compile_task(
    sql: str,
    *,
    task: TaskName,
    version: int,
    stream_of: StreamOf,
    options: Mapping[str, object],
    default_topic: str | None = None,
    zone_of: ZoneOf = NO_ZONE,
    begin_ms: int | None = None,
) -> Plan:
    """The plan of a query; `stream_of` finds a declared stream by its name, as `find_name` does.

    `zone_of` finds a time zone: in a database where the query is new, else the one that its
    definition has. `begin_ms` is a time in the first step since a landmark of which the query does
    not say when it is: when its task begins, or the landmark that its definition has.
    `default_topic` is where results go unless the options say otherwise (`parse_options`).
    A SELECT item `window_start` or `window_end` is no output of the plan: result rows carry both
    by themselves. Raises `SqlError` with line and column for the text, `Rejected` for the options.
    """
    statement = cut(tokenize(sql))
    stream = stream_of(statement.stream.text)
    if not isinstance(stream, Stream):
        name = statement.stream.text
        hint = did_you_mean(name, stream or ()) or (
            "declare it first, or write its name as it was declared"
        )
        raise statement.source.error(statement.stream, f"there is no stream {name[:80]!r}; {hint}")
    query = _read(statement, stream)
    rows_filter = _filter(query)
    outputs, named = outputs_of(query.names, query.items, query.groups("SELECT"))
    window = window_of(query.names, statement, query.grouping.window_calls, zone_of, begin_ms)
    _check_names(query, window)
    plan = Plan(
        task=task,
        version=version,
        stream=stream,
        window=window,
        keys=query.grouping.keys,
        aggregates=(),
        outputs=outputs,
        options=parse_options(options, task, stream, default_topic),
        filter=rows_filter,
        having=_having(query, named),
        order_by=_order(query, named),
        limit=_limit(query),
    )
    check_counting(plan, options)
    check_sessions(plan)
    return _completed(query, since(replace(plan, aggregates=query.slots.all), window.begins_ms))


@dataclass(frozen=True, slots=True)
class _Query:
    """A query on its way: its tree, and what its clauses share."""

    names: ScopeNames
    tree: exp.Select
    items: list[Item]
    grouping: Grouping
    slots: Slots

    def groups(self, clause: str, aliases: Mapping[str, Expression] | None = None) -> GroupCompiler:
        """A compiler of a clause that is about groups."""
        scope = GroupScope(self.names, clause, aliases or {})
        return GroupCompiler(self.names, scope, self.grouping.keys, self.slots)

    def clause(self, name: str) -> exp.Expr | None:
        """A clause of the SELECT, if it is there."""
        found = self.tree.args.get(name)
        return found if isinstance(found, exp.Expr) else None


def _read(statement: Statement, stream: Stream) -> _Query:
    tree = parse(statement, stream)
    table = _table(statement, tree)
    names = ScopeNames(
        statement.source,
        stream,
        frozenset([stream.name, table.alias_or_name]),
        {field.name: field for field in stream.fields},
    )
    rows = row_compiler(statement.source, RowScope(names, "WHERE"))
    rows.check_parts(tree, _CLAUSES)
    rows.check_parts(table, ("this", "alias"))
    if table.args.get("alias"):
        rows.check_parts(table.args["alias"], ("this",))
    if statement.call is not None:
        check_grouped(statement.source, statement.call, tree.args.get("group"))
    items = items_of(names, tree)
    grouping = grouping_of(names, tree.args.get("group"), items)
    return _Query(names, tree, items, grouping, Slots())


def _check_names(query: _Query, window: WindowShape) -> None:
    """What a row says of its window besides when it begins and ends has a name of its own."""
    own = () if window.zone is None else (WINDOW_LOCAL,)
    taken = OF_COUNTED if isinstance(window, Counting) else own
    item = next((item for item in query.items if item.name in taken), None)
    if item is not None:
        raise query.names.source.error(
            item.named_at, f"{item.name} is the window's own in results; choose another name"
        )


def _table(statement: Statement, tree: exp.Select) -> exp.Expr:
    """What the query reads: the name of a stream."""
    if tree.args.get("joins"):
        raise statement.source.error(tree.args["joins"][0], ONE_STREAM)
    clause = tree.args.get("from_")
    table = clause.this if isinstance(clause, exp.From) else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise statement.source.error(
            statement.stream, "a query reads a declared stream; write FROM and its name"
        )
    return table


def _filter(query: _Query) -> Expression | None:
    where = query.clause("where")
    if where is None:
        return None
    scope = RowScope(
        query.names, "WHERE", frozenset(item.name for item in query.items if item.name)
    )
    return row_compiler(query.names.source, scope).condition(where.this)


def _having(query: _Query, named: Mapping[str, Expression]) -> Expression | None:
    having = query.clause("having")
    return None if having is None else query.groups("HAVING", named).condition(having.this)


def _order(query: _Query, named: Mapping[str, Expression]) -> tuple[Order, ...]:
    order = query.clause("order")
    if order is None:
        return ()
    compiler = query.groups("ORDER BY", named)
    compiler.check_parts(order, ("expressions",))
    return tuple(_ordered(query, named, compiler, node) for node in order.expressions)


def _ordered(
    query: _Query, named: Mapping[str, Expression], compiler: GroupCompiler, node: exp.Expr
) -> Order:
    """One item of ORDER BY: a position, the name of a SELECT item, or an expression."""
    compiler.check_parts(node, ("this", "desc", "nulls_first"))
    if node.args.get("nulls_first"):
        raise query.names.source.error(node, "NULLS FIRST is not supported; NULLs come last")
    bare = strip(node.this)
    descending = bool(node.args.get("desc"))
    if isinstance(bare, exp.Literal) and not bare.is_string:
        item = ordinal(query.names, bare, query.items)
        return Order(compiler.expression(item.node), descending)
    if isinstance(bare, exp.Column) and not bare.table and bare.name in named:
        return Order(named[bare.name], descending)
    return Order(compiler.expression(node.this), descending)


def _limit(query: _Query) -> int | None:
    limit = query.clause("limit")
    if limit is None:
        return None
    count = limit.args.get("expression")
    text = count.name if isinstance(count, exp.Literal) and not count.is_string else ""
    extra = [name for name, part in limit.args.items() if part and name != "expression"]
    digits = text.lstrip("0")
    if extra or not digits.isdecimal() or len(digits) > 9 or int(digits) > LIMIT_MAX:
        raise query.names.source.error(limit, f"LIMIT takes a number from 1 to {LIMIT_MAX}")
    return int(digits)


def _completed(query: _Query, plan: Plan) -> Plan:
    """The plan with the fields that it reads; checked as a whole."""
    source = query.names.source
    if not plan.keys and not plan.aggregates:
        raise source.error(
            query.tree, "nothing is counted and nothing grouped; add an aggregate, or GROUP BY"
        )
    everything = [*_of_rows(plan), *_of_groups(plan)]
    if sum(size_of(part, PLAN_NODES_MAX) for part in everything) > PLAN_NODES_MAX:
        raise source.error(0, "the query is too large; split it into several tasks")
    _check_open(plan)
    _check_revisable(plan)
    _check_cumulating(plan)
    _check_changed(plan)
    _check_scope(plan)
    used = {plan.stream.event_time, *_columns(_of_rows(plan))}
    fields = tuple(of for of in plan.stream.fields if of.name in used)
    if plan.counts_rows:
        fields = (*fields, OFFSET_FIELD)
    return replace(plan, fields=fields, aggregates=(*plan.aggregates, *_hidden(plan)))


def _check_open(plan: Plan) -> None:
    """Windows are held for delay and lateness; steady rows must not make too many of them."""
    window, options = plan.window, plan.options
    if plan.counts_rows:
        return
    held_ms = window.kept_ms + options.delay_ms + options.lateness_ms + options.key_lag_ms
    opened = held_ms // window.pane_ms
    if opened > OPEN_PANES_MAX:
        besides = "lateness" if options.lateness_ms else "key_lag" if options.key_lag_ms else ""
        names = f"delay and {besides}" if besides else "delay"
        raise Rejected(
            f"option delay: rows of {held_ms // 1000} s in slices of {window.pane_ms} ms would "
            f"have to be held, {opened} in all, and {OPEN_PANES_MAX} may be open: shorten the "
            f"{names}, or take longer windows or a longer slide"
        )


def _check_revisable(plan: Plan) -> None:
    """A revision has those groups alone that late rows have changed: all others must stay right."""
    options = plan.options
    if options.late is not LatePolicy.REVISE:
        return
    if plan.window.longest_ms is None:
        raise Rejected(
            "option late: since a landmark no row is late, because it counts in all windows that "
            "end later; use late: drop, which drops none there"
        )
    if plan.limit is not None:
        raise Rejected(
            "option late: with LIMIT a late row may change which groups are among the results, and "
            "revisions are of single groups; use late: drop, or leave LIMIT out"
        )
    if plan.folds:
        raise Rejected(
            "option late: which groups are folded over max_keys may be another choice after a loss "
            "of Redis, and revisions would contradict each other; use late: drop, or "
            "over_max_keys: fail"
        )
    kept = options.lateness_ms // plan.window.ends_apart_ms
    if kept > WINDOWS_KEPT_MAX:
        raise Rejected(
            f"option lateness: {kept} closed windows would be kept, and at most "
            f"{WINDOWS_KEPT_MAX} are: shorten it, or take longer windows or a longer slide"
        )


def _check_cumulating(plan: Plan) -> None:
    """All groups of a cycle are emitted at each of its steps."""
    window, options = plan.window, plan.options
    if not window.begin_together:
        return
    if plan.folds:
        raise Rejected(
            "option over_max_keys: fold is not possible where windows cumulate, because which "
            "groups have a row of their own would change from step to step; use over_max_keys: "
            "fail, or no max_keys"
        )
    rows = (options.max_keys or 0) * MINUTE_MS // window.ends_apart_ms
    if rows > STEP_ROWS_A_MINUTE_MAX:
        raise Rejected(
            f"option max_keys: {options.max_keys} groups at each step of {window.ends_apart_ms} ms "
            f"are {rows} result rows a minute, and at most {STEP_ROWS_A_MINUTE_MAX} are possible: "
            "take a longer step, or a smaller max_keys"
        )


def _check_changed(plan: Plan) -> None:
    """What a group that does not come again has said before must still be true."""
    if not plan.emits_changed:
        return
    if not plan.window.begin_together:
        raise Rejected(
            "option emit: changed is for windows that begin together, because no other one repeats "
            "groups; use emit: all, or WINDOWING LANDMARK or EVERY"
        )
    if plan.options.late is LatePolicy.REVISE:
        raise Rejected("option emit: changed does not go with late: revise; use late: drop")
    if plan.limit is not None or plan.having is not None:
        raise Rejected(
            "option emit: with HAVING or LIMIT a group may drop out of the results, and changed "
            "would not say so; use emit: all, or leave them out"
        )


def _check_scope(plan: Plan) -> None:
    scope, clash = plan.options.watermark, scope_clash(plan)
    if scope is not WatermarkScope.PARTITION and clash is not None:
        why, remedy = clash
        raise Rejected(
            f"option watermark: {scope.value} is not possible here, because {why}; {remedy}, or "
            "use watermark: partition"
        )


def scope_clash(plan: Plan) -> tuple[str, str] | None:
    """Why windows cannot close bucket by bucket or key by key, and what to do; None if they can.

    What closes apart from the others must not depend on them, nor come back.
    """
    clashes = (
        (not plan.keys, "the query groups by no key", "add a key to GROUP BY"),
        (
            bool(plan.order_by) or plan.limit is not None or plan.options.max_keys is not None,
            "ORDER BY, LIMIT and max_keys choose among all groups of a window at once",
            "leave them out",
        ),
        (plan.has_sessions, "each group has sessions of its own", "take windows by time"),
        (
            not plan.window.is_tumbling,
            f"its windows {'cumulate' if plan.window.begin_together else 'slide'}",
            "take windows that do not overlap",
        ),
        (plan.options.late is LatePolicy.REVISE, "the task revises", "use late: drop"),
    )
    return next(((why, remedy) for here, why, remedy in clashes if here), None)


def _hidden(plan: Plan) -> tuple[Aggregate, ...]:
    """What groups carry so that it is known when they are to be closed, or where their rows lie."""
    if plan.counts_by_key:
        return key_place_aggregates(plan.stream.event_time)
    if plan.counts_rows:
        return place_aggregates(plan.stream.event_time)
    if plan.has_sessions:
        return session_aggregates(plan.stream.event_time)
    if plan.options.watermark is WatermarkScope.PARTITION:
        return ()
    return scope_aggregates(plan.stream.event_time)


def _of_rows(plan: Plan) -> list[Expression]:
    """The expressions over the columns of the stream."""
    aggregates = [(part.argument, part.filter) for part in plan.aggregates]
    parts = [plan.filter, *(key.expression for key in plan.keys)]
    return [part for part in (*parts, *sum(aggregates, ())) if part is not None]


def _of_groups(plan: Plan) -> list[Expression]:
    """The expressions over keys and aggregates."""
    ordered = [order.expression for order in plan.order_by]
    having = [] if plan.having is None else [plan.having]
    return [*(output.expression for output in plan.outputs), *having, *ordered]


def _columns(expressions: Sequence[Expression]) -> set[str]:
    """The names of the columns in some expressions."""
    found: set[str] = set()
    pending = list(expressions)
    while pending:
        match pending.pop():
            case Column(name):
                found.add(name)
            case Call(arguments=arguments):
                pending.extend(arguments)
    return found
