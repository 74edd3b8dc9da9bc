"""The wall clock of one process, put wrong while it runs.

The monotonic clock, by which time-outs go, stays right, as where somebody sets a machine's clock.

Kafka's client library waits by C's own `cnd_timedwait`, before which libfaketime does not stand: in
a process that uses it, each of its waits would end by another clock than the one it was computed
from. So `LibraryClock` is for the store, and `PythonClock` for our own processes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

LIBRARY = "vendor/libfaketime/src/libfaketime.so.1"
"""Where the package `libfaketime` has it: a binary for Linux on x86-64."""

FAR_S = 3_600
"""What the trial puts a clock ahead by."""

SITE = '''
"""Python runs this at its start: its clock is as wrong as a file says."""

import pathlib
import time

_ahead = pathlib.Path({file!r})
_time, _time_ns = time.time, time.time_ns


def _ahead_s():
    return int(_ahead.read_text())


time.time = lambda: _time() + _ahead_s()
time.time_ns = lambda: _time_ns() + _ahead_s() * 10**9
pathlib.Path({told!r}).touch()
'''


class Clock:
    """For processes started with its variables, as many seconds wrong as `put` said last."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.put(0)

    def put(self, ahead_s: int) -> None:
        """So many seconds ahead of the machine's clock, below 0 behind; seen within a second."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{ahead_s:+d}\n")
        written.replace(self._file)

    @property
    def variables(self) -> Mapping[str, str]:
        """What the process needs in its environment."""
        raise NotImplementedError


class LibraryClock(Clock):
    """By libfaketime, which stands between a process and the clock of the machine."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Where it is, and where it reads how far to be wrong, each second."""
        spec = importlib.util.find_spec("libfaketime")
        folders = [] if spec is None else spec.submodule_search_locations or []
        return {
            "LD_PRELOAD": next((str(Path(folder) / LIBRARY) for folder in folders), ""),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


class PythonClock(Clock):
    """Python's own; libraries in C keep theirs."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._site = file.with_suffix(".site")
        self._told = self._site / "told"
        self._site.mkdir()
        (self._site / "sitecustomize.py").write_text(
            SITE.format(file=str(file), told=str(self._told))
        )

    @property
    def variables(self) -> Mapping[str, str]:
        """Where Python finds what replaces its clock."""
        path = filter(None, [str(self._site), os.environ.get("PYTHONPATH")])
        return {"PYTHONPATH": os.pathsep.join(path)}

    @property
    def used(self) -> bool:
        """Whether a process has it."""
        return self._told.exists()


def missing_clock(folder: Path) -> str | None:
    """Why no clock can be put wrong by libfaketime here; None: it can."""
    clock = LibraryClock(folder / "trial")
    clock.put(FAR_S)
    told = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env={**os.environ, **clock.variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    if float(told.stdout) - time.time() > FAR_S / 2:
        return None
    return f"libfaketime does not put clocks wrong on this machine: {told.stderr.strip()}"
