"""The experiments of `mars bench balance` as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.balance import BalanceReport, Run
from bench.errors import BenchError
from bench.plots import DOCS
from mars.machines.balancing import SpreadLimits

SMOOTH_S = 5
"""Seconds of which one point of a line is the mean."""


def plot_balance(report: BalanceReport, folder: Path = DOCS) -> list[Path]:
    """Deviation over time, rows done over time, number of reducers over time.

    Raises BenchError where matplotlib is missing.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 -- of the development extras

        mpl.use("svg")
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise BenchError("Plots need matplotlib; run `make install`.") from error
    mpl.rcParams["svg.hashsalt"] = "mars"  # the same figures give the same file
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for name, size, draw in (
        ("bench-balance-drift", (9, 4), _drift),
        ("bench-balance-bursts", (6, 4), _bursts),
        ("bench-balance-tide", (9, 4), _tide),
    ):
        figure, axes = plt.subplots(figsize=size)
        draw(axes, report)
        axes.grid(alpha=0.3)
        made.append(folder / f"{name}.svg")
        figure.savefig(made[-1], metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)
    return made


def _drift(axes: Any, report: BalanceReport) -> None:
    for run in report.drift:
        label = "buckets move" if run.moving else "nothing moves"
        seconds, values = means(run, "deviation")
        axes.plot(seconds, values, label=label, linewidth=1.2)
    axes.axhline(SpreadLimits().imbalance_max, color="grey", linestyle=":", linewidth=1)
    top = max(point.deviation for run in report.drift for point in run.points)
    for stage in report.stages:
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
    begins = range(0, len(values), SMOOTH_S)
    pieces = [values[begin : begin + SMOOTH_S] for begin in begins]
    return list(begins), [sum(piece) / len(piece) for piece in pieces]
