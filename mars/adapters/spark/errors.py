"""The one table from Spark's errors to ours.

A failure on an executor reaches the driver as text: a Java stack with, somewhere in it, the Python
traceback, whose last line names the class. Ours are recognised by that line.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from mars.core.errors import JobFailed, MarsError, Unavailable

SPARK_ERRORS = (Py4JError, PySparkException, OSError, EOFError)
"""What a call of pyspark raises when a job or the driver fails."""

_OURS = re.compile(rf"^{re.escape(MarsError.__module__)}\.(\w+): (.*)$", re.MULTILINE)
_AWAY = re.compile(r"^(\w+) is not available: (.*)$")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:.*\n)*?(?=\S)([^\n]+)")

_CANCELLED = ("cancelled part of cancelled job group", "cancelled because", "was cancelled")
"""Not by us: we know what we stop, and a context that is shut down says the same of its jobs."""

_STOPPED = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")
_LOST = (
    ("Python worker exited unexpectedly", "a Python process of an executor died, perhaps for lack "
     "of memory: give more to bulk.executor_overhead_mb, or lower bulk.task_bytes"),
    ("OutOfMemoryError", "a Java process ran out of memory: raise bulk.driver_memory_mb and "
     "bulk.executor_memory_mb"),
    ("No space left on device", "a disk for shuffle files is full: free some, or set "
     "spark.local.dir under [bulk.spark]"),
    ("ExecutorLostFailure", "an executor was lost too often; look at the cluster's log"),
    ("All masters are unresponsive", "its master does not answer; check bulk.master"),
    ("Could not parse Master URL", "bulk.master is not the address of a master"),
    ("JAVA_GATEWAY_EXITED", "its Java process ended at once; run `java -version` and look above"),
    ("No module named", "executors lack a Python package: install the requirements of Mars in "
     "their Python (spark.pyspark.python under [bulk.spark])"),
)  # fmt: skip
"""Marks in Spark's own texts, and what we say for them."""


def translated(error: BaseException) -> MarsError:
    """The error of ours for one that a job raised which we have not cancelled."""
    if isinstance(error, MarsError):
        return error
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return _of_executor(*ours[-1])
    away = spark_away(error)
    traceback = _TRACEBACK.search(text)
    if away.detail.startswith(_OTHER) and traceback is not None:
        return JobFailed(f"The job failed on an executor: {traceback[1]}")
    return away


def _of_executor(name: str, text: str) -> MarsError:
    away = _AWAY.match(text)
    if name == Unavailable.__name__ and away is not None:
        return Unavailable(away[1], away[2])
    return JobFailed(text)


_OTHER = "the job failed: "


def spark_away(error: BaseException) -> Unavailable:
    """The error of ours where Spark itself is at fault."""
    text = str(error)
    for mark, sentence in _LOST:
        if mark in text:
            return Unavailable("spark", sentence)
    if driver_is_gone(error):
        return Unavailable("spark", "the driver's Java process is gone, a new one will be started")
    if any(mark in text for mark in _CANCELLED):
        return Unavailable("spark", "somebody else stopped the job, as one can on its web page")
    cause = next((line.strip() for line in text.splitlines() if "Exception: " in line), text)
    return Unavailable("spark", f"{_OTHER}{cause[:300]}")


def driver_is_gone(error: BaseException) -> bool:
    """Whether the session can no longer be used, so that a new one must be made."""
    text = str(error)
    return (
        isinstance(error, Py4JNetworkError | OSError | EOFError)
        or any(mark in text for mark in _STOPPED)
        or "Answer from Java side is empty" in text
    )
