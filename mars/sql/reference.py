"""Writes docs/reference/sql.md: `python -m mars.sql.reference > docs/reference/sql.md`.

Names, defaults, limits and types are the code's own. Each example is compiled while the page is
written, which gives its type; what has no example, or no description, fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Final

from mars.core.errors import Rejected
from mars.core.plan import (
    Emit,
    Field,
    FieldType,
    Format,
    LatePolicy,
    Options,
    OverMaxKeys,
    Plan,
    Stream,
    TaskBuckets,
    WatermarkScope,
)
from mars.core.types import StreamName, TaskName
from mars.core.windows import Zone, span
from mars.engine.evaluate.texts import TEXT_BYTES_MAX
from mars.sql.examples import AGGREGATES, OPERATORS, SCALARS, SPELLINGS
from mars.sql.expressions.functions import DIGITS_MAX, TEXTS_MAX
from mars.sql.expressions.groups import AGGREGATES_MAX
from mars.sql.expressions.naming import only
from mars.sql.expressions.operators import LIST_MAX, PATTERN_CHARACTERS_MAX
from mars.sql.keys import KEYS_MAX
from mars.sql.lengths import PANES_MAX, WINDOW_MS_MAX, WINDOW_MS_MIN
from mars.sql.options import (
    DELAY_MS_MAX,
    FUTURE_LIMIT_MS_MAX,
    IDLE_AFTER_MS_MAX,
    IDLE_AFTER_MS_MIN,
    KEY_LAG_MS_DEFAULT,
    KEY_LAG_MS_MAX,
    LATENESS_MS_DEFAULT,
    LATENESS_MS_MAX,
    MAX_KEYS_MAX,
    parse_options,
)
from mars.sql.outputs import OUTPUTS_MAX
from mars.sql.task import LIMIT_MAX, STEP_ROWS_A_MINUTE_MAX, compile_task
from mars.sql.windowing import pinned
from mars.sql.windows.told import COUNTING, SESSIONS

TASK: Final = TaskName("example")
REGISTERED_MS: Final = 1_767_225_600_000
"""When the examples' tasks are, for those that go by that."""
ZONE: Final = Zone("Europe/Berlin", "of this page", 3_600_000)
STREAM: Final = Stream(
    name=StreamName("flows"),
    topic="flows",
    format=Format.JSON,
    fields=(
        Field("at", FieldType.TIMESTAMP_MS),
        Field("sip", FieldType.STRING),
        Field("bytes", FieldType.INT64),
        Field("loss", FieldType.FLOAT64),
        Field("ok", FieldType.BOOL),
    ),
    event_time="at",
)

FIELD_TYPES: Final[Mapping[FieldType, str]] = {
    FieldType.STRING: "text",
    FieldType.INT64: "a whole number of 64 bits",
    FieldType.FLOAT64: "a number; whole ones are taken, too",
    FieldType.BOOL: "`true` or `false`",
    FieldType.TIMESTAMP_MS: "milliseconds since 1970, UTC",
    FieldType.TIMESTAMP_US: "microseconds since 1970, UTC",
    FieldType.TIMESTAMP_S: "seconds since 1970, UTC",
    FieldType.TIMESTAMP_ISO: "ISO 8601 text; UTC unless it names an offset",
}

