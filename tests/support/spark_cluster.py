"""A standalone Spark cluster from the installed pyspark: a master and workers as children."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from mars.core.settings import BulkSettings
from mars.local.child import Child
from mars.local.network import HOST, free_port

SPARK_HOME = Path(pyspark.__file__).parent
READY_S = 120.0
STOP_S = 20.0


class _Daemon(Child):
    """A main class of Spark."""

    def environment(self) -> Mapping[str, str] | None:
        return {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
        }

    def run(self, main: str, *arguments: str) -> Sequence[str]:
        return [str(SPARK_HOME / "bin" / "spark-class"), main, *arguments, "--webui-port", "0"]


class SparkMaster(_Daemon):
    def __init__(self, folder: Path) -> None:
        super().__init__("spark-master", "spark", folder / "master.log")
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def command(self) -> Sequence[str]:
        main = "org.apache.spark.deploy.master.Master"
        return self.run(main, "--host", HOST, "--port", str(self.port))

    def missing(self) -> str | None:
        try:
            socket.create_connection((HOST, self.port), 1.0).close()
        except OSError:
            return "it does not listen"
        return None


class SparkWorker(_Daemon):
    """One core, so that a job needs both of two workers."""

    def __init__(self, folder: Path, number: int, master: str) -> None:
        super().__init__(f"spark-worker-{number}", "spark", folder / f"worker-{number}.log")
        self._work = folder / f"worker-{number}"
        self._master = master

    def command(self) -> Sequence[str]:
        return self.run(
            "org.apache.spark.deploy.worker.Worker",
            *["--host", HOST, "--cores", "1", "--memory", "1g"],
            *["--work-dir", str(self._work), self._master],
        )

    def kill_all(self) -> None:
        """SIGKILL for the worker, its executor and the executor's Python, as a machine dies."""
        if self.pid is not None:
            os.killpg(self.pid, signal.SIGKILL)
        self.kill()


@contextmanager
def spark_cluster(folder: Path) -> Iterator[tuple[SparkMaster, list[SparkWorker]]]:
    """A master with two workers."""
    master = SparkMaster(folder)
    workers: list[SparkWorker] = []
    try:
        master.start()
        master.wait_ready(READY_S)
        workers += [SparkWorker(folder, number, master.url) for number in (1, 2)]
        for worker in workers:
            worker.start()
        yield master, workers
    finally:
        for child in (*workers, master):
            child.stop(STOP_S)


def on_cluster(master: SparkMaster) -> BulkSettings:
    """Small tasks, and a second copy of every task that takes a little longer than others."""
    return BulkSettings(
        master=master.url,
        executor_memory_mb=512,
        task_rows=1_200,
        spark={
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.pyspark.python": sys.executable,
            "spark.speculation": True,
            "spark.speculation.interval": "50ms",
            "spark.speculation.multiplier": 1.1,
            "spark.speculation.quantile": 0.1,
            "spark.speculation.minTaskRuntime": "20ms",
        },
    )
