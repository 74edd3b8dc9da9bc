"""A cluster without mapper processes: one streaming query on Spark maps for all tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from mars.settings import environment_for_child
from tests.conftest import missing_java, missing_kafka, missing_valkey, need
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import assert_exactly_once, expected, flow_rows, messages

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PARTITIONS = 4
BUSY_PARTITIONS = 3
"""The last one never gets a row: it must be found idle for any window to close."""

ROWS_PER_S = 500
FEED_S = 30
READY_S = 180.0
"""From the start of the process to its first round: about 10 s, more on a busy machine."""

RESULTS_S = 240.0

MEMBER = "spark-mapper"

Row = dict[str, Any]


class SparkMapper:
    """`mars mapper --engine spark` on a cluster's configuration."""

    def __init__(self, mars: MarsCluster) -> None:
        self._mars = mars
        self._log = (mars.data / "logs" / f"{MEMBER}.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `ready` waits for its query."""
        config = "--config", str(self._mars.data / "mars.toml")
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


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    need(missing_java() or missing_kafka() or missing_valkey())
    data = tmp_path_factory.mktemp("on-spark") / "data"
    cluster = MarsCluster(data, "--mappers", "0", "--bulk", "0")
    yield cluster
    cluster.down()


@pytest.fixture(scope="module")
def mapper(mars: MarsCluster) -> Iterator[SparkMapper]:
    process = SparkMapper(mars)
    process.start()
    process.ready()
    yield process
    assert process.stop() == 0, mars.logs()


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
    wait_for(f"{rows} rows in the ledger", lambda: mars.client.ledger(task).read >= rows)
    ledger = mars.client.ledger(task)
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


Strike = Callable[[MarsCluster, SparkMapper], None]


def nothing(_mars: MarsCluster, _mapper: SparkMapper) -> None:
    pass


def kill_the_mapper(_mars: MarsCluster, mapper: SparkMapper) -> None:
    mapper.kill()
    mapper.start()


def kill_its_java(_mars: MarsCluster, mapper: SparkMapper) -> None:
    mapper.kill_java()


def flush_the_store(mars: MarsCluster, _mapper: SparkMapper) -> None:
    redis.Redis.from_url(mars.file["redis"]).flushall()


STRIKES: dict[str, Strike] = {
    "nothing": nothing,
    "kill-the-mapper": kill_the_mapper,
    "kill-its-java": kill_its_java,
    "flushall": flush_the_store,
}


@pytest.mark.parametrize("strike", STRIKES)
def test_three_tasks_are_exact_through(mars: MarsCluster, mapper: SparkMapper, strike: str) -> None:
    name = "s_" + strike.replace("-", "_")
    mars.declare(name, stream=name, partitions=PARTITIONS)
    register_three(mars, name)
    rows = flow_rows(0, ROWS_PER_S * FEED_S, int(time.time() * 1000), rows_per_s=ROWS_PER_S)
    feeding = threading.Thread(target=feed, args=(mars, name, rows))
    feeding.start()

    wait_for(
        "half of the rows to be mapped",
        lambda: mars.client.ledger(f"{name}_tumbling").read > 0 or not feeding.is_alive(),
        seconds=RESULTS_S,
    )
    STRIKES[strike](mars, mapper)
    feeding.join()

    assert_all_exact(mars, name, rows)


def test_the_mapper_on_spark_is_a_member_like_any_other(
    mars: MarsCluster, mapper: SparkMapper
) -> None:
    mars.declare("m_rows", stream="m_rows", partitions=PARTITIONS)
    mars.register("m_task", SELECT.format(stream="m_rows", where="", window="5 s"))

    def reads() -> bool:
        members = [one for one in mars.client.cluster().members if one.pid == mapper.pid]
        return any(
            (part.topic, part.partition) == ("m_rows", 3)
            for member in members
            for part in member.partitions
        )

    wait_for("its report of partition 3", reads)
    (member,) = [one for one in mars.client.cluster().members if one.role == "mapper"]
    assert member.id == MEMBER
