"""Where the time goes: py-spy beside the Python processes of a run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.contestants import Contestant
from bench.errors import BenchError

PROFILED = ("mapper-1", "reducer-1")
"""The others of their kind do the same."""

SECONDS = 10
"""Length of a profile; a thousand samples at a hundred a second."""

END_S = 30.0
"""Longest end of py-spy after that."""

SHOWN = 15
"""Functions in the table."""


@dataclass(frozen=True, slots=True)
class Line:
    """A function: its share of the samples, alone and with what it calls."""

    function: str
    own: float
    total: float


@dataclass(frozen=True, slots=True)
class Profile:
    """One process; `stacks`: a file of folded stacks, which speedscope and flamegraph.pl read."""

    process: str
    stacks: Path
    lines: Sequence[Line]


@dataclass(slots=True)
class Profiler:
    """Records while a run goes on. Raises BenchError at once where there is no py-spy."""

    folder: Path
    _running: list[tuple[str, Path, subprocess.Popen[bytes]]] = field(default_factory=list)

    def begin(self, contestant: Contestant) -> None:
        """Start py-spy on the processes that are to be profiled."""
        tool = find_py_spy()
        self.folder.mkdir(parents=True, exist_ok=True)
        for process in contestant.watched():
            if process.name not in PROFILED:
                continue
            path = self.folder / f"profile-{process.name}.folded"
            command = [tool, "record", "--pid", str(process.pid), "--duration", str(SECONDS)]
            options = ["--format", "raw", "--rate", "100", "--nonblocking", "--output", str(path)]
            started = subprocess.Popen(
                [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            self._running.append((process.name, path, started))

    def finish(self) -> list[Profile]:
        """Wait for the recordings; what could not be recorded is left out."""
        profiles = []
        for name, path, process in self._running:
            try:
                process.wait(SECONDS + END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if path.exists():
                profiles.append(Profile(name, path, top(path.read_text("utf-8"))))
        self._running.clear()
        return profiles


def find_py_spy() -> str:
    """The tool of this Python's environment, else of the PATH. Raises BenchError."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise BenchError("There is no py-spy; run `make install`, or leave --profile out.")
    return found


def top(folded: str, count: int = SHOWN) -> list[Line]:
    """The functions with the most samples of their own in folded stacks (`a;b;c 12` a line)."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    samples = 0
    for line in folded.splitlines():
        stack, _, number = line.rpartition(" ")
        if not number.isdigit():
            continue
        frames = [_function(frame) for frame in stack.split(";")]
        samples += int(number)
        own[frames[-1]] += int(number)
        for frame in set(frames):
            total[frame] += int(number)
    return [
        Line(function, hits / samples, total[function] / samples)
        for function, hits in own.most_common(count)
    ]


def _function(frame: str) -> str:
    """`decode (mars/codec/json.py:12)` without the line: lines of a function belong together."""
    name, _, place = frame.partition(" (")
    return f"{name} ({place.rpartition(':')[0] or place.rstrip(')')})" if place else name
