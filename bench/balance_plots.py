"""The experiments of `mars bench balance` as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.balance import BalanceReport, Run
from bench.balance_real import IMBALANCE_MAX, RealBalanceReport, RealRun
from bench.plots import REPORTS, drawn
from bench.wandering import Stage
from mars.protocol.balance.placement import SpreadLimits

SMOOTH_S = 5
"""Seconds of which one point of a line is the mean."""

SMOOTH_LOOKS = 3
"""The same for real processes, of looks two seconds apart."""


def plot_balance(report: BalanceReport, folder: Path = REPORTS) -> list[Path]:
    """Deviation over time, rows done over time, number of reducers over time.

    Raises BenchError where matplotlib is missing.
    """
    return drawn(
        folder,
        ("bench-balance-drift", (9, 4), lambda axes: _drift(axes, report)),
        ("bench-balance-bursts", (6, 4), lambda axes: _bursts(axes, report)),
        ("bench-balance-tide", (9, 4), lambda axes: _tide(axes, report)),
    )


def plot_real(report: RealBalanceReport, folder: Path = REPORTS) -> list[Path]:
    """Deviation over time of real reducers. Raises BenchError where matplotlib is missing."""
    return drawn(folder, ("bench-balance-real", (9, 4), lambda axes: _real(axes, report)))


def _drift(axes: Any, report: BalanceReport) -> None:
    for run in report.drift:
        seconds, values = means(run, "deviation")
        axes.plot(seconds, values, label=_label(run), linewidth=1.2)
    axes.axhline(SpreadLimits().imbalance_max, color="grey", linestyle=":", linewidth=1)
    _stages(axes, report.stages, max(p.deviation for run in report.drift for p in run.points))


def _real(axes: Any, report: RealBalanceReport) -> None:
    tops = []
    for run in report.runs:
        values = means_of([point.deviation for point in run.points], SMOOTH_LOOKS)
        seconds = [point.second for point in run.points[::SMOOTH_LOOKS]]
        axes.plot(seconds, values, label=_label(run), linewidth=1.2)
        tops.append(max(values))
    axes.axhline(IMBALANCE_MAX, color="grey", linestyle=":", linewidth=1)
    _stages(axes, report.stages, max(tops))


def _label(run: Run | RealRun) -> str:
    return "buckets move" if run.moving else "nothing moves"


def _stages(axes: Any, stages: Sequence[Stage], top: float) -> None:
    for stage in stages:
        axes.axvline(stage.second, color="grey", alpha=0.3, linewidth=0.8)
        text = f"mu {stage.mu:.0f}\nsigma {stage.sigma:.0f}" if stage.sigma else "even"
        axes.text(stage.second + 4, top * 1.02, text, fontsize=6, va="bottom")
    axes.set(xlabel="seconds", ylabel="deviation of the reducers' use", ylim=(0, top * 1.15))
    axes.legend(loc="upper left", fontsize=8, bbox_to_anchor=(0, 0.87))


def _bursts(axes: Any, report: BalanceReport) -> None:
    for run in report.bursts[-2:]:
        label = "buckets move" if run.moving else "rows are held back"
        done, shares = 0.0, []
        for point in run.points:
            done += point.done
            shares.append(100 * done / run.rows)
        axes.plot([point.second for point in run.points], shares, label=label, linewidth=1.2)
    axes.set(xlabel="seconds", ylabel="% of 5 GB done", ylim=(0, 102))
    axes.legend(loc="lower right", fontsize=8)


def _tide(axes: Any, report: BalanceReport) -> None:
    (run,) = report.tide
    seconds = [point.second for point in run.points]
    axes.step(seconds, [point.members for point in run.points], where="post", label="reducers")
    load = [point.mean_use * point.members for point in run.points]
    axes.plot(seconds, load, label="processors used", linewidth=1)
    axes.set(xlabel="seconds", ylabel="reducers, processors", ylim=(0, None))
    axes.legend(loc="upper right", fontsize=8)


def means(run: Run, figure: str) -> tuple[list[int], list[float]]:
    """(seconds, means of `SMOOTH_S` seconds) of one figure of a run."""
    values = [getattr(point, figure) for point in run.points]
    return list(range(0, len(values), SMOOTH_S)), means_of(values, SMOOTH_S)


def means_of(values: Sequence[float], many: int) -> list[float]:
    """Of so many at a time."""
    pieces = [values[begin : begin + many] for begin in range(0, len(values), many)]
    return [sum(piece) / len(piece) for piece in pieces]
