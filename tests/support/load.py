"""A load that comes at its own pace while something else happens, and the verdict on its results.

with Load(mars, "f1").running() as load:     a topic, a task, rows of now at a steady rate
    ...                                      whatever is to be survived
load.check()                                 each group of each window once, with DuckDB's sums

Last comes a row of CLOSING in every partition, which the tasks filter out: its time lets the last
windows close. So no lane need ever be called idle, and a load that stands still on a busy machine
makes no row late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.cluster import MarsCluster, wait_for
from tests.support.progress import assert_progress_only_goes_forward
from tests.support.rows import (
    CLOSING,
    FIELDS,
    assert_exactly_once,
    closing_rows,
    expected,
    flow_rows,
    messages,
)

PARTITIONS = 4
ROWS_PER_S = 1_000
STEPS_PER_S = 10
WINDOW_S = 5
LONG_S = 90.0
"""How long rows come at most where the test says when it is enough."""

DRAIN_S = 120.0
"""From the last row to the last result, the longest recovery included."""

MESSAGE_BYTES_MAX = "20000000"
"""What the topics take: the largest messages that Mars refuses have 17.5 MB."""

DELAY = "1s"
"""Twice as long as rows are out of order: windows are drafted in its second half, when no further
row comes for them."""

IDLE_AFTER = "2min"
"""Longer than the load stands still through any fault."""

SUMS = (
    "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
    f"sum(hash) AS hashes FROM {{stream}} WHERE type <> '{CLOSING}' "
    "GROUP BY sip, type, timestamp WINDOWING {window_s} s"
)
"""Sums of ids and of their hashes: one lost and one doubled row do not cancel out."""

Row = dict[str, Any]


class Load:
    """Rows with ids, one task over them of the same name as their topic."""

    def __init__(
        self,
        mars: MarsCluster,
        name: str,
        *,
        seconds: float = 15,
        rows_per_s: int = ROWS_PER_S,
        window_s: int = WINDOW_S,
        idle_after: str = IDLE_AFTER,
        **options: str,
    ) -> None:
        self.mars = mars
        self.name = name
        self.window_s = window_s
        self.options = {"delay": DELAY, "idle_after": idle_after, **options}
        self._rows_per_s = rows_per_s
        self._count = int(seconds * rows_per_s)
        self.rows: list[Row] = []
        self._failures: list[BaseException] = []
        self._enough = threading.Event()

    @property
    def sql(self) -> str:
        """The task's query."""
        return SUMS.format(stream=self.name, window_s=self.window_s)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its tasks."""
        return (self.name,)

    def delete(self) -> None:
        """End all its tasks."""
        for name in self.names:
            self.mars.client.delete_task(name)

    def declare(self) -> None:
        """Topic, stream and task."""
        self.mars.topic(self.name, PARTITIONS, max_message_bytes=MESSAGE_BYTES_MAX)
        self.mars.client.put_stream(
            self.name,
            {"topic": self.name, "format": "json", "fields": FIELDS, "event_time": "timestamp"},
        )
        self.mars.register(self.name, self.sql, **self.options)

    def made(self, rows: list[Row]) -> list[Row]:
        """The rows that are sent: these, unless a test wants others."""
        return rows

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Rows come until all have been sent; the block may end sooner, and is waited for."""
        self.declare()
        start_ms = time.time_ns() // 1_000_000
        self.rows = self.made(flow_rows(0, self._count, start_ms, rows_per_s=self._rows_per_s))
        self._feeding = threading.Thread(target=self._feed, name=f"feed {self.name}")
        self._feeding.start()
        try:
            yield self
        except BaseException:
            self._enough.set()  # nobody waits for the rest
            raise
        finally:
            self._feeding.join()
        assert not self._failures, self._failures

    @property
    def coming(self) -> bool:
        """Whether there are rows to come."""
        return self._feeding.is_alive()

    def every(
        self,
        seconds: float,
        strike: Callable[[int], object],
        *,
        until: Callable[[], bool] = lambda: False,
    ) -> int:
        """Strike again and again while rows come, or until it was enough; the number of times."""
        turn = 0
        while True:
            self._feeding.join(seconds)
            if not self.coming:
                return turn
            if until():
                self.end()
            else:
                strike(turn)
                turn += 1

    def goes_on(self, rows: int) -> None:
        """Wait until so many more rows are read, and more are emitted."""
        before = wait_for("the ledger", lambda: self.mars.client.ledger(self.name))
        self.mars.ledger(self.name, before.read + rows, before.emitted + 1)

    def end(self) -> None:
        """It was enough: no more rows than those that are sent."""
        self._enough.set()
        self._feeding.join()

    def _feed(self) -> None:
        try:
            self.pour(self._enough)
        except BaseException as problem:  # noqa: BLE001 -- told to the test's own thread
            self._failures.append(problem)

    def pour(self, enough: threading.Event) -> None:
        """Send all rows, none before its time; `self.rows` are then those that were sent.

        A task that begins now calls a window whole that begins later: no row of it may lie in the
        topic already.
        """
        begun = time.monotonic()
        step = max(1, self._rows_per_s // STEPS_PER_S)
        for first in range(0, len(self.rows), step):
            wait = begun + (first + step) / self._rows_per_s - time.monotonic()
            if wait > 0:
                enough.wait(wait)
            if enough.is_set():
                del self.rows[first:]
                break
            self.send(self.rows[first : first + step])
        self.close_windows(self.rows)

    def close_windows(self, rows: Sequence[Row]) -> None:
        """Send what comes last."""
        self.send(self.closing(rows))

    def closing(self, rows: Sequence[Row]) -> list[Row]:
        """What comes last: the windows of these rows can close."""
        return closing_rows(rows, PARTITIONS, self.window_s * 1000)

    def send(self, rows: Sequence[Row]) -> None:
        """Write rows to their partitions."""
        self.mars.produce(self.name, messages(rows, PARTITIONS))

    # ------------------------------------------------------------------------------- verdict

    def check(self, *, seconds: float = DRAIN_S, bad: int = 0, future: int = 0) -> None:
        """I1, I2, I3 and I8: all there once, the ledger balanced, progress only forward.

        `bad` and `future` rows were sent beside those of the load.
        """
        wanted = expected(self.rows, self.window_s * 1000)
        try:
            found = self.mars.read_until(f"mars.results.{self.name}", len(wanted), seconds=seconds)
        except AssertionError as problem:
            raise AssertionError(f"{self.mars.client.ledger(self.name)}\n{problem}") from problem
        assert_exactly_once(found, wanted)
        self.check_ledger(self.name, bad=bad, future=future)
        assert_progress_only_goes_forward(self.mars.file["kafka"])

    def check_ledger(self, task: str, *, bad: int = 0, future: int = 0, left_open: int = 0) -> None:
        """Every row read, counted and emitted but for those left open; nothing late."""
        client, rows = self.mars.client, len(self.rows)
        read = rows + PARTITIONS + bad + future
        wait_for(f"{read} rows in the ledger", lambda: client.ledger(task).read >= read)
        wait_for(f"{left_open} open rows", lambda: client.ledger(task).open == left_open)
        ledger = client.ledger(task)
        emitted = rows - left_open
        assert (ledger.read, ledger.counted, ledger.emitted) == (read, rows, emitted), (
            task,
            ledger,
        )
        assert (ledger.bad, ledger.future) == (bad, future), (task, ledger)
        assert (ledger.filtered, ledger.late) == (PARTITIONS, 0), (task, ledger)
