"""Golden cases: what a case file holds, and how it is run here and in DuckDB.

A case file (TOML) has

    sql         the query, over the stream S
    oracle      a query for DuckDB, written for itself, over a table S that holds each row once per
                window it is in, beside the columns window_start and window_end (epoch ms)
    expected    the result rows, one JSON object a line
    rows        optional: the input, one JSON object a line; else all of flows.ndjson
    messages    optional: the messages that carry these rows, where it is not one row a message
    time        optional: the event time of a row in ms, in DuckDB; else the event-time field
    [stream]    optional: format, event_time, [stream.fields]; else the fields of flows.ndjson
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from mars.core.plan import Field, FieldType, Format, Plan, Stream
from mars.core.types import Bucket, Lane, Mapped, Records, StreamName, TaskName
from mars.core.windows import (
    Calendar,
    Cumulating,
    Landmark,
    Sliding,
    Unit,
    WindowShape,
    ZonedCumulating,
    ZonedSliding,
)
from mars.engine.aggregates import merge, merge_panes
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.engine.kernel import decode, map_batch
from mars.process.zones import zone_named
from mars.sql import compile_task

HERE = Path(__file__).parent
Row = dict[str, Any]

FLOWS = {
    "timestamp": "timestamp_ms",
    "sip": "string",
    "dip": "string",
    "type": "string",
    "sport": "int64",
    "bytes": "int64",
    "loss": "float64",
    "ok": "bool",
    "seen": "timestamp_ms",
}
ARROW_TYPES = {"string": pa.string(), "float64": pa.float64(), "bool": pa.bool_()}


@dataclass(frozen=True, slots=True)
class Case:
    """One case file."""

    sql: str
    oracle: str
    rows: list[Row]
    expected: list[Row]
    messages: list[bytes]
    stream: Stream
    time: str

    def plan(self) -> Plan:
        """The query compiled."""
        return compile_task(
            self.sql,
            task=TaskName("golden"),
            version=1,
            stream_of=lambda name: self.stream if name == "S" else None,
            options={},
            zone_of=zone_named,
        )


def read_case(name: str) -> Case:
    """The case in `cases/<name>.toml`."""
    content = tomllib.loads((HERE / "cases" / f"{name}.toml").read_text())
    lines = content.get("rows") or (HERE / "flows.ndjson").read_text()
    stream = _stream(content.get("stream", {}))
    messages = content.get("messages") or lines.strip().split("\n")
    return Case(
        sql=content["sql"],
        oracle=content["oracle"],
        rows=_json_lines(lines),
        expected=_json_lines(content["expected"]),
        messages=[message.encode() for message in messages],
        stream=stream,
        time=content.get("time", f'"{stream.event_time}"'),
    )


def case_names() -> list[str]:
    """All cases."""
    return sorted(path.stem for path in (HERE / "cases").glob("*.toml"))


def _stream(content: Row) -> Stream:
    fields = content.get("fields", FLOWS)
    return Stream(
        name=StreamName("S"),
        topic="flows",
        format=Format(content.get("format", "json")),
        fields=tuple(Field(name, FieldType(type_)) for name, type_ in fields.items()),
        event_time=content.get("event_time", next(iter(fields))),
    )


def _json_lines(text: str) -> list[Row]:
    return [json.loads(line) for line in text.strip().split("\n") if line]


# ------------------------------------------------------------------------------------- in Mars


def records_of(messages: Sequence[bytes], lane: str = "0", first: int = 0) -> Records:
    """Messages as they come from one lane."""
    offsets = range(first, first + len(messages))
    return Records(Lane(lane), first, offsets.stop, messages, list(offsets), [-1] * len(messages))


def mapped(case: Case, plan: Plan, records: Records, buckets: int) -> Mapped:
    """What a batch adds to the task."""
    return map_batch(plan, buckets, decode(case.stream, plan.fields, records))


def results(plan: Plan, batches: Iterable[Mapped], *, one_by_one: bool = False) -> list[Row]:
    """The result rows of all windows: bucket by bucket, as reducers find them.

    `one_by_one` merges each partial into what came before, instead of all of them at once.
    """
    states: dict[Bucket, list[Any]] = {}
    for batch in batches:
        for partial in batch.partials:
            if partial.states:
                states.setdefault(partial.bucket, []).append(decode_states(partial.states))
    rows: list[Row] = []
    for frames in states.values():
        merged = merge(plan, frames[:1] if one_by_one else frames)
        for frame in frames[1:] if one_by_one else ():
            merged = merge(plan, [merged, frame])
        rows.extend(_finished(plan, merged))
    return sorted(rows, key=lambda row: row["window_start"])


def _finished(plan: Plan, merged: Any) -> Iterator[Row]:
    panes = merged.get_column("pane").unique().to_list()
    for window in plan.window.windows_of(panes):
        finished = finish(plan, merge_panes(plan, merged, window), window)
        for key, value in zip(finished.keys, finished.values, strict=True):
            row = json.loads(value)
            assert json.loads(key)[0] == row["window_start"] == window.start_ms
            yield row


# ----------------------------------------------------------------------------------- in DuckDB


def oracle_results(duck: duckdb.DuckDBPyConnection, case: Case, plan: Plan) -> list[Row]:
    """The rows that DuckDB computes, given each row once per window it is in."""
    duck.register("given_rows", _arrow_table(case))
    duck.execute(f"""
        CREATE OR REPLACE TEMP TABLE timed AS
        SELECT *, {case.time} AS time_ms FROM given_rows""")
    duck.execute(f"CREATE OR REPLACE TEMP TABLE S AS {_each_window(plan.window)}")
    found = duck.execute(case.oracle)
    names = [column[0] for column in found.description]
    return [dict(zip(names, values, strict=True)) for values in found.fetchall()]


def _each_window(shape: WindowShape) -> str:
    """The rows, each once per window it is in."""
    match shape:
        case Sliding(size, slide, later):
            count, begin = -(-size // slide), f"newest - back * {slide} + {later}"
            end = f"{begin} + {size}"
        case Cumulating(size, step, later):
            count, slide = size // step, size
            begin, end = f"newest + {later}", f"newest + {later} + (back + 1) * {step}"
        case Landmark(start, step):
            return _each_window_since(start, step)
        case ZonedSliding() | ZonedCumulating():
            return _each_zoned_window(shape)
        case _:
            raise TypeError(f"DuckDB is not asked for {shape}")
    into = f"(time_ms - {later})"
    return f"""
        SELECT * EXCLUDE (time_ms, newest, back), {begin} AS window_start, {end} AS window_end
        FROM (SELECT *, {into} - ({into} % {slide} + {slide}) % {slide} AS newest FROM timed),
             range({count}) AS backs(back)
        WHERE {end} > time_ms"""


def _each_window_since(start: int, step: int) -> str:
    """The same of windows since a landmark, of which one ends with each step that has rows."""
    own_end = f"time_ms - (time_ms - {start}) % {step} + {step}"
    return f"""
        SELECT * EXCLUDE (time_ms), {start} AS window_start
        FROM timed, (SELECT DISTINCT {own_end} AS window_end FROM timed WHERE time_ms >= {start})
        WHERE time_ms >= {start} AND time_ms < window_end"""


def _each_zoned_window(shape: ZonedSliding | ZonedCumulating) -> str:
    """The same by ICU's calendar, of days and longer, a cycle of them at most a month."""
    name, unit = shape.steps.zone.name, _icu(shape.steps)
    newest = f"date_trunc('{unit}', clock)"
    if isinstance(shape, ZonedSliding):
        count, begin = shape.count, f"{newest} - back * INTERVAL 1 {unit}"
        end = f"{begin} + {count} * INTERVAL 1 {unit}"
        over = end
    else:
        cycle = _icu(shape.cycles)
        count, begin = 31, f"date_trunc('{cycle}', clock)"
        end, over = f"{newest} + (back + 1) * INTERVAL 1 {unit}", f"{begin} + INTERVAL 1 {cycle}"
    return f"""
        SELECT * EXCLUDE (time_ms, clock, back),
            epoch_ms(({begin}) AT TIME ZONE '{name}') AS window_start,
            epoch_ms(({end}) AT TIME ZONE '{name}') AS window_end,
            strftime({begin}, '%Y-%m-%d') AS window_local
        FROM (SELECT *, make_timestamptz(time_ms * 1000) AT TIME ZONE '{name}' AS clock FROM timed),
             range({count}) AS backs(back)
        WHERE {end} <= {over}"""


