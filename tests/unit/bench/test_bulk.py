"""`mars bench bulk`: what it accepts, what it tells, and a contestant measured in its process."""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl
import pytest

from bench.bulk import Bulk, measured
from bench.bulk_jobs import WINDOW_MS
from bench.bulk_results import BulkReport, BulkRun, JobSpec, ProcessMemory, SourceKind, grids
from bench.environment import environment
from bench.errors import BenchError
from bench.results import save
from mars.cli import EXIT_USAGE, run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What would be measured; nothing is."""
    seen: list[object] = []

    def note(what: object, _say: object) -> None:
        seen.append(what)
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.bulk.bulk_session", note)
    return seen


def test_bulk_passes_its_options_on(asked: list[object], tmp_path: Path) -> None:
    options = ["--from", "ndjson", "--rows", "300000", "--no-peers", "--chunk-rows", "5000"]
    run(["bench", "bulk", *options, "--results", str(tmp_path)])
    assert asked == [
        Bulk((SourceKind.NDJSON,), 300_000, peers=False, chunk_rows=5_000, folder=tmp_path)
    ]
    run(["bench", "bulk"])
    assert asked[1] == Bulk()


@pytest.mark.parametrize("options", [["--from", "xml"], ["--rows", "5"], ["--chunk-rows", "0"]])
def test_wrong_options_are_refused(asked: list[object], options: list[str]) -> None:
    assert run(["bench", "bulk", *options]) == EXIT_USAGE
    assert asked == []


def run_of(contestant: str, seconds: float, states: int = 0) -> BulkRun:
    return BulkRun(
        contestant=contestant,
        source=SourceKind.JSON,
        rows=1_000_000,
        seconds=seconds,
        cpu_s=2 * seconds,
        kafka_cpu_s=0.1,
        start_s=5.0,
        peak_bytes=3 * 2**20,
        memory=(ProcessMemory("Java", 2**20),),
        partials=8,
        states=states,
        bytes=2**20,
    )


def test_rates_are_told_beside_those_of_plain_spark(tmp_path: Path) -> None:
    report = BulkReport(
        environment=environment(),
        rows={"json": 1_000_000},
        rows_per_window=10,
        groups_per_window=5,
        settings={},
        runs=(run_of("mars", 1.0, states=20_000), run_of("spark sql", 4.0)),
    )
    rates, sent, memory = grids(report)
    assert rates.rows[0][2] == "1,000,000"
    assert [row[5] for row in rates.rows] == ["4.00", "1.00"]
    assert [row[4] for row in sent.rows] == ["50.0"]
    assert memory.rows[0][2] == "1"
    saved = save(report, "bulk", tmp_path)
    assert msgspec.json.decode(saved.read_bytes(), type=BulkReport) == report


def spec(folder: Path, contestant: str) -> JobSpec:
    return JobSpec(contestant, SourceKind.PARQUET, 400, "", "", str(folder), 1, 512, 100)


def test_a_contestant_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    for number in range(4):
        times = [number * WINDOW_MS + at for at in range(100)]
        frame = pl.DataFrame({"timestamp": times, "sip": "a", "type": "b"})
        frame.write_parquet(tmp_path / f"{number}.parquet")
    seen = measured(spec(tmp_path, "duckdb"), None)
    assert seen.counted.windows == {number * WINDOW_MS: 100 for number in range(4)}
    assert seen.counted.rows == 300
    assert seen.seconds > 0
    assert seen.by_kind["driver"] > 0


def test_a_contestant_that_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="duckdb failed"):
        measured(spec(tmp_path / "none", "duckdb"), None)
