"""The parts of the engine that need no Java: properties, the archive of our code, errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from mars.adapters.spark.errors import driver_is_gone, translated
from mars.adapters.spark.packaging import PACKAGE, archive, write_archive
from mars.adapters.spark.session import LOG_SETTINGS, open_session, properties
from mars.core.errors import JobFailed, MarsError, Unavailable
from mars.core.settings import BulkSettings, Settings


def test_memory_and_master_become_properties_and_those_of_the_user_win() -> None:
    bulk = BulkSettings(
        master="spark://m:7077",
        driver_memory_mb=700,
        spark={"spark.ui.enabled": True, "spark.cores.max": 4},
    )
    found = properties(bulk)
    assert found["spark.master"] == "spark://m:7077"
    assert found["spark.driver.memory"] == "700m"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.cores.max"] == "4"
    assert "spark.driver.host" not in found
    assert properties(BulkSettings())["spark.driver.host"] == "127.0.0.1"


def test_java_options_of_the_user_are_joined_to_ours() -> None:
    bulk = BulkSettings(spark={"spark.driver.extraJavaOptions": "-Xss4m"})
    options = properties(bulk)["spark.driver.extraJavaOptions"]
    assert options.split() == [f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", "-Xss4m"]


def test_without_java_the_session_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="Install a JDK of version 17"):
        open_session(Settings(), "test")


def test_the_archive_is_the_same_every_time_and_can_be_imported_from(tmp_path: Path) -> None:
    first, second = tmp_path / "1.zip", tmp_path / "2.zip"
    package = shutil.copytree(PACKAGE, tmp_path / "code" / "mars")
    write_archive(first, package)
    write_archive(second, package)
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert "mars/engine/kernel.py" in names
    assert not any("__pycache__" in name for name in names)
    code = (
        f"import sys; sys.path[:] = [{str(first)!r}, *(p for p in sys.path if 'site-packages' in p "
        "or 'python3' in p)]; import mars.adapters.spark.work as work; print(work.__file__)"
    )
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert answer.stdout.startswith(str(first))
    assert zipfile.is_zipfile(archive())


STACK = """An error occurred while calling o50.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed
Traceback (most recent call last):
  File "worker.py", line 9, in main
    process()
{line}

\tat org.apache.spark.api.python.BasePythonRunner.handle
Caused by: java.lang.Exception
"""


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("{errors}.TaskLimit: too many values", JobFailed, "too many values"),
        ("{errors}.Unavailable: kafka is not available: gone", Unavailable, "kafka is not"),
        ("{errors}.JobFailed: the file is broken", JobFailed, "the file is broken"),
        ("ZeroDivisionError: division by zero", JobFailed, "ZeroDivisionError: division by zero"),
        ("ModuleNotFoundError: No module named 'polars'", Unavailable, "requirements of Mars"),
    ],
)
def test_what_an_executor_raised_is_recognised(line: str, kind: type, text: str) -> None:
    line = line.format(errors=MarsError.__module__)
    found = translated(Py4JError(STACK.format(line=line)))
    assert type(found) is kind
    assert text in str(found)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("Job 3 cancelled part of cancelled job group mars-1-x", Unavailable, "somebody else"),
        ("Job 3 cancelled because killed via the Web UI", Unavailable, "somebody else"),
        ("Job 0 cancelled because SparkContext was shut down", Unavailable, "will be started"),
        ("Python worker exited unexpectedly (crashed)", Unavailable, "lack of memory"),
        ("java.lang.OutOfMemoryError: Java heap space", Unavailable, "driver_memory_mb"),
        ("All masters are unresponsive! Giving up.", Unavailable, "bulk.master"),
        ("SparkContext was shut down", Unavailable, "a new one will be started"),
        ("java.lang.Exception: something new", Unavailable, "something new"),
    ],
)
def test_spark_s_own_troubles_say_what_to_do(text: str, kind: type, told: str) -> None:
    found = translated(Py4JError(text))
    assert type(found) is kind
    assert told in str(found)


def test_a_lost_driver_is_noticed() -> None:
    assert driver_is_gone(Py4JNetworkError("Answer from Java side is empty"))
    assert driver_is_gone(ConnectionRefusedError())
    assert driver_is_gone(Py4JError("Cannot call methods on a stopped SparkContext."))
    assert not driver_is_gone(Py4JError("Job aborted due to stage failure"))
