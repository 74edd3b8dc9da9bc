"""How fast the API answers with many tasks: `python -m bench.api [SECONDS]`.

A cluster of its own with 200 tasks over one topic, to which rows come at a steady rate. Then 20
clients ask one path after the other: at a pace (each twice a second, as dashboards do), and as fast
as they are answered. A browser opens the dashboard: how long until the first chart is drawn. Last
no more rows come, all windows are closed, and the clients ask again.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.clusters import cluster
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.gaps import BUCKETS
from bench.http_clients import Asked, ask
from bench.measures import spread_of
from bench.pacing import Pace, paced
from bench.results import save
from bench.tables import Grid, markdown
from bench.topics import Topics
from mars.client.blocking import Client
from mars.core.errors import MarsError
from mars.local.cluster import ClusterOptions
from mars.local.flows import declaration

TASKS = 200
CLIENTS = 20
PACE_S = 0.5
"""Between two requests of a client at a pace: 40 a second in all."""

SECONDS = 10.0
RATE = 100
"""Rows a second; each task reads them all."""

GROUPS = 100
PARTITIONS = 4
WINDOW_S = 10
SETTLE_S = 30.0
"""Before anything is measured: windows have closed, and rates are known."""

RUNNING_S = 120.0
"""For all tasks to have been read to the end."""

OPENINGS = 5
"""Times that the browser opens the dashboard."""

NAME = "api_bench"
TASK = f"{NAME}_0"
SHAPES = ("sip, count(*)", "type, count(*), sum(bytes) AS bytes", "dip, avg(bytes) AS mean")

PATHS = (
    "/v1/tasks",
    f"/v1/tasks/{TASK}",
    f"/v1/tasks/{TASK}/why",
    f"/v1/tasks/{TASK}/windows?limit=10",
    f"/v1/tasks/{TASK}/ledger",
    f"/v1/tasks/{TASK}/results",
    f"/v1/tasks/{TASK}/figures",
    "/v1/figures",
    "/v1/streams",
    "/v1/cluster",
    "/metrics",
    "/readyz",
)


class PathFigures(msgspec.Struct, frozen=True):
    """One path; times in milliseconds. At a pace, and with every client asking again at once."""

    path: str
    bytes: int
    paced_p50_ms: float
    paced_p99_ms: float
    p50_ms: float
    p99_ms: float
    requests_per_s: float


class ApiReport(msgspec.Struct, frozen=True):
    """All figures; `first_chart_ms` of each opening of the dashboard, empty without a browser.

    `quiet_paths`: the same paths once the tasks have nothing to do.
    """

    environment: Environment
    tasks: int
    clients: int
    paths: tuple[PathFigures, ...]
    first_chart_ms: tuple[float, ...]
    notes: tuple[str, ...] = ()
    quiet_paths: tuple[PathFigures, ...] = ()

    @property
    def runs(self) -> tuple[()]:
        """No contestants."""
        return ()


Show = Callable[[str], None]


def register(kafka: str, client: Client, count: int) -> None:
    """A stream, and tasks over it."""
    Topics(kafka).make(NAME, PARTITIONS)
    client.put_stream(NAME, declaration(NAME))
    for number in range(count):
        items = SHAPES[number % len(SHAPES)]
        key = items.split(",")[0]
        sql = f"SELECT {items} FROM {NAME} GROUP BY {key} WINDOWING {WINDOW_S} s"
        client.create_task(f"{NAME}_{number}", sql, options={"delay": "1s", "idle_after": "5s"})


def measure(seconds: float, show: Show, count: int = TASKS) -> ApiReport:
    """All figures. Raises BenchError, MarsError."""
    where = environment()
    with (
        tempfile.TemporaryDirectory(prefix="mars-api-") as folder,
        cluster(ClusterOptions(data=Path(folder), buckets=BUCKETS)) as supervisor,
        Client(supervisor.addresses.api) as client,
    ):
        address, kafka = supervisor.addresses.api, supervisor.addresses.kafka
        register(kafka, client, count)
        with paced(Pace(kafka, NAME, PARTITIONS, RATE, GROUPS, WINDOW_S * 1_000)):
            _wait_for_results(client, count)
            show(f"{count} tasks run")
            paths, notes = _all_paths(address, seconds, show)
            charts, no_charts = _first_charts(address, Path(folder), show)
        _wait_for_quiet(client, count)
        show("no more rows come")
        quiet, quiet_notes = _all_paths(address, seconds, show)
    notes = (*notes, *no_charts, *quiet_notes)
    return ApiReport(where, count, CLIENTS, paths, charts, notes, quiet)


def _all_paths(
    address: str, seconds: float, show: Show
) -> tuple[tuple[PathFigures, ...], tuple[str, ...]]:
    """The figures, and a note for each path that did not answer as it should."""
    found, notes = [], []
    for path in PATHS:
        try:
            found.append(_measured(address, path, seconds, show))
        except BenchError as problem:
            notes.append(str(problem))
            show(notes[-1])
    return tuple(found), tuple(notes)


def _wait_for_results(client: Client, count: int) -> None:
    """Until every task has closed windows."""
    time.sleep(SETTLE_S)
    _wait(lambda: client.ledger(f"{NAME}_{count - 1}").emitted > 0, "The last task has no results")


def _wait_for_quiet(client: Client, count: int) -> None:
    """Until no task has an open window."""

    def quiet() -> bool:
        return all(client.ledger(f"{NAME}_{number}").open == 0 for number in range(count))

    _wait(quiet, "Tasks still have open windows")


def _wait(done: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + RUNNING_S
    while not done():
        if time.monotonic() > deadline:
            raise BenchError(f"{otherwise} after {RUNNING_S:.0f} s.")
        time.sleep(1)


def _measured(address: str, path: str, seconds: float, show: Show) -> PathFigures:
    parts = urlsplit(address)
    asked = Asked(parts.hostname or "", parts.port or 0, path, CLIENTS, seconds, PACE_S)
    paced = ask(asked)
    flat_out = ask(msgspec.structs.replace(asked, pause_s=0.0))
    slow, fast = _spread_ms(paced.took_s), _spread_ms(flat_out.took_s)
    found = PathFigures(path, paced.bytes, *slow, *fast, len(flat_out.took_s) / seconds)
    show(
        f"{path}: at a pace p50 {found.paced_p50_ms:.1f} ms, p99 {found.paced_p99_ms:.1f} ms; "
        f"flat out p99 {found.p99_ms:.1f} ms at {found.requests_per_s:.0f}/s"
    )
    return found


def _spread_ms(took_s: Sequence[float]) -> tuple[float, float]:
    found = spread_of(took_s)
    return found.p50 * 1_000, found.p99 * 1_000


def _first_charts(
    address: str, folder: Path, show: Show
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Milliseconds from asking for the page to its first chart; the browser is warm."""
    # Tests are no part of what is installed, and the tables must be readable without them.
    from tests.support.browser import Browser, missing_browser  # noqa: PLC0415

    reason = missing_browser()
    if reason is not None:
        return (), (f"First chart not measured: {reason}",)
    found = []
    with Browser(folder) as browser:
        for _ in range(OPENINGS):
            browser.go("about:blank")
            browser.go(f"{address}/")
            browser.until("return performance.getEntriesByName('first chart').length")
            mark = browser.run("return performance.getEntriesByName('first chart')[0].startTime")
            found.append(float(mark))
            show(f"first chart after {found[-1]:.0f} ms")
    return tuple(found), ()


