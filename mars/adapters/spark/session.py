"""The Spark session of a process: one, made when it is first needed and kept warm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mars.adapters.spark.errors import spark_away
from mars.adapters.spark.packaging import archive
from mars.core.errors import LocalClusterError, Unavailable
from mars.core.java import find_java
from mars.core.settings import BulkSettings, Settings

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
"""Errors only: what goes wrong with a job is raised by it."""

GARBAGE_INTERVAL = "2min"
"""Between two collections by which Spark notices that a chunk's shuffle files can be deleted; a
backfill makes a hundred megabytes of them every few seconds, and the default is half an hour."""

THREADS_OF_A_TASK = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""A task is one core's work; libraries that start more threads only get in each other's way."""

LOOPBACK = "127.0.0.1"

END_S = 10.0
"""How long the old Java machine may take to end once nobody talks to it."""


def open_session(settings: Settings, name: str) -> SparkSession:
    """The session, with our code on the executors.

    Raises Unavailable where there is no Java machine of version 17, or no cluster answers.
    """
    bulk = settings.bulk
    try:
        find_java()
    except LocalClusterError as error:
        raise Unavailable("spark", str(error)) from error
    # Spark looks for the executors' Python in the driver's environment, and nowhere else.
    os.environ["PYSPARK_PYTHON"] = str(bulk.spark.get("spark.pyspark.python", _python(bulk)))
    builder = SparkSession.builder.appName(f"mars {settings.namespace} {name}")
    for key, value in properties(bulk).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
        if not is_local(bulk):
            session.sparkContext.addPyFile(str(archive()))
    except (Py4JError, PySparkException, OSError) as error:
        forget_session()
        raise spark_away(error) from error
    return session


def is_local(bulk: BulkSettings) -> bool:
    """Whether driver and executors are one process, with the same files and Python."""
    return bulk.master.startswith("local") and not bulk.master.startswith("local-cluster")


def properties(bulk: BulkSettings) -> dict[str, str]:
    """Spark's properties; those of `bulk.spark` win, and Java options are joined."""
    found = {
        "spark.master": bulk.master,
        "spark.driver.memory": f"{bulk.driver_memory_mb}m",
        "spark.executor.memory": f"{bulk.executor_memory_mb}m",
        "spark.executor.memoryOverhead": f"{bulk.executor_overhead_mb}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Chunks of a task one after the other, in their order; tasks and queries side by side.
        "spark.scheduler.mode": "FAIR",
        "spark.cleaner.periodicGC.interval": GARBAGE_INTERVAL,
        **{f"spark.executorEnv.{name}": "1" for name in THREADS_OF_A_TASK},
    }
    if is_local(bulk):
        found |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    found |= {key: _text(value) for key, value in bulk.spark.items()}
    options = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    java = "spark.driver.extraJavaOptions"
    found[java] = f"{options} {found[java]}" if java in found else options
    return found


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _python(bulk: BulkSettings) -> str:
    """This Python where executors run on this machine; elsewhere the one of that name."""
    return sys.executable if is_local(bulk) else "python3"


def close_session(session: SparkSession) -> None:
    """Stop it; one whose Java machine is gone already is only forgotten."""
    try:
        session.stop()
    except (Py4JError, OSError):
        forget_session()


def forget_session() -> None:
    """Let the next session start a Java machine of its own: that of the last one is gone.

    pyspark keeps the connection in its classes and has no call to let go of one that is broken.
    """
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        try:
            gateway.shutdown()
        except (Py4JError, OSError):
            pass  # it is gone: that is why we are here
        _end(gateway.proc)
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def _end(java: subprocess.Popen[bytes]) -> None:
    """Close the pipe by which the Java machine knows that we live, and wait until it is gone."""
    if java.stdin is not None:
        try:
            java.stdin.close()
        except OSError:
            pass  # broken: it is gone already
    try:
        java.wait(END_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
