"""Puts the newest saved figures into the pages on benchmarks: `python -m bench.report`.

Between `<!-- bench:<name> -->` and `<!-- /bench:<name> -->` stand the tables of the newest
`bench/results/<name>-<when>.json`, or with `short:` before the name what most readers want to know
of them; the rest of a page is written by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bench import api, balance, balance_real, balance_strategies, bulk_results, summary
from bench.api import ApiReport
from bench.balance import BalanceReport
from bench.balance_plots import plot_balance, plot_real
from bench.balance_real import RealBalanceReport
from bench.balance_strategies import StrategiesReport
from bench.bulk_results import BulkReport
from bench.errors import BenchError
from bench.plots import plot_sweep
from bench.results import (
    FOLDER,
    LatencyReport,
    LatencyRun,
    Report,
    ThroughputReport,
    ThroughputRun,
    newest,
)
from bench.tables import Grid, grids, markdown

AnyReport = Report | BulkReport | BalanceReport | RealBalanceReport | StrategiesReport | ApiReport
Named = balance.Run | balance_real.RealRun | balance_strategies.StrategyRun
AnyRun = ThroughputRun | LatencyRun | bulk_results.BulkRun | Named

REPORTS = Path(__file__).parents[1] / "docs" / "reports"
PAGES = (REPORTS / "benchmarks.md", REPORTS / "2026-11-benchmarks.md")

SHORT = "short:"

_BLOCK = re.compile(r"<!-- bench:(?P<name>[a-z:-]+) -->\n.*?<!-- /bench:(?P=name) -->", re.DOTALL)


def filled(page: str, folder: Path = FOLDER) -> str:
    """The page with every block made anew from what is saved in `folder`."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        report = _newest(name.removeprefix(SHORT), folder)
        made = short if name.startswith(SHORT) else section
        text = "_Not measured yet._\n" if report is None else made(report)
        return f"<!-- bench:{name} -->\n{text}<!-- /bench:{name} -->"

    return _BLOCK.sub(block, page)


def _newest(name: str, folder: Path) -> AnyReport | None:
    match name:
        case "bulk":
            return newest(BulkReport, name, folder)
        case "balance":
            return newest(BalanceReport, name, folder)
        case "balance-real":
            return newest(RealBalanceReport, name, folder)
        case "balance-strategies":
            return newest(StrategiesReport, name, folder)
        case "api":
            return newest(ApiReport, name, folder)
        case _ if name.endswith("latency"):
            return newest(LatencyReport, name, folder)
        case _:
            return newest(ThroughputReport, name, folder)


def section(report: AnyReport) -> str:
    """Where and when, the tables, what went wrong."""
    about = report.environment
    where = (
        f"{about.when[:10]}, commit {about.commit}{' with changes' if about.changed else ''}, "
        f"{about.cores} cores ({about.cpu}), {about.memory_bytes / 2**30:.0f} GiB, Python "
        f"{about.python}, load average {about.load_average} at the start.\n"
    )
    problems = [text for run in report.runs for text in _problems(run)]
    said = [f"- {text}\n" for text in [*problems, *report.notes]]
    tables = [markdown(grid) for grid in _grids(report)]
    return "\n".join([where, *tables, *(["".join(said)] if said else [])])


def short(report: AnyReport) -> str:
    """The figures beside those of the peer. Raises BenchError where there is none."""
    match report:
        case ThroughputReport():
            return markdown(summary.rates(report))
        case LatencyReport():
            return markdown(summary.latency(report))
        case BulkReport():
            return markdown(summary.histories(report))
        case _:
            raise BenchError("There is no short table of such a report.")


def _problems(run: AnyRun) -> list[str]:
    name = run.name if isinstance(run, Named) else run.contestant
    return [f"{name}: {text}" for text in run.problems]


def _grids(report: AnyReport) -> list[Grid]:
    match report:
        case BulkReport():
            return bulk_results.grids(report)
        case BalanceReport():
            return balance.grids(report)
        case RealBalanceReport():
            return balance_real.grids(report)
        case StrategiesReport():
            return balance_strategies.grids(report)
        case ApiReport():
            return api.grids(report)
        case _:
            return grids(report)


def main() -> int:
    """Fill the page and draw the plots; returns the exit code."""
    try:
        for page in PAGES:
            page.write_text(filled(page.read_text("utf-8")), "utf-8")
        for name in ("sweep-json", "sweep-ndjson"):
            report = newest(ThroughputReport, name)
            if report is not None:
                plot_sweep(report, REPORTS)
        balanced = newest(BalanceReport, "balance")
        if balanced is not None:
            plot_balance(balanced, REPORTS)
        real = newest(RealBalanceReport, "balance-real")
        if real is not None:
            plot_real(real, REPORTS)
    except (BenchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{', '.join(page.name for page in PAGES)}: up to date.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
