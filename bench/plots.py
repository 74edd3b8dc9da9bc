"""The sweep as pictures: the paper's figures 3 and 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.results import ThroughputReport

REPORTS = Path(__file__).parents[1] / "docs" / "reports"


def plot_sweep(report: ThroughputReport, folder: Path = REPORTS) -> list[Path]:
    """Rows/s by batch rows for each number of mappers, and by mappers at the best batch size.

    Raises BenchError where matplotlib is missing.
    """
    name, lines = report.load.plan.format.value, by_mappers(report)
    return drawn(
        folder,
        (f"bench-batches-{name}", (6, 4), lambda axes: _batches(axes, lines)),
        (f"bench-mappers-{name}", (4, 4), lambda axes: _mappers(axes, lines)),
    )


def _batches(axes: Any, lines: Mapping[int, list[tuple[int, float]]]) -> None:
    for mappers, points in lines.items():
        label = f"{mappers} mapper{'s' if mappers > 1 else ''}"
        axes.plot([x for x, _ in points], [y / 1e6 for _, y in points], marker="o", label=label)
    axes.set(xscale="log", xlabel="rows of a batch", ylabel="million rows/s", ylim=(0, None))
    axes.legend()


def _mappers(axes: Any, lines: Mapping[int, list[tuple[int, float]]]) -> None:
    best = {mappers: max(y for _, y in points) for mappers, points in lines.items()}
    axes.bar([str(mappers) for mappers in best], [y / 1e6 for y in best.values()], width=0.5)
    axes.set(xlabel="mappers", ylabel="million rows/s, best batch size")


def drawn(
    folder: Path, *pictures: tuple[str, tuple[int, int], Callable[[Any], None]]
) -> list[Path]:
    """Files of these names, sizes and contents. Raises BenchError where matplotlib is missing."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 -- of the development extras

        mpl.use("svg")
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise BenchError("Plots need matplotlib; run `make install`.") from error
    mpl.rcParams["svg.hashsalt"] = "mars"  # the same figures give the same file
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for name, size, draw in pictures:
        figure, axes = plt.subplots(figsize=size)
        draw(axes)
        axes.grid(alpha=0.3)
        made.append(folder / f"{name}.svg")
        figure.savefig(made[-1], metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)
    return made


def by_mappers(report: ThroughputReport) -> dict[int, list[tuple[int, float]]]:
    """(rows of a batch, rows/s) in order, by number of mappers; the mean over repeats."""
    found: dict[int, dict[int, list[float]]] = {}
    for run in report.runs:
        if "mappers" not in run.settings:
            continue
        points = found.setdefault(int(run.settings["mappers"]), {})
        batch_rows = int(run.settings["mapper.batch_rows_max"])
        points.setdefault(batch_rows, []).append(run.steady_rows_per_s)
    return {
        mappers: [(batch, sum(rates) / len(rates)) for batch, rates in sorted(points.items())]
        for mappers, points in sorted(found.items())
    }