WINDOWS: Final[Mapping[str, str]] = {
    "WINDOWING 60 s": "tumbling: each row is in one window",
    "WINDOWING 60 s SLIDE 10 s": "sliding: each row is in six windows, one ends every 10 s",
    "WINDOWING 1 d EVERY 1 min": "cumulating: the day so far, every minute",
    "WINDOWING LANDMARK '2026-01-01T00:00:00Z' EVERY 10 s": "all since then, in steps with rows",
    "WINDOWING LANDMARK EVERY 10 s": "the same since the task was registered",
    "WINDOWING 1 d OFFSET 6 h": "tumbling, from six to six in UTC",
    "WINDOWING 1 d TIMEZONE 'Europe/Berlin'": "the day there, of 23 to 25 hours",
    "WINDOWING 1 month TIMEZONE 'Europe/Berlin'": "the month there; also `week quarter year`",
    "WINDOWING 6 h TIMEZONE 'Europe/Berlin'": "cut at 0, 6, 12 and 18 by the clock there",
    "WINDOWING 7 d SLIDE 1 d TIMEZONE 'Europe/Berlin'": "sliding: the last seven days, every day",
    "WINDOWING 1 month EVERY 1 d TIMEZONE 'Europe/Berlin'": "cumulating: the month so far",
    "WINDOWING 1000 ROWS": "each 1,000 rows of a partition",
    "WINDOWING 1000 ROWS SLIDE 100 ROWS": "the last 1,000 rows, every 100",
    "WINDOWING 1000 ROWS PER KEY EXPIRE 1 d": "each 1,000 rows of a key of a partition",
    "WINDOWING SESSION 30 min": "sessions: rows of a group less than half an hour apart",
    "WINDOWING SESSION 30 min MAX 4 h": "the same, cut at every fourth hour in UTC",
    "GROUP BY TUMBLE(at, INTERVAL '60' SECOND)": "the same as the first",
    "GROUP BY HOP(at, INTERVAL '10' SECOND, INTERVAL '60' SECOND)": "the same as the second",
    "GROUP BY CUMULATE(at, INTERVAL '1' MINUTE, INTERVAL '1' DAY)": "the same as the third",
    "GROUP BY TUMBLE(at, INTERVAL '1' MONTH, 'Europe/Berlin')": "the month there, as above",
    "GROUP BY SESSION(at, INTERVAL '30' MINUTE)": "sessions, as above; a third argument is MAX",
}

SHAPES: Final[Mapping[str, str]] = {
    "tumbling": "WINDOWING 60 s",
    "sliding": "WINDOWING 60 s SLIDE 10 s",
    "cumulating": "WINDOWING 60 s EVERY 10 s",
    "since a landmark": "WINDOWING LANDMARK '2026-01-01' EVERY 10 s",
    "in a zone": "WINDOWING 1 d TIMEZONE 'Europe/Berlin'",
    "in a zone, sliding": "WINDOWING 7 d SLIDE 1 d TIMEZONE 'Europe/Berlin'",
    "in a zone, cumulating": "WINDOWING 1 d EVERY 1 h TIMEZONE 'Europe/Berlin'",
    "of rows": "WINDOWING 1000 ROWS SLIDE 100 ROWS",
    "of rows of a key": "WINDOWING 1000 ROWS PER KEY EXPIRE 1 d",
    "sessions": "WINDOWING SESSION 30 min",
}

TRIED: Final[Mapping[str, tuple[Mapping[str, object], str]]] = {
    "`delay`, `idle_after`": ({"delay": "5s", "idle_after": "5s"}, ""),
    "`late` `revise`": ({"late": "revise"}, ""),
    "`watermark` `bucket` or `key`": ({"watermark": "key"}, ""),
    "`max_keys`": ({"max_keys": 9}, ""),
    "`over_max_keys` `fold`": ({"max_keys": 9, "over_max_keys": "fold"}, ""),
    "`emit` `changed`": ({"emit": "changed"}, ""),
    "`buckets` `one`": ({"buckets": "one"}, ""),
    "`ORDER BY ... LIMIT n`": ({}, "ORDER BY count LIMIT 3"),
}

USES: Final[Mapping[str, Callable[[Plan], bool]]] = {
    "`mars task preview`": lambda _plan: True,
    "`mars query` over a topic": lambda _plan: True,
    "`mars query` over files": lambda plan: not plan.counts_rows,
    "history by Spark": lambda plan: not plan.maps_in_order,
}

OPERATOR_WORDS: Final[Mapping[str, str]] = {
    "bytes + 1": "`+ - *`: exact over integers, to 128 bits; beyond them NULL",
    "bytes / 2": "division is never cut off; `x / 0` is NULL",
    "bytes % 2": "remainder; `x % 0` is NULL",
    "bytes >= 10": "`= <> < <= > >=`; numbers with numbers, a timestamp with milliseconds",
    "ok AND NOT bytes = 1": "`AND OR NOT`, with NULL as unknown",
    "sip IN ('a', 'b')": f"at most {LIST_MAX:,} values",
    "bytes BETWEEN 1 AND 9": "both ends count",
    "sip LIKE 'a_%' ESCAPE '!'": f"a pattern of at most {PATTERN_CHARACTERS_MAX:,} characters",
    "sip IS NOT NULL": "`IS NULL`, `IS NOT NULL`",
    "sip || '!'": "texts joined as by CONCAT; NULL if one of them is",
}

