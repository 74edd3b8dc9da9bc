"""Windows as Flink writes them, in place of the stream."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.plan import Column, Field, FieldType, ValueType
from mars.core.types import TaskName
from mars.core.windows import Cumulating, Sliding, WindowShape
from mars.process.zones import zone_named
from mars.sql.task import compile_task, source_name
from tests.unit.sql.compiling import FLOWS, compiled
from tests.unit.sql.test_rejections import refused

SELECT = "SELECT window_start, window_end, sip, count(*) AS n FROM"
GROUPED = "GROUP BY window_start, window_end, sip"
DAY_MS = 86_400_000
DAY = "INTERVAL '1' DAY"
TUMBLE = f"{SELECT} TABLE(TUMBLE(TABLE S, DESCRIPTOR(timestamp),"


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (
            f"TABLE(CUMULATE(TABLE S, DESCRIPTOR(timestamp), INTERVAL '1' MINUTE, {DAY}))",
            Cumulating(DAY_MS, 60_000),
        ),
        (
            "TABLE(\n  TUMBLE(TABLE S, DESCRIPTOR(timestamp), INTERVAL '10' MINUTES)\n)",
            Sliding(600_000, 600_000),
        ),
        (
            "HOP(TABLE S, DESCRIPTOR(timestamp), INTERVAL 5 MINUTES, INTERVAL '10' MINUTE) AS w",
            Sliding(600_000, 300_000),
        ),
        (
            "table(hop(DATA => TABLE S, TIMECOL => DESCRIPTOR(timestamp), "
            "SIZE => INTERVAL '10' MINUTES, SLIDE => INTERVAL '5' MINUTES)) w",
            Sliding(600_000, 300_000),
        ),
        (
            f'TABLE(CUMULATE(TABLE "S", DESCRIPTOR("timestamp"), {DAY}, INTERVAL 1 DAY))',
            Sliding(DAY_MS, DAY_MS),
        ),
        (f"TABLE(TUMBLE(TABLE `S`, DESCRIPTOR(`timestamp`), {DAY}))", Sliding(DAY_MS, DAY_MS)),
    ],
)
def test_a_call_stands_for_the_stream_and_says_its_window(call: str, wanted: WindowShape) -> None:
    sql = f"{SELECT} {call} WHERE bytes > 1 {GROUPED} HAVING count(*) > 1"
    plan = compiled(sql)
    assert plan.window == wanted
    assert [output.name for output in plan.outputs] == ["sip", "n"]
    assert source_name(sql) == "S"


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        (
            f"{SELECT} TABLE(TUMBLE(TABLE S, DESCRIPTOR(^seen), {DAY})) {GROUPED}",
            "write DESCRIPTOR(timestamp)",
        ),
        (
            f"{SELECT} TABLE(^SLIDE(TABLE S, DESCRIPTOR(timestamp), {DAY})) {GROUPED}",
            "SLIDE makes no windows here; write TABLE(CUMULATE(",
        ),
        (
            f"{TUMBLE} {DAY}, ^INTERVAL '24' HOUR)) {GROUPED}",
            "the offset 1 d must be shorter than 1 d",
        ),
        (
            f"{SELECT} TABLE(^TUMBLE(TABLE S, DESCRIPTOR(timestamp), OFFSET => {DAY})) {GROUPED}",
            "TUMBLE is not written like that",
        ),
        (
            f"{SELECT} TABLE(CUMULATE(TABLE S, DESCRIPTOR(timestamp), ^INTERVAL '7' MINUTE, "
            f"INTERVAL '10' MINUTE)) {GROUPED}",
            "600000 ms is not a multiple of the step of 420000 ms",
        ),
        (
            f"{TUMBLE} ^INTERVAL '1' DECADE)) {GROUPED}",
            "another unit up to YEAR",
        ),
        (
            f"{TUMBLE} ^INTERVAL '1' MONTH)) {GROUPED}",
            "depends on a calendar",
        ),
        (f"{TUMBLE} ^60)) {GROUPED}", "a duration is"),
        (f"{SELECT} TABLE(TUMBLE(^S, DESCRIPTOR(timestamp), {DAY})) {GROUPED}", "TABLE"),
        (f"{SELECT} TABLE(TUMBLE(TABLE S, ^timestamp, {DAY})) {GROUPED}", "DESCRIPTOR"),
        (
            f"{SELECT} TABLE(^TUMBLE(TABLE S, DESCRIPTOR(timestamp))) {GROUPED}",
            "not written like that",
        ),
        (f"{SELECT} TABLE(^TUMBLE()) {GROUPED}", "is not written like that"),
        (
            f"{TUMBLE} {DAY})^, S) {GROUPED}",
            "a ')' is missing",
        ),
        (
            f"{TUMBLE} {DAY})) {GROUPED} ^WINDOWING 1 d",
            "given twice",
        ),
        (
            f"{TUMBLE} {DAY})) {GROUPED}, ^TUMBLE(timestamp, INTERVAL 1 DAY)",
            "given twice",
        ),
        (
            "SELECT sip, count(*) FROM TABLE(^CUMULATE(TABLE S, DESCRIPTOR(timestamp), "
            f"INTERVAL '1' HOUR, {DAY})) GROUP BY window_start, sip",
            "add window_end to GROUP BY",
        ),
        (
            f"SELECT count(*) FROM TABLE(^TUMBLE(TABLE S, DESCRIPTOR(timestamp), {DAY}))",
            "add window_start and window_end to GROUP BY",
        ),
    ],
)
def test_calls_that_cannot_be_are_refused_at_their_place(marked: str, says: str) -> None:
    assert says in refused(marked)


@pytest.mark.parametrize("name", ["q", "Q"])
def test_columns_of_the_window_may_have_the_name_of_the_call_before_them(name: str) -> None:
    call = "TABLE(TUMBLE(TABLE S, DESCRIPTOR(timestamp), INTERVAL '1' MINUTE))"
    bare = compiled(
        f"SELECT window_end, sip, count(*) FROM {call} GROUP BY window_start, window_end, sip "
        "HAVING window_start > 1000 ORDER BY window_start"
    )
    assert bare == compiled(
        f"SELECT {name}.window_end, sip, count(*) FROM {call} AS q GROUP BY {name}.window_start, "
        f"{name}.window_end, sip HAVING {name}.window_start > 1000 ORDER BY {name}.window_start"
    )


def test_a_field_named_like_a_column_of_the_window_is_told_by_its_stream() -> None:
    field = Field("window_start", FieldType.INT64)
    stream = replace(FLOWS, fields=(*FLOWS.fields, field))
    plan = compile_task(
        "SELECT max(S.window_start) AS latest FROM S GROUP BY S.window_start WINDOWING 10 s",
        task=TaskName("t"),
        version=1,
        stream_of=lambda _name: stream,
        options={},
        zone_of=zone_named,
    )
    assert [key.expression for key in plan.keys] == [Column("window_start", ValueType.INT64)]
