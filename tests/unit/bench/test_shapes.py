"""Windows of each shape beside tumbling ones, and how long a loss takes: queries and tables."""

from __future__ import annotations

import pytest

from bench import recovery, shapes
from bench.environment import environment
from bench.tables import MIB
from mars.core.types import TaskName
from mars.local.flows import stream
from mars.process.zones import zone_named
from mars.sql import compile_task


@pytest.mark.parametrize("sql", [*map(shapes.sql_of, shapes.SHAPES), recovery.SQL])
def test_queries_can_be_compiled(sql: str) -> None:
    compile_task(
        sql,
        task=TaskName("t"),
        version=1,
        stream_of=lambda _name: stream(),
        options={},
        zone_of=zone_named,
    )


def test_shapes_are_compared_with_the_mean_of_all_tumbling_runs() -> None:
    runs = [
        shapes.ShapeRun(shapes.TUMBLING, 1.0, 1.0, 10),
        shapes.ShapeRun("1 h SLIDE 1 min", 2.0, 1.0, 60),
        shapes.ShapeRun(shapes.TUMBLING, 1.5, 0.5, 10),
    ]
    (table,) = shapes.grids(shapes.ShapesReport(environment(), 1_000, 5, runs))
    assert list(map(list, table.rows)) == [
        [shapes.TUMBLING, "1.0 1.5", "1.0 0.5", "10", "1.00"],
        ["1 h SLIDE 1 min", "2.0", "1.0", "60", "1.50"],
    ]


def test_each_loss_has_its_time() -> None:
    report = recovery.RecoveryReport(
        environment(), 20_000, 200_000, 18_000_000, [9.5, 8.25], {"mapper": 0.5, "kafka": 0.25},
        {"mapper": 90 * MIB},
    )  # fmt: skip
    (table,) = recovery.grids(report)
    found = {row[0]: row[1] for row in table.rows}
    assert found["windows closed again after FLUSHALL, s"] == "9.5, 8.2"
    assert found["cores, all processes"] == "0.75"
    assert found["memory of all, MiB"] == "90"