SCALAR_WORDS: Final[Mapping[str, str]] = {
    "abs": "without its sign",
    "case": "also `CASE x WHEN 1 THEN ...`",
    "cast": "to BIGINT, HUGEINT, DOUBLE, VARCHAR, BOOLEAN, TIMESTAMP; NULL where it fails",
    "ceil": "the next whole number above",
    "coalesce": "the first that is not NULL",
    "concat": f"at most {TEXTS_MAX} texts joined; NULLs are passed over; NULL over "
    f"{TEXT_BYTES_MAX // 1024} KiB",
    "floor": "the next whole number below",
    "length": "number of characters",
    "lower": "small letters",
    "nullif": "NULL if both are equal, else the first",
    "round": f"to -{DIGITS_MAX} to {DIGITS_MAX} digits, written out",
    "substr": "from a character, counted from 1; the length may be left out",
    "upper": "capital letters",
}

AGGREGATE_WORDS: Final[Mapping[str, str]] = {
    "any_value(sip)": "the smallest value, so that it is always the same",
    "avg(bytes)": "mean",
    "bool_and(ok)": "true if all are",
    "bool_or(ok)": "true if one is",
    "count(*)": "rows",
    "count(sip)": "rows where it is not NULL",
    "count(DISTINCT sip)": "different values, exactly; see the limits for how many",
    "count_if(ok)": "rows where it is true",
    "max(sip)": "largest value of any type",
    "min(loss)": "smallest value of any type",
    "stddev_pop(bytes)": "standard deviation, of a population",
    "stddev_samp(bytes)": "standard deviation, of a sample",
    "sum(bytes)": "sum; exact over integers up to 128 bits, and NULL beyond",
    "sum(bytes) FILTER (WHERE ok)": "any aggregate may have a FILTER of its own",
    "var_pop(bytes)": "variance, of a population",
    "var_samp(bytes)": "variance, of a sample",
}

TYPE_WORDS: Final[Mapping[str, str]] = {"integer": "integer (128 bits)"}


def document() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, _windows(), _fields(), _scalars(), _aggregates(), _MEANING, _options()]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _plan(
    select: str, rest: str = "WINDOWING 60 s", options: Mapping[str, object] | None = None
) -> Plan:
    return compile_task(
        f"SELECT {select} FROM flows {rest}",  # noqa: S608 -- our own examples
        task=TASK,
        version=1,
        stream_of=only(STREAM),
        options=options or {},
        zone_of=pinned(ZONE),
        begin_ms=REGISTERED_MS,
    )


def _type_of(select: str) -> str:
    """The type of one item over groups; a scalar is wrapped into max(), which keeps its type."""
    found = _plan(f"{select} AS x").outputs[0].expression.type.value
    return TYPE_WORDS.get(found, found)


def _windows() -> str:
    lines = []
    for form, meaning in WINDOWS.items():
        grouped = "" if form.startswith("GROUP BY") else "GROUP BY sip "
        shape = _plan("count(*)", grouped + form).window
        lengths = f"{shape.said.size} / {shape.said.slide}"
        lines.append((f"`{form}`", lengths, meaning))
    table = _table(("form", "size / slide or step", "is"), lines)
    return f"""## Windows
{table}

Lengths are a number and one of `ms s min h d`. Windows begin at multiples of their slide since
1970-01-01T00:00:00Z, or later by an `OFFSET` that is shorter than the slide (than the size, with
`EVERY`). A window and its slide last from {WINDOW_MS_MIN} ms to {span(WINDOW_MS_MAX)},
and a window has at most {PANES_MAX:,} slices (its size by the greatest common divisor of both).
`window_start` and `window_end` are columns; the field of event time, in SELECT or GROUP BY, means
`window_start`.

{_TABLE_CALL.strip()}

{_CUMULATING.strip()}

{_LANDMARK.strip()}

{_CHANGED.strip()}

{_ZONED.strip()}

{COUNTING.strip()}

{SESSIONS.strip()}

### What goes with which windows
{_table(("", *SHAPES), _matrix())}"""


def _matrix() -> Iterable[tuple[str, ...]]:
    """Each option, tried with each shape; then what may be done with it."""
    for name, (options, rest) in TRIED.items():
        yield name, *(_verdict(form, options, rest) for form in SHAPES.values())
    plans = [_plan("sip, count(*)", f"GROUP BY sip {form}", {}) for form in SHAPES.values()]
    for name, works in USES.items():
        yield name, *("yes" if works(plan) else "no" for plan in plans)


