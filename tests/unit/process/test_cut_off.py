"""A process that starts over: the same one, with the same arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mars.process.life import Life

SCRIPT = """
import os, sys
from mars.process.cut_off import start_over

print(os.getpid(), *sys.argv[1:], *(os.path.exists(f"/dev/fd/{n}") for n in (3, 4)), flush=True)
if "again" not in os.environ:
    os.environ["again"] = "1"
    os.dup2(0, 3, inheritable=True)
    start_over()
"""
"""Prints what it is, twice; before it starts over it opens a file as a library in C would."""


def test_a_process_starts_over_with_its_arguments_and_without_its_files(tmp_path: Path) -> None:
    script = tmp_path / "twice.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-P", str(script), "--config", "a b"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.split()[1:] == ["--config", "a", "b", "False", "False"]


def test_a_life_that_starts_over_stops_first() -> None:
    life = Life()
    assert not life.to_start_over
    life.start_over()
    assert life.stopping
    assert life.to_start_over


def test_who_is_asked_to_stop_does_not_start_over() -> None:
    asked_before, asked_after = Life(), Life()
    asked_before.stop()
    asked_before.start_over()
    asked_after.start_over()
    asked_after.stop()
    assert not asked_before.to_start_over
    assert not asked_after.to_start_over
