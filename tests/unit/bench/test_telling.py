"""Tables, profiles, saved reports and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.environment import Environment
from bench.errors import BenchError
from bench.load import LoadPlan
from bench.plots import by_mappers, plot_sweep
from bench.profiling import top
from bench.report import filled
from bench.results import (
    LatencyReport,
    LatencyRun,
    LoadFigures,
    Percentiles,
    ProcessFigures,
    ThroughputReport,
    ThroughputRun,
    WindowLatency,
    newest,
    save,
)
from bench.tables import Grid, grids, markdown
from mars.core.plan import Format

ABOUT = Environment(
    "2026-01-01T00:00:00+00:00", 2, "a cpu", 2**34, "Linux", "3.11", "17", "abc", False, 0.1, {}
)
KAFKA = ProcessFigures("kafka", server=True, cpu_s=1.5, rss_peak_bytes=2**29)


def run(
    contestant: str = "mars", rate: float = 5e5, batch_rows: str = "", **settings: str
) -> ThroughputRun:
    """`batch_rows` is what is set as `mapper.batch_rows_max`."""
    if batch_rows:
        settings["mapper.batch_rows_max"] = batch_rows
    return ThroughputRun(
        contestant=contestant,
        version="1",
        settings=settings,
        repeat=1,
        steady_rows_per_s=rate,
        steady_s=10.0,
        end_to_end_rows_per_s=4e5,
        end_to_end_s=12.0,
        committed_rows_per_s=None,
        start_up_s=1.0,
        rows_per_cpu_s=3e5,
        rows_per_cpu_s_without_servers=4e5,
        cores_busy=1.9,
        rss_peak_bytes=2**30,
        rss_peak_bytes_own=2**29,
        processes=(KAFKA,),
        windows=5,
        results=10,
        groups_per_window=2,
        problems=(),
        samples=((0.0, 0),),
    )


def report(*runs: ThroughputRun, sweep: bool = False) -> ThroughputReport:
    plan = LoadPlan("t", Format.JSON, 1000, 500, 3)
    return ThroughputReport(ABOUT, LoadFigures(plan, 1000, 1000, 5), sweep, runs)


def latency_report() -> LatencyReport:
    some = Percentiles(10, 1.0, 2.0, 3.0, 1234.0)
    one = LatencyRun(
        "mars", "1", {}, some, (WindowLatency(0, some),), 100, 0.5, 2**30, (KAFKA,), 0.0, ()
    )
    return LatencyReport(ABOUT, 20_000, 10, 120, 1, 80_000, (one,))


def test_the_newest_report_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    (tmp_path / "latency-20200101-000000.json").write_text("{}")
    saved = save(latency_report(), "latency", tmp_path)
    assert saved.exists()
    assert newest(LatencyReport, "latency", tmp_path) == latency_report()


def test_there_is_no_newest_of_what_was_never_measured(tmp_path: Path) -> None:
    assert newest(ThroughputReport, "throughput-json", tmp_path) is None


def test_a_report_of_another_release_is_named(tmp_path: Path) -> None:
    (tmp_path / "latency-20200101-000000.json").write_text("{}")
    with pytest.raises(BenchError, match="latency-20200101-000000"):
        newest(LatencyReport, "latency", tmp_path)


def test_systems_stand_side_by_side() -> None:
    grid = grids(report(run(), run("flink")))[0]
    assert list(grid.columns) == ["", "mars", "flink"]
    assert list(grid.rows[0]) == ["steady rows/s", "500,000", "500,000"]


def test_every_row_of_every_table_has_as_many_cells_as_columns() -> None:
    swept = run(mappers="1", batch_rows="500")
    for each in (report(run()), report(swept, sweep=True), latency_report()):
        for grid in grids(each):
            assert all(len(row) == len(grid.columns) for row in grid.rows)


def test_markdown_aligns_figures_right() -> None:
    text = markdown(Grid("Title", ("a", "b"), [("x", "1")]))
    assert text == "**Title**\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n"


def test_blocks_of_the_page_are_made_anew_and_the_rest_stays(tmp_path: Path) -> None:
    save(latency_report(), "latency", tmp_path)
    page = "Hello\n<!-- bench:latency -->\nold\n<!-- /bench:latency -->\nBye\n"
    once = filled(page, tmp_path)
    assert once.startswith("Hello\n<!-- bench:latency -->\n2026-01-01")
    assert "1,234" in once
    assert "old" not in once
    assert once.endswith("<!-- /bench:latency -->\nBye\n")
    assert filled(once, tmp_path) == once


def test_reports_beside_another_peer_have_blocks_of_their_own(tmp_path: Path) -> None:
    save(latency_report(), "quix-latency", tmp_path)
    page = "<!-- bench:{0} -->\n<!-- /bench:{0} -->\n"
    assert "1,234" in filled(page.format("quix-latency"), tmp_path)
    assert "_Not measured yet._" in filled(page.format("latency"), tmp_path)


def test_a_block_without_figures_says_so(tmp_path: Path) -> None:
    page = "<!-- bench:sweep-json -->\n<!-- /bench:sweep-json -->\n"
    assert "_Not measured yet._" in filled(page, tmp_path)


def test_points_of_a_sweep_are_the_mean_over_repeats() -> None:
    runs = [run(rate=rate, mappers="2", batch_rows="500") for rate in (1.0, 3.0)]
    assert by_mappers(report(*runs, run("flink"))) == {2: [(500, 2.0)]}


def test_the_same_sweep_is_drawn_the_same(tmp_path: Path) -> None:
    runs = [run(mappers=m, batch_rows="500") for m in ("1", "2")]
    first = [path.read_bytes() for path in plot_sweep(report(*runs, sweep=True), tmp_path)]
    second = [path.read_bytes() for path in plot_sweep(report(*runs, sweep=True), tmp_path)]
    assert first == second
    assert all(b"<svg" in drawn for drawn in first)


def test_profile_sums_lines_of_a_function_and_counts_recursion_once() -> None:
    folded = "main (m.py:1);work (w.py:10) 6\nmain (m.py:2);work (w.py:11);work (w.py:12) 3\nbad\n"
    lines = top(folded + "main (m.py:1) 1\n")
    assert [(line.function, line.own, line.total) for line in lines] == [
        ("work (w.py)", 0.9, 0.9),
        ("main (m.py)", 0.1, 1.0),
    ]


def test_an_empty_profile_has_no_lines() -> None:
    assert top("") == []