def _verdict(form: str, options: Mapping[str, object], rest: str) -> str:
    try:
        _plan("sip, count(*)", f"GROUP BY sip {rest} {form}", options)
    except Rejected:
        return "no"
    return "yes"


def _fields() -> str:
    lines = [
        (f"`{type_.value}`", FIELD_TYPES[type_], type_.value_type.value) for type_ in FieldType
    ]
    return f"""## Types of fields
{_table(("in a stream", "in a message", "type in SQL"), lines)}

A missing field or a `null` is NULL. A value of another type makes the row *bad*: it is not counted,
and named in `mars.dead`. Timestamps in results are milliseconds."""


def _scalars() -> str:
    examples = [(each, OPERATOR_WORDS[each]) for each in OPERATORS.values()]
    examples += [(each, SCALAR_WORDS[name]) for name, each in SCALARS.items()]
    lines = [(f"`{each}`", _type_of(f"max({each})"), what) for each, what in examples]
    others = [(f"`{one}`", f"`{other}`") for one, other in SPELLINGS.items()]
    return f"""## Operators and functions
{_table(("example", "type", "is"), lines)}

Some forms of other engines are taken, too:

{_table(("as elsewhere", "means"), others)}"""


def _aggregates() -> str:
    lines = [
        (f"`{each}`", _type_of(each), AGGREGATE_WORDS[each])
        for examples in AGGREGATES.values()
        for each in examples
    ]
    return f"""## Aggregates
{_table(("example", "type", "is"), lines)}

NULLs are passed over, except by `count(*)`; over nothing but NULLs every aggregate but the counts
is NULL. Expressions may stand around aggregates, `sum(bytes) / count(*)`, and within them,
`sum(bytes * 8)`; an aggregate within an aggregate may not."""


def _options() -> str:
    defaults = parse_options({}, TASK, STREAM)
    words = {
        "output_topic": ("a topic", "where results go", defaults.output_topic),
        "delay_ms": (f"up to {span(DELAY_MS_MAX)}", "how far rows may be out of order", "0s"),
        "idle_after_ms": (
            f"{IDLE_AFTER_MS_MIN} ms to {span(IDLE_AFTER_MS_MAX)}",
            "a partition without rows for so long holds no window back; where all are without, "
            "event time goes on from the newest row as the clock does",
            f"{defaults.idle_after_ms // 1000}s",
        ),
        "future_limit_ms": (
            f"up to {span(FUTURE_LIMIT_MS_MAX)}",
            "a row so far ahead of its message's own time is not counted",
            f"{defaults.future_limit_ms // 60_000}min",
        ),
        "late": (_any_of(LatePolicy), "what becomes of late rows", defaults.late.value),
        "lateness_ms": (
            f"up to {span(LATENESS_MS_MAX)}",
            "with `late` `revise`: how long after closing a window takes late rows",
            f"{LATENESS_MS_DEFAULT // 60_000}min",
        ),
        "max_keys": (f"1 to {MAX_KEYS_MAX:,}", "most groups of a window", "none"),
        "over_max_keys": (
            _any_of(OverMaxKeys),
            "what happens with more: see [limits](limits.md)",
            defaults.over_max_keys.value,
        ),
        "watermark": (
            _any_of(WatermarkScope),
            "whose rows close windows: those of the slowest partition, of a bucket's keys, of each "
            "key",
            defaults.watermark.value,
        ),
        "key_lag_ms": (
            f"up to {span(KEY_LAG_MS_MAX)}",
            "with `watermark` `bucket` or `key`: how far keys may lag behind the slowest partition",
            f"{KEY_LAG_MS_DEFAULT // 1000}s",
        ),
        "emit": (
            _any_of(Emit),
            "where windows begin together: the groups with rows since then, or since the last one",
            defaults.emit.value,
        ),
        "buckets": (
            _any_of(TaskBuckets),
            "where groups lie: spread over reducers, or together, which costs a task of few groups "
            "less",
            defaults.buckets.value,
        ),
    }
    lines = [
        (f"`{each.name.removesuffix('_ms')}`", *words[each.name][:2], f"`{words[each.name][2]}`")
        for each in fields(Options)
    ]
    return f"""## Options of a task
`mars task add --option delay=5s`, or `"options": {{"delay": "5s"}}` in a request.

{_table(("option", "values", "is", "default"), lines)}"""


