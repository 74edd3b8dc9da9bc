"""Puts the newest saved figures into docs/benchmarks.md: `python -m bench.report`.

Between `<!-- bench:<name> -->` and `<!-- /bench:<name> -->` stand the tables of the newest
`bench/results/<name>-<when>.json`; the rest of the page is written by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

from bench import bulk_results
from bench.bulk_results import BulkReport
from bench.errors import BenchError
from bench.plots import plot_sweep
from bench.results import FOLDER, Report, ThroughputReport, newest
from bench.tables import grids, markdown

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

_BLOCK = re.compile(r"<!-- bench:(?P<name>[a-z-]+) -->\n.*?<!-- /bench:(?P=name) -->", re.DOTALL)


def filled(page: str, folder: Path = FOLDER) -> str:
    """The page with every block made anew from what is saved in `folder`."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        report = newest_bulk(folder) if name == "bulk" else newest(name, folder)
        text = "_Not measured yet._\n" if report is None else section(report)
        return f"<!-- bench:{name} -->\n{text}<!-- /bench:{name} -->"

    return _BLOCK.sub(block, page)


def newest_bulk(folder: Path) -> BulkReport | None:
    """The newest report of `mars bench bulk`; None when there is none. Raises BenchError."""
    paths = sorted(folder.glob("bulk-[0-9]*.json"))
    if not paths:
        return None
    try:
        return msgspec.json.decode(paths[-1].read_bytes(), type=BulkReport)
    except msgspec.MsgspecError as error:
        raise BenchError(
            f"{paths[-1]} is not of this release ({error}); measure again or remove it."
        ) from error


def section(report: Report | BulkReport) -> str:
    """Where and when, the tables, what went wrong."""
    about = report.environment
    where = (
        f"{about.when[:10]}, commit {about.commit}{' with changes' if about.changed else ''}, "
        f"{about.cores} cores ({about.cpu}), {about.memory_bytes / 2**30:.0f} GiB, Python "
        f"{about.python}, load average {about.load_average} at the start.\n"
    )
    problems = [f"{run.contestant}: {text}" for run in report.runs for text in run.problems]
    said = [f"- {text}\n" for text in [*problems, *report.notes]]
    found = bulk_results.grids(report) if isinstance(report, BulkReport) else grids(report)
    tables = [markdown(grid) for grid in found]
    return "\n".join([where, *tables, *(["".join(said)] if said else [])])


def main() -> int:
    """Fill the page and draw the plots; returns the exit code."""
    try:
        PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
        for name in ("sweep-json", "sweep-ndjson"):
            report = newest(name)
            if isinstance(report, ThroughputReport):
                plot_sweep(report, PAGE.parent)
    except (BenchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{PAGE} is up to date.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
