"""The pages on benchmarks show what was measured last."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench import summary
from bench.errors import BenchError
from bench.report import PAGES, filled
from bench.results import ThroughputReport, newest


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_the_figures_of_the_newest_reports(page: Path) -> None:
    written = page.read_text("utf-8")
    assert filled(written) == written, "run: python -m bench.report"


def test_short_table_is_of_mars_beside_its_peer() -> None:
    report = newest(ThroughputReport, "throughput-json")
    assert report is not None
    mars, flink = report.runs
    name, *figures = summary.rates(msgspec.structs.replace(report, runs=(flink, mars))).rows[0]
    assert name == "rows/s"
    assert figures[:2] == [f"{run.steady_rows_per_s:,.0f}" for run in (mars, flink)]


def test_short_table_names_the_peer_that_ran() -> None:
    report = newest(ThroughputReport, "throughput-json")
    assert report is not None
    mars, flink = report.runs
    quix = msgspec.structs.replace(flink, contestant="quix")
    grid = summary.rates(msgspec.structs.replace(report, runs=(mars, quix)))
    assert grid.columns == ("", "Mars", "Quix Streams", "Mars / Quix Streams")


def test_run_without_a_peer_is_no_short_table() -> None:
    report = newest(ThroughputReport, "throughput-json")
    assert report is not None
    with pytest.raises(BenchError, match="--peer flink"):
        summary.rates(msgspec.structs.replace(report, runs=report.runs[:1]))