def _icu(calendar: Calendar) -> str:
    assert calendar.count == 1
    assert not calendar.offset_ms
    return {Unit.DAY: "day"}.get(calendar.unit, calendar.unit.value)


def _arrow_table(case: Case) -> pa.Table:
    """The rows, less fields that have the names of the window's own columns."""
    columns = {}
    for field in case.stream.fields:
        type_ = ARROW_TYPES.get(field.type, pa.int64())
        if field.type is FieldType.TIMESTAMP_ISO:
            type_ = pa.string()
        if field.name not in ("window_start", "window_end"):
            columns[field.name] = pa.array([row.get(field.name) for row in case.rows], type_)
    return pa.table(columns)


# ---------------------------------------------------------------------------------- comparison


def differences(ours: Sequence[Row], theirs: Sequence[Row], *, ordered: bool = False) -> str:
    """What differs between rows, in words; empty if nothing does. Floats agree to 1e-9."""
    if not ordered:
        ours, theirs = sorted(ours, key=_rank), sorted(theirs, key=_rank)
    for at, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        if list(our) != list(their):
            return f"row {at}: members {list(our)}, not {list(their)}"
        wrong = [name for name in our if not _same(our[name], their[name])]
        if wrong:
            return f"row {at}, {wrong}: {our}, not {their}"
    return "" if len(ours) == len(theirs) else f"{len(ours)} rows, not {len(theirs)}"


def _rank(row: Row) -> list[str]:
    """Sorts rows; floats that differ in their last digits have the same rank."""
    return [
        f"{float(value):.6g}" if isinstance(value, float) else repr(value) for value in row.values()
    ]


def _same(our: object, their: object) -> bool:
    if isinstance(our, bool) or isinstance(their, bool) or our is None or their is None:
        return our is their
    if isinstance(our, float) or isinstance(their, float):
        return math.isclose(float(our), float(their), rel_tol=1e-9)  # type: ignore[arg-type]
    return our == their