def _any_of(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _table(titles: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    cells = [titles, tuple("---" for _ in titles), *lines]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells
    )


_INTRODUCTION: Final = f"""
# SQL reference
This page is written by `python -m mars.sql.reference > docs/reference/sql.md`, from the tables of
the code.

```sql
SELECT item, ... FROM stream [WHERE condition] [GROUP BY key, ...] [HAVING condition]
[ORDER BY item [DESC], ...] [LIMIT n]
WINDOWING size [SLIDE slide | EVERY step] [OFFSET offset] [TIMEZONE 'zone']
WINDOWING LANDMARK ['time'] EVERY step
WINDOWING number ROWS [SLIDE number ROWS]
WINDOWING SESSION gap [MAX length]
```
One SELECT over one stream. Each group that has rows in a window gives one result row. Anything that
is not on this page is refused with its line and column and what would be taken instead; so are
joins, subqueries, and functions of the current time. `mars task validate` checks a query.

- **Items** are named with `AS`; without it `count(*)` is called `count`, `sum(bytes)` `sum_bytes`,
  `count(DISTINCT sip)` `count_distinct_sip`. Two of one name are refused.
- **Keys** of GROUP BY are fields, expressions over fields, names or numbers of items.
- **WHERE** is over the fields of a row, **HAVING** over keys and aggregates of a group.
- **ORDER BY ... LIMIT n** keeps the first n groups of each window. NULLs come last.
- Names that are words of SQL go into double quotes or backticks; text into single quotes.
- **Names** of streams, fields, items and qualifiers: an exact match wins, else the only one that
  differs in case alone. So `FROM Flows` reads `flows` where no other differs from it in case
  alone, and the fields `Osv` and `osv` stay two.

At most {OUTPUTS_MAX} items, {KEYS_MAX} keys, {AGGREGATES_MAX} aggregates and LIMIT {LIMIT_MAX:,};
[Limits](limits.md) has all of them."""  # noqa: S608 -- a page for people

_CUMULATING: Final = f"""
Windows that **cumulate** begin together and end step by step: those of a *cycle* of 3 min `EVERY 1
min` are [0, 1), [0, 2) and [0, 3) min, then the next cycle begins. Each is emitted once, when its
end has passed, with *all* groups that have rows in it, those too that got none in the last step.
Of two rows of `a` in the first minute and one of `b` in the third it makes

| key in Kafka | `window_start` | `window_end` | `sip` | `count` |
| --- | --- | --- | --- | --- |
| `[0,"a",60000]` | 0 | 60000 | a | 2 |
| `[0,"a",120000]` | 0 | 120000 | a | 2 |
| `[0,"a",180000]` | 0 | 180000 | a | 2 |
| `[0,"b",180000]` | 0 | 180000 | b | 1 |

The size is a multiple of the step; where both are equal the windows tumble. A row that comes when
some of its windows have closed is counted in the others, and late once its cycle is closed: it is
`late_partly` in the ledger. Several windows have one start, so their keys end with `window_end`,
and whoever asks for one names `window_end` beside `window_start`. A cycle has at most
{PANES_MAX:,} steps. Each step repeats all groups: with `max_keys` they may be no more than
{STEP_ROWS_A_MINUTE_MAX:,} rows a minute. One row that is lost, or a version of the task that begins
within a cycle, makes all windows of the cycle `mars-complete: 0`, also those that end before."""

_LANDMARK: Final = """
Windows since a **landmark** all begin with it: `WINDOWING LANDMARK '2026-01-01T00:00:00Z' EVERY
10 s` has [landmark, landmark + 10 s), [landmark, landmark + 20 s) and so on, for ever. One is
emitted once its end has passed, with *all* groups since the landmark, if a row came in its last
step: steps without rows are left out, and the next one has all that is known by then. Keys end with
`window_end`, as those of windows that cumulate.

- The time is ISO 8601, in UTC unless it names an offset. Without one the landmark is when the task
  is registered, or the time of its `start`, down to a multiple of the step; the task reads the
  topic from there, and `start: earliest` asks for a time. It is part of the task's version for
  ever: a paused task, or the same query again, keeps it.
- Rows before it are `filtered`. No row is ever late: one that comes when its step has been emitted
  counts in all windows that are emitted after it, and is `late_partly` in the ledger. A row counts
  as `emitted` once its step is.
- The groups are kept for ever, all of them in one bucket, and repeated at each step: `max_keys`
  bounds them, else the task's budget in Redis does, and a task that is over it stops. After a loss
  of Redis they come back from a snapshot in Kafka; should that be gone too, all windows to come are
  `mars-complete: 0`, as they are where one row is lost.
- A query or options that change are a new version, which begins where the last one ends, and its
  windows would lack the rows before: it is refused unless its landmark is still to come. Register
  it as another task, which reads the topic from the landmark on.
- A task whose `start` lies behind its landmark is refused, for the same reason. `late: revise`,
  `SLIDE`, `OFFSET` and `TIMEZONE` are, too; a landmark may be written with the offset of a zone."""

_CHANGED: Final = """
Where windows begin together, **`emit: changed`** leaves out what has been said before: a window has
those groups alone to which rows came since the last window, each with all its rows. So the newest
row of a group is always right, and a million groups do not come again at each step for one that has
changed. After a bucket has changed its owner a window may have more groups; a group whose rows came
too late for their step comes with the next window. Such a task is in all buckets. `mars verify`
compares the groups that a window has. HAVING and LIMIT are refused with it, because a group that is
no longer among the results would not come again to say so; `late: revise` is, too."""

_TABLE_CALL: Final = """
What runs in **Flink** may stand as it does there, with both columns of the window in GROUP BY;
arguments may be named (`DATA =>`, `TIMECOL =>`, `SIZE =>`, `SLIDE =>`, `STEP =>`, `OFFSET =>`):
```sql
SELECT window_start, window_end, sip, count(*) AS n
FROM TABLE(CUMULATE(TABLE flows, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '1' DAY))
GROUP BY window_start, window_end, sip
```
`TUMBLE` takes a size there, `HOP` a slide and a size, `CUMULATE` a step and a size, and each an
offset behind them."""

_ZONED: Final = """
In a **time zone** windows begin when the clock there first shows it. Sizes, slides and steps may be
`week` (from Monday), `month`, `quarter` and `year` there, too, and results have a text
`window_local` behind `window_end`: `2026-03-29`, or with parts of a day or an offset
`2026-03-29T06:00+02:00`.

- A day has 23 or 25 hours where the clock jumps. Where midnight is left out it begins at the jump,
  and a day that no clock has shown has no window.
- Parts of a day divide its 24 hours. Longer ones than an hour are cut by what the clock shows: of
  four times 6 h one has 5 or 7 hours on such days. Those of up to an hour are real lengths, cut
  anew where the clock jumps: a day of 25 hours has 25, of which two begin at 02:00.
- A window is some whole slides long: `7 d SLIDE 1 d`, `1 year SLIDE 1 month`, `1 d SLIDE 6 h`,
  `24 h SLIDE 1 h` (real hours). Months that slide by days are refused. Steps of `EVERY` are parts
  of a day, single days, or units of which the size is a multiple: `1 d EVERY 1 h`,
  `1 month EVERY 1 d`.
- An `OFFSET` is shorter than a day, and by the clock: `1 d OFFSET 6 h` is from six to six there.
- Zones are those of the IANA database that the API had when the task was registered, from 1970 to
  2099: they are part of the task's version, and no later database moves a window. Where it becomes
  known within two years that a clock will show something else, `mars task show` warns; a new
  version has the new zone, and a comment in the query is enough to make one."""

_MEANING: Final = """
## Where engines differ
- NaN equals NaN and is the largest number; it and the infinities are `null` in results.
- NULLs are one group, and as keys NaN and the infinities are NULL: keys of a window all differ.
- Sums of integers never wrap; results may have integers of more than 64 bits.
- Means and quotients of integers are not cut off, as they are in Flink.
- Sums and means of floats depend on the order of rows only by rounding: less than 1e-9 of the
  result where values are of one sign. Where large values cancel each other out it may be more than
  the result, and `mars verify`, which adds in another order, then says that it differs. A sum that
  leaves the range of floats on the way is NULL.
- What would stop a batch engine is NULL: a division by zero, a CAST that fails."""


if __name__ == "__main__":
    sys.stdout.write(document())
