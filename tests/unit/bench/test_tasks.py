"""Many tasks over one stream: their queries, the rows, and the table."""

from __future__ import annotations

import json

from bench.environment import environment
from bench.narrow import NarrowFlows
from bench.tables import MIB
from bench.tasks import TasksReport, TasksRun, grids, sql_of
from mars.core.types import TaskName
from mars.local.flows import stream
from mars.sql import compile_task


def test_four_hundred_queries_are_different_and_can_be_compiled() -> None:
    queries = [sql_of(number) for number in range(401)]
    assert len(set(queries)) == 400
    assert queries[400] == queries[0]
    for number in (0, 11, 123, 234, 345, 399):
        compile_task(
            queries[number],
            task=TaskName("t"),
            version=1,
            stream_of=lambda _name: stream(),
            options={},
        )


def test_rows_have_few_values_in_the_fields_that_are_grouped_by() -> None:
    rows = [json.loads(row) for row in NarrowFlows().messages(20_000, 0, 2_000)]
    found = {name: len({row[name] for row in rows}) for name in ("dip", "type", "sport", "dc")}
    assert found == {"dip": 500, "type": 16, "sport": 200, "dc": 8}
    assert 1_500 < len({row["dport"] for row in rows}) <= 2_048
    assert NarrowFlows().messages(5, 0, 1) == NarrowFlows().messages(5, 0, 1)


def test_the_table_has_a_column_for_each_run() -> None:
    runs = [
        TasksRun(
            tasks, 4, 2_000, 60.0, 1.5, {"mapper": busy, "kafka": 0.25}, {"mapper": 90 * MIB},
            10, 1_200, [0.5, 0.7, 2.0],
        )
        for tasks, busy in ((1, 0.1), (100, 0.6))
    ]  # fmt: skip
    (table,) = grids(TasksReport(environment(), runs))
    assert table.columns == ("", "1 tasks, 4 partitions", "100 tasks, 4 partitions")
    assert list(table.rows[0]) == ["cores, all processes", "0.35", "0.85"]
    late = "0.70, 2.00, 2.00"
    assert ["windows closed after, s: median, p99, most", late, late] in list(map(list, table.rows))