def grids(report: ApiReport) -> list[Grid]:
    """The tables of a report."""
    what = (
        f"{report.tasks} tasks, {report.clients} clients, each asking twice a second; flat "
        "out: again as soon as answered"
    )
    found = [_paths_grid(what, report.paths)]
    if report.quiet_paths:
        found.append(_paths_grid("The same once no more rows come", report.quiet_paths))
    if report.first_chart_ms:
        charts = report.first_chart_ms
        median, worst = statistics.median(charts), max(charts)
        found.append(
            Grid(
                "From asking for the dashboard to its first chart",
                ("", "median, ms", "worst, ms"),
                [[f"{len(charts)} openings", f"{median:.0f}", f"{worst:.0f}"]],
            )
        )
    return found


def _paths_grid(what: str, paths: Sequence[PathFigures]) -> Grid:
    rows = [
        [
            f"`{one.path}`",
            f"{one.bytes / 1_024:,.1f}",
            f"{one.paced_p50_ms:.1f}",
            f"{one.paced_p99_ms:.1f}",
            f"{one.p50_ms:.1f}",
            f"{one.p99_ms:.1f}",
            f"{one.requests_per_s:,.0f}",
        ]
        for one in paths
    ]
    figures = ("p50, ms", "p99, ms", "flat out: p50, ms", "p99, ms", "requests/s")
    return Grid(what, ("GET", "KiB", *figures), rows)


def main(arguments: Sequence[str]) -> int:
    """Exit 0 when measured, 1 when not, 2 for a wrong call."""
    if arguments and not (arguments[0].isdigit() and int(arguments[0])):
        sys.stderr.write("usage: python -m bench.api [SECONDS]\n")
        return 2
    try:
        report = measure(float(arguments[0]) if arguments else SECONDS, print)
        path = save(report, "api")
    except MarsError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    print("\n".join(markdown(grid) for grid in grids(report)))
    print(f"Saved as {path}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
