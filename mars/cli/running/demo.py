"""`mars up --demo`: feeds a synthetic flow stream and shows statistics of it as windows close.

Half a million rows lie in the topic before the first task is registered: Spark maps them while live
rows keep coming, and their windows come out in order.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.text import Text

from mars.adapters.feed import Feed
from mars.cli.shared import output
from mars.cli.tables import clock, number, table
from mars.client.answers import Row
from mars.client.blocking import Client
from mars.client.cluster_file import ClusterFile
from mars.core.errors import Conflict, MarsError
from mars.local.flows import Flows, stream

TOPIC = "flows"
STREAM = "S"
PARTITIONS = 4
HISTORY_ROWS = 500_000
HISTORY_MS = 10 * 60_000
"""What lies in the topic at first: ten minutes of rows."""

HISTORY_CHUNK = 10_000
"""Rows sent at once."""

ROWS_PER_SECOND = 5_000
"""A rate that leaves most of a small machine idle; `mars bench` is for more."""

TICK_S = 0.05
"""The feed sends this often."""

DELAY_MS = 1_000
"""The feed's rows are at most this much out of order, so none is ever late."""

QUIET_S = 1.0
"""A window is shown once its rows have stopped coming for this long: eight buckets emit it."""

LOOK_S = 0.25
"""Between two looks at what has come."""

STATUS_INTERVAL_S = 5.0
"""Between two lines about rate and lag."""

ROWS_SHOWN = 5
"""Rows of a window that are shown."""

WITH_HISTORY = "by_sip"

TASKS = {
    WITH_HISTORY: (
        "SELECT sip, type, timestamp, count(*) FROM S GROUP BY sip, type, timestamp WINDOWING 60 s"
    ),
    "top_types": (
        "SELECT type, count(*) AS flows, sum(bytes) AS bytes, avg(loss) AS loss FROM S "
        "GROUP BY type ORDER BY flows DESC LIMIT 5 WINDOWING 5 s"
    ),
}
"""The query of the Mars paper, word for word, which begins with the history, and one whose windows
close every 5 seconds."""


def run(cluster: ClusterFile, stop: threading.Event, seconds: float | None) -> int:
    """Feed and show until `stop` is set or `seconds` have gone. Returns the exit code."""
    screen = output()
    feeder = _Feeder(cluster.kafka, stop)
    windows = _Windows(cluster.api, stop)
    with Client(cluster.api) as client:
        if not {task.name for task in client.tasks()} & TASKS.keys():
            feeder.send_history(screen)
        feeding = _start("feed", feeder.run)
        _register(client, screen)
        for name in TASKS:
            _start(f"tail-{name}", windows.follow, name)
        screen.print(
            f"Feeding {ROWS_PER_SECOND:,} rows a second into topic {TOPIC}; the first 5-second "
            f"window comes in a moment.\nDashboard: {cluster.api}/   Ctrl-C stops everything.\n"
        )
        deadline = None if seconds is None else time.monotonic() + seconds
        _show(client, screen, windows, feeder, stop, deadline)
        stop.set()
        feeding.join()
    return 0


def _start(name: str, work: object, *arguments: object) -> threading.Thread:
    if not callable(work):
        raise TypeError(f"{name}: nothing to run")
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


def _register(client: Client, screen: Console) -> None:
    """Declare the stream and the tasks; those of an earlier run go on."""
    declared = stream(STREAM, TOPIC)
    client.put_stream(
        STREAM,
        {
            "topic": TOPIC,
            "format": declared.format.value,
            "fields": {each.name: each.type.value for each in declared.fields},
            "event_time": declared.event_time,
        },
    )
    for name, sql in TASKS.items():
        try:
            start = "earliest" if name == WITH_HISTORY else "latest"
            client.create_task(name, sql, start=start, options={"delay": f"{DELAY_MS}ms"})
        except Conflict:
            screen.print(f"Task {name} is there from an earlier run and goes on.")
        else:
            screen.print(f"Task {name}: {sql}")


