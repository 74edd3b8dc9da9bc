"""`mars bench balance`: simulated reducers around the real decisions."""

from __future__ import annotations

import json
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
from bench.environment import environment
from bench.report import section
from bench.simulated_reducers import Delays, SimulatedReducers
from bench.wandering import Wandering, stages
from mars.machines.pressing import pressure
from mars.machines.steering import SteeringLimits

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
    rows = Wandering(stages(10))
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
