"""What `make demo` runs: the first thing that anybody sees of Mars."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from mars.client.blocking import Client
from mars.client.cluster_file import read_cluster
from mars.local.state import command_of
from tests.conftest import missing_java, missing_kafka, missing_valkey, need
from tests.support.cluster import COMMAND_S, wait_for
from tests.support.installed import build_wheel, install

pytestmark = pytest.mark.integration

HISTORY_ROWS = 500_000
CLOSED_ROWS = 400_000
"""Of the history: its last minute or two are open until newer rows have come."""


SECONDS = "15"
"""As `DEMO_SECONDS=15 make demo` hands it on: a window of five seconds closes and is shown."""


PROGRAM = (sys.executable, "-m", "mars.cli")


class Demo:
    """`mars up --demo` on free ports, and what it has printed so far."""

    def __init__(self, data: Path, *, program: Sequence[str] = PROGRAM, **variables: str) -> None:
        ports = [f"--{name}-port=0" for name in ("api", "kafka", "zookeeper", "redis")]
        self.process = subprocess.Popen(
            [*program, "up", "--demo", "--data", str(data), *ports],
            cwd=data.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200", **variables},
        )
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, name="demo")
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as printed:
            self.lines.extend(printed)

    def says(self, *words: str) -> str:
        """Wait for a line with all of these; the line."""

        def found() -> str:
            line = self.said(*words)
            assert line or self.process.poll() is None, "".join(self.lines)
            return line

        return wait_for(f"{words} among {len(self.lines)} lines", found, seconds=COMMAND_S)

    def said(self, *words: str) -> str:
        """A line with all of these, empty as long as there is none."""
        matching = (line for line in list(self.lines) if all(word in line for word in words))
        return next(matching, "")

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        code = self.process.wait(COMMAND_S)
        self._reading.join()
        return code


@contextmanager
def demo(data: Path, *, program: Sequence[str] = PROGRAM, **variables: str) -> Iterator[Demo]:
    """One that is gone afterwards, whatever happens."""
    running = Demo(data, program=program, **variables)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.interrupt()


def client_of(data: Path) -> Client:
    """A client of what runs in a folder."""
    cluster = read_cluster(data)
    assert cluster is not None
    return Client(cluster.api)


def left(data: Path) -> list[str]:
    """Processes of this folder that still run."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [line for pid in pids if f"{data}/" in (line := command_of(pid))]


def test_the_demo_shows_windows_ends_without_a_trace_and_finds_its_data_again(
    tmp_path: Path,
) -> None:
    need(missing_java() or missing_kafka() or missing_valkey())
    data = tmp_path / "data"
    with demo(data) as first:
        first.says("Putting 500,000 rows of history")
        first.says("Task by_sip: SELECT sip, type, timestamp, count(*) FROM S")
        first.says("top_types", "window", "ms after its end and delay")
        first.says("in ", " rows a second, lag ", " messages")
        first.says("The history of by_sip is mapped.")
        first.says("by_sip", "window", "of the history")
        with client_of(data) as client:
            wait_for("the history", lambda: client.ledger("by_sip").emitted >= CLOSED_ROWS)
        assert first.interrupt() == 0
    assert left(data) == []

    with demo(data, DEMO_SECONDS=SECONDS) as second:
        second.says("Task by_sip is there from an earlier run and goes on.")
        with client_of(data) as client:
            ledger = wait_for("the ledger", lambda: client.ledger("by_sip"))
            assert ledger.emitted >= CLOSED_ROWS
            assert ledger.read >= HISTORY_ROWS
            assert ledger.read == ledger.counted
        assert second.wait() == 0
    assert second.said("top_types", "window", "ms after its end and delay")
    assert left(data) == []


def test_the_demo_runs_from_the_wheel_in_an_empty_folder(tmp_path: Path) -> None:
    need(missing_java() or missing_kafka() or missing_valkey())
    program = install(build_wheel(tmp_path), tmp_path / "venv", "cluster") / "mars"
    folder = tmp_path / "empty"
    folder.mkdir()
    with demo(folder / ".mars", program=[str(program)], DEMO_SECONDS=SECONDS) as running:
        running.says("Task by_sip: SELECT sip, type, timestamp, count(*) FROM S")
        with client_of(folder / ".mars") as client:
            page = client._connection.look("/")
            assert page.status_code == 200
            assert "<title>" in page.text
        assert running.wait() == 0
    assert running.said("top_types", "window", "ms after its end and delay")
    assert [path.name for path in folder.iterdir()] == [".mars"]
    assert left(folder / ".mars") == []
