"""Small children and a small Java for the tests of the embedded cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mars.local.child import Child
from mars.local.state import command_of

DEADLINE_S = 20.0
"""Longest wait for something that takes milliseconds."""

SLEEP = "import time; time.sleep(600)"
"""A child that lives until it is ended."""


class Script(Child):
    """A child that runs a piece of Python."""

    def __init__(
        self, folder: Path, code: str = SLEEP, name: str = "script", role: str = "script"
    ) -> None:
        super().__init__(name, role, folder / "logs" / f"{name}.log")
        self._code = code
        self.folder = folder

    def command(self) -> Sequence[str]:
        return [sys.executable, "-I", "-S", "-c", self._code, f"{self.folder}/"]


def eventually(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def started(child: Script) -> int:
    """Start it, and wait for the command itself; its process id.

    Whoever starts it becomes the command, and while a process becomes another one it has no command
    line for a moment.
    """
    child.start()
    assert child.pid is not None
    pid, itself = child.pid, " ".join(child.command()).split()
    eventually(lambda: command_of(pid).split() == itself)
    return pid


def gone(pid: int) -> bool:
    """Whether no such process runs (a dead one may still be listed)."""
    return not command_of(pid)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Makes children that are gone after the test."""
    made: list[Script] = []

    def make(code: str = SLEEP, name: str = "script", role: str = "script") -> Script:
        made.append(Script(tmp_path, code, name, role))
        return made[-1]

    yield make
    for child in made:
        child.kill()


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a JAVA_HOME whose java says a version and otherwise runs a piece of shell."""

    def make(version: str = "17.0.1", otherwise: str = "exit 0") -> Path:
        home = tmp_path / f"java-{version}-{len(otherwise)}"
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        says = f"""echo 'openjdk version "{version}" 2021-10-19' >&2"""
        java.write_text(
            f'#!/bin/sh\nif [ "$1" = -version ]; then {says}; exit 0; fi\n{otherwise}\n', "utf-8"
        )
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home

    return make


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here reads or writes the user's cache or settings."""
    for name in [each for each in os.environ if each.startswith("MARS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MARS_CACHE", str(tmp_path / "cache"))