class _Feeder:
    """Sends rows at a steady rate; event time is the wall clock."""

    def __init__(self, bootstrap: str, stop: threading.Event) -> None:
        self._feed = Feed(bootstrap, TOPIC, PARTITIONS)
        self._flows = Flows(seed=time.time_ns() % 2**32, disorder_ms=DELAY_MS // 2)
        self._stop = stop
        self.sent = 0

    def send_history(self, screen: Console) -> None:
        """Rows of the last minutes, all at once."""
        begin_ms = int(time.time() * 1000) - HISTORY_MS
        rate = HISTORY_ROWS * 1000 / HISTORY_MS
        screen.print(f"Putting {HISTORY_ROWS:,} rows of history into topic {TOPIC}.")
        for first in range(0, HISTORY_ROWS, HISTORY_CHUNK):
            if self._stop.is_set():
                return
            start_ms = begin_ms + int(first / rate * 1000)
            self._feed.send(self._flows.messages(HISTORY_CHUNK, start_ms, rate))
            self._feed.deliver()

    def run(self) -> None:
        begun = time.monotonic()
        while not self._stop.wait(TICK_S):
            due = int((time.monotonic() - begun) * ROWS_PER_SECOND) - self.sent
            if due > 0:
                now_ms = int(time.time() * 1000)
                rows = self._flows.messages(due, now_ms, float("inf"))
                self.sent += self._feed.send(rows)
        self._feed.deliver()


@dataclass(slots=True)
class _Window:
    """One window of one task, as far as its rows have come."""

    task: str
    start_ms: int
    end_ms: int
    rows: list[Row] = field(default_factory=list)
    first_s: float = 0.0
    last_s: float = 0.0
    """When its first and its last row came, epoch seconds."""


class _Windows:
    """Collects the result rows of all tasks by window."""

    def __init__(self, api: str, stop: threading.Event) -> None:
        self._api = api
        self._stop = stop
        self._rows: queue.SimpleQueue[tuple[str, Row, float]] = queue.SimpleQueue()
        self._open: dict[tuple[str, int, int], _Window] = {}

    def follow(self, task: str) -> None:
        """Read a task's results until the demo stops, again after every break."""
        while not self._stop.is_set():
            try:
                with Client(self._api) as client:
                    for event in client.tail(task):
                        self._rows.put((task, event.row, time.time()))
            except MarsError:
                self._stop.wait(1.0)  # the API is being restarted: its supervisor sees to it

    def closed(self, wait_s: float) -> list[_Window]:
        """The windows whose rows have stopped coming."""
        try:
            self._take(*self._rows.get(timeout=wait_s))
            while not self._rows.empty():
                self._take(*self._rows.get())
        except queue.Empty:
            pass
        now = time.time()
        done = [window for window in self._open.values() if now - window.last_s > QUIET_S]
        for window in done:
            del self._open[window.task, window.start_ms, window.end_ms]
        return sorted(done, key=lambda window: window.end_ms)

    def _take(self, task: str, row: Row, came_s: float) -> None:
        place = task, int(row["window_start"]), int(row["window_end"])
        window = self._open.setdefault(place, _Window(*place))
        window.rows.append(row)
        window.first_s = window.first_s or came_s
        window.last_s = came_s


def _show(
    client: Client,
    screen: Console,
    windows: _Windows,
    feeder: _Feeder,
    stop: threading.Event,
    deadline: float | None,
) -> None:
    status_s, sent = time.monotonic(), 0
    with _HistoryBar(client, screen) as history:
        while not stop.is_set() and (deadline is None or time.monotonic() < deadline):
            for window in windows.closed(LOOK_S):
                _print_window(screen, window)
            history.move()
            now = time.monotonic()
            if now - status_s >= STATUS_INTERVAL_S:
                _print_status(client, screen, (feeder.sent - sent) / (now - status_s))
                status_s, sent = now, feeder.sent


class _HistoryBar:
    """How far the history is, below everything that is printed, until it is done."""

    def __init__(self, client: Client, screen: Console) -> None:
        self._client = client
        self._screen = screen
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            console=screen,
            transient=True,
        )
        self._bar: TaskID | None = None

    def __enter__(self) -> _HistoryBar:
        try:
            going_on = self._client.task(WITH_HISTORY).state == "backfilling"
        except MarsError:
            going_on = False
        if going_on:
            what = f"Spark maps the history of {WITH_HISTORY}"
            self._bar = self._progress.add_task(what, total=100)
            self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def move(self) -> None:
        """Look how far it is, if it goes on."""
        if self._bar is None:
            return
        try:
            task = self._client.task(WITH_HISTORY)
        except MarsError:
            return
        if task.backfill is not None:
            self._progress.update(self._bar, completed=task.backfill.percent)
        if task.state != "backfilling" and not task.missing:
            self._bar = None
            self._progress.stop()
            self._screen.print(f"The history of {WITH_HISTORY} is mapped.")


def _print_window(screen: Console, window: _Window) -> None:
    latency_ms = window.first_s * 1000 - window.end_ms - DELAY_MS
    live = latency_ms < window.end_ms - window.start_ms
    when = f"the first {latency_ms:,.0f} ms after its end and delay" if live else "of the history"
    told = f"  window {clock(window.start_ms)} UTC: {len(window.rows):,} rows, {when}"
    screen.print(Text.assemble((window.task, "bold"), told))
    columns = [name for name in window.rows[0] if name not in {"window_start", "window_end"}]
    cells = [[_cell(row[name]) for name in columns] for row in window.rows[:ROWS_SHOWN]]
    screen.print(table(columns, cells))


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _print_status(client: Client, screen: Console, rate: float) -> None:
    try:
        lags = [lag.rows for name in TASKS if (lag := client.task(name).lag) is not None]
    except MarsError as problem:
        screen.print(str(problem), style="dim")
        return
    behind = number(max(lags)) if lags else "-"
    screen.print(f"in {number(rate)} rows a second, lag {behind} messages", style="dim")
