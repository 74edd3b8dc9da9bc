"""The mapper on Spark as a process of a test's cluster, and three tasks with rows for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from mars.core import settings
from mars.core.settings import BulkSettings, environment_for_child
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import assert_exactly_once, expected, messages

PARTITIONS = 4
BUSY_PARTITIONS = 3
"""The last one never gets a row: it must be found idle for any window to close."""

ROWS_PER_S = 500
FEED_S = 15
READY_S = 300.0
"""From the start of the process to its first round: about 10 s, more on a busy machine."""

RESULTS_S = 240.0

MEMBER = "spark-mapper"

Row = dict[str, Any]


class SparkMapper:
    """`mars mapper --engine spark` on a cluster's configuration, with another Spark if given."""

    def __init__(self, mars: MarsCluster, bulk: BulkSettings | None = None) -> None:
        self._mars = mars
        self._config = mars.data / "mars.toml"
        if bulk is not None:
            own = replace(settings.load(self._config, {}), bulk=bulk)
            self._config = mars.data / f"{MEMBER}.toml"
            self._config.write_text(settings.to_toml(own), "utf-8")
        self._log = (mars.data / "logs" / f"{MEMBER}.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `ready` waits for its query."""
        config = "--config", str(self._config)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mars.cli", "mapper", "--engine", "spark", *config],
            env=environment_for_child(MEMBER),
            stderr=self._log,
            stdout=self._log,
        )

    def ready(self) -> None:
        """Wait until a query runs, by the member's own report."""
        wait_for("a query on Spark", self._reads, seconds=READY_S)

    def _reads(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._mars.logs()
        return any(
            member.pid == self.pid and member.role == "mapper" and not member.missing
            for member in self._mars.client.cluster().members
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a machine that is switched off."""
        os.kill(self.pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait(30)

    def kill_java(self) -> None:
        """As a driver that ran out of memory."""
        os.kill(wait_for("a Java process", self._java), signal.SIGKILL)

    def _java(self) -> int:
        return next((pid for pid, name in _children(self.pid).items() if name == "java"), 0)

    def stop(self) -> int:
        """As an operator would; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(120)
        self._log.close()
        return code


def _children(pid: int) -> dict[int, str]:
    """Process id -> name, of what a process has started and what still runs."""
    found: dict[int, str] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        if int(rest.split()[1]) == pid:
            found[int(stat.parent.name)] = head.partition("(")[2]
    return found


SELECT = (
    "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
    "sum(hash) AS hashes FROM {stream} {where}GROUP BY sip, type, timestamp WINDOWING {window}"
)


def register_three(mars: MarsCluster, stream: str) -> None:
    """A tumbling task, a sliding one, one with a filter."""
    queries = {
        "tumbling": SELECT.format(stream=stream, where="", window="5 s"),
        "sliding": SELECT.format(stream=stream, where="", window="10 s SLIDE 5 s"),
        "filtered": SELECT.format(stream=stream, where="WHERE type = 'dns' ", window="5 s"),
    }
    for kind, sql in queries.items():
        mars.register(f"{stream}_{kind}", sql, idle_after="10s")


def assert_all_exact(mars: MarsCluster, stream: str, rows: list[Row]) -> None:
    earlier = [{**row, "timestamp": row["timestamp"] - 5_000} for row in rows]
    wanted = {
        "tumbling": expected(rows),
        "sliding": expected([*rows, *earlier]),
        "filtered": expected([row for row in rows if row["type"] == "dns"]),
    }
    for kind, lines in wanted.items():
        found = mars.read_until(f"mars.results.{stream}_{kind}", len(lines), seconds=RESULTS_S)
        assert_exactly_once(found, lines)
        counted = sum(row["type"] == "dns" for row in rows) if kind == "filtered" else len(rows)
        assert_ledger(mars, f"{stream}_{kind}", len(rows), counted)


def assert_ledger(mars: MarsCluster, task: str, rows: int, counted: int) -> None:
    ledger = mars.ledger(task, rows)
    assert (ledger.read, ledger.counted, ledger.filtered) == (rows, counted, rows - counted)
    assert (ledger.bad, ledger.future, ledger.late) == (0, 0, 0)
    assert ledger.counted == ledger.emitted + ledger.open


def feed(mars: MarsCluster, topic: str, rows: list[Row]) -> None:
    """Send each row when its time has come."""
    begun = time.monotonic()
    step = ROWS_PER_S // 5
    for first in range(0, len(rows), step):
        wait = begun + first / ROWS_PER_S - time.monotonic()
        if wait > 0:
            time.sleep(wait)  # the pace of the load, not a way to synchronise
        mars.produce(topic, messages(rows[first : first + step], BUSY_PARTITIONS))
