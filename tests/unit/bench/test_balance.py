"""`mars bench balance`: simulated reducers around the real decisions."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bench import balance
from bench.balance import BalanceReport, Run, run_bursts, run_tide
from bench.balance_plots import means, plot_balance, plot_real
from bench.balance_real import RealBalanceReport, RealPoint, RealRun
from bench.balance_skew import BUCKETS, SkewRun, run_one, skew_grid
from bench.balance_strategies import (
    HALF_IN_A_BUCKET,
    StrategiesReport,
    StrategyRun,
    in_turn,
    keys_of_stream,
)
from bench.environment import environment
from bench.loaded_reducers import BUCKETS as REAL_BUCKETS
from bench.report import section
from bench.simulated_reducers import Delays, SimulatedReducers
from bench.wandering import Keyed, keys_of, stages
from mars.protocol.balance.relief import pressure
from mars.protocol.balance.steering import SteeringLimits

SHORT = 5_000_000


@pytest.fixture(scope="module")
def report() -> BalanceReport:
    """A short one; the drift is as long as it is, so bursts stand for it."""
    bursts = [run_bursts(SHORT, moving=moving) for moving in (False, True)]
    return BalanceReport(environment(), stages(10), bursts, bursts, [run_tide()], 1.0)


def test_moving_is_faster_than_holding_back_and_loses_no_row(report: BalanceReport) -> None:
    held, moved = report.bursts

    assert not held.problems
    assert not moved.problems
    assert held.rows == moved.rows
    assert moved.seconds < 0.85 * held.seconds
    assert moved.mean_delay_s < held.mean_delay_s / 2
    assert moved.p50_delay_s <= moved.p99_delay_s < held.p99_delay_s
    assert held.moves == 0
    assert "is under pressure" in moved.reasons[0]


def test_delays_are_those_of_rows_in_the_order_in_which_they_came() -> None:
    delays = Delays(2)
    delays.came(0, np.array([10.0, 90.0]))
    delays.came(1, np.array([10.0, 0.0]))
    delays.done(0, 1, 90.0)
    delays.done(3, 0, 5.0)
    delays.done(4, 0, 15.0)

    found = {percent: delays.percentile_s(percent) for percent in (50, 81, 82, 95, 96, 100)}
    assert found == {50: 0, 81: 0, 82: 3, 95: 3, 96: 4, 100: 4}


def test_a_busy_reducer_reads_more_slowly_and_so_is_under_more_pressure() -> None:
    cluster = SimulatedReducers(4, 2, SteeringLimits(), row_s=1e-3, budget_rows=1e6)
    for _ in range(5):
        cluster.step(np.array([440.0, 100, 440, 100]))

    loads = cluster._measure()
    busy, calm = (loads.reducers[member] for member in cluster.members)

    assert calm.bandwidth == 1.0
    assert busy.bandwidth < 0.5
    assert pressure(replace(busy, queue=0.1)) > pressure(replace(busy, queue=0.1, bandwidth=1.0))


def test_the_number_of_reducers_follows_the_tide_in_few_steps(report: BalanceReport) -> None:
    (tide,) = report.tide
    members = [point.members for point in tide.points]

    assert not tide.problems
    assert max(members) >= 6
    assert members[-1] == 1
    assert tide.steps <= 10
    assert tide.mean_delay_s < 1


def test_every_bucket_keeps_one_owner_and_one_that_moves_waits() -> None:
    cluster = SimulatedReducers(8, 2, SteeringLimits(), row_s=1e-3)
    hot = np.array([400.0, 200, 200, 0, 0, 0, 0, 0])
    first = cluster.owners
    moved_at = None
    for _ in range(60):
        moment = cluster.step(hot)
        assert sorted(cluster.owners) == list(range(8))
        if moment.moves and moved_at is None:
            moved_at = moment.second

    assert moved_at is not None
    assert moved_at >= SteeringLimits().cooldown_s
    assert cluster.owners != first


def test_the_report_is_told_and_drawn(report: BalanceReport, tmp_path: Path) -> None:
    text = section(report)
    paths = plot_balance(report, tmp_path)

    assert "Skewed bursts on three reducers" in text
    assert [path.name for path in paths] == [
        "bench-balance-drift.svg",
        "bench-balance-bursts.svg",
        "bench-balance-tide.svg",
    ]
    assert all(path.stat().st_size > 1_000 for path in paths)


def test_rows_of_each_stage_have_the_keys_of_that_stage_and_numbers_that_come_once() -> None:
    rows = Keyed([keys_of(stage) for stage in stages(10)])
    first = rows.messages(100, start_ms=1_000, rate_per_s=10_000)
    later = rows.messages(100, start_ms=1_000 + 12_000, rate_per_s=10_000)

    keys = [int(json.loads(row)["sip"]) - 13_800_000_000 for row in later]
    assert max(abs(key - 2_000) for key in keys) < 500
    assert {json.loads(row)["seq"] for row in [*first, *later]} == set(range(200))
    assert [json.loads(row)["timestamp"] for row in (first[0], first[-1])] == [1_000, 1_009]


def test_real_runs_are_told_and_drawn(tmp_path: Path) -> None:
    points = [RealPoint(2.0 * look, [0.1, 0.2, 0.1, 0.2]) for look in range(30)]
    runs = [RealRun("with moves", True, 10, 0.0, 1, ["uneven"], points, ["window 0 is missing"])]
    report = RealBalanceReport(environment(), stages(5), runs)

    text = section(report)
    (path,) = plot_real(report, tmp_path)

    assert "| with moves | 0.150 | 0.0500 | 2.00 | 100 | 1 | 10 | no |" in text
    assert "- with moves: window 0 is missing" in text
    assert path.stat().st_size > 1_000


def test_points_of_a_line_are_means_of_five_seconds(report: BalanceReport) -> None:
    run: Run = report.bursts[0]

    seconds, values = means(run, "mean_use")

    assert seconds[:2] == [0, 5]
    assert values[0] == pytest.approx(sum(point.mean_use for point in run.points[:5]) / 5)


@pytest.mark.parametrize(
    ("stream", "fitting"), [("Zipf 1.2", "greedy"), ("even, uneven machines", "weighted")]
)
def test_the_fitting_strategy_and_auto_even_out_what_hashing_does_not(
    stream: str, fitting: str
) -> None:
    homes = balance._buckets_of_keys(BUCKETS).astype(float)

    hashed, fit, auto = (run_one(stream, name, homes) for name in ("hash", fitting, "auto"))

    for run in (fit, auto):
        assert run.ratio < 1.3 < hashed.ratio
        assert run.rows_per_second >= hashed.rows_per_second
    assert len(skew_grid([hashed, fit, auto]).rows) == 3


def test_a_key_that_needs_more_than_a_processor_is_split_and_gains_by_it() -> None:
    homes = balance._buckets_of_keys(BUCKETS).astype(float)

    moved, split = (run_one("one key takes half", name, homes) for name in ("greedy", "auto"))

    assert (moved.assistants, moved.ended_with) == (0, "greedy")
    assert split.assistants >= 1
    assert split.ended_with == "split"
    assert split.rows_per_second > 1.4 * moved.rows_per_second
    assert split.mean_delay_s < moved.mean_delay_s / 5
    assert split.use_ratio < 0.6 * moved.use_ratio, "assistants' work is on rows of the owner"


def test_where_merging_shrinks_nothing_it_is_given_up_and_costs_hardly_anything() -> None:
    homes = balance._buckets_of_keys(BUCKETS).astype(float)

    hashed, auto = (run_one("half, nothing to merge", name, homes) for name in ("hash", "auto"))

    assert auto.assistants == 1
    assert auto.ended_with != "split"
    assert auto.rows_per_second > 0.99 * hashed.rows_per_second
    assert msgspec.json.decode(msgspec.json.encode(auto), type=SkewRun) == auto


def test_strategies_on_real_processes_are_told() -> None:
    run = StrategyRun(
        stream="Zipf 1.2",
        strategy="auto",
        part=0.125,
        rows_per_second=59_876.4,
        behind_s=2.0,
        rows_ratio=1.5,
        use_ratio=1.2,
        moves=3,
        assistants=1,
        segments=7,
        ended_with="greedy",
        reasons=["uneven"],
        problems=["window 0 is missing"],
    )

    text = section(StrategiesReport(environment(), [run]))

    assert (
        "| Zipf 1.2, auto | 12.5 | 59,876 | 2.0 | 1.50 | 1.20 | 3 | 1 | 7 | greedy | no |" in text
    )
    assert "- Zipf 1.2, auto: window 0 is missing" in text


def test_half_of_the_rows_are_of_the_keys_of_one_bucket() -> None:
    keys = keys_of_stream(HALF_IN_A_BUCKET)
    shares = sorted(set(keys.shares))
    hot = keys.shares.count(shares[-1])

    assert len(shares) == 2
    assert hot * shares[-1] == pytest.approx(0.5)
    assert hot / len(keys.shares) == pytest.approx(1 / REAL_BUCKETS, rel=0.1)


def test_processes_stand_still_and_run_in_turn_and_all_run_at_the_end() -> None:
    def state(process: subprocess.Popen[bytes]) -> str:
        return Path(f"/proc/{process.pid}/stat").read_text().split()[2]

    with ExitStack() as running:
        spinning = [
            running.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            for _ in range(2)
        ]
        for process in spinning:
            running.callback(process.kill)
        seen: list[set[str]] = [set() for _ in spinning]
        with in_turn([each.pid for each in spinning], 0.4):
            deadline = time.monotonic() + 30
            while not all({"T", "R"} <= each for each in seen) and time.monotonic() < deadline:
                for states, process in zip(seen, spinning, strict=True):
                    states.add(state(process))
        at_the_end = [state(process) for process in spinning]

    assert all({"T", "R"} <= each for each in seen)
    assert at_the_end == ["R", "R"]
