"""The commands in a document, and a shell that runs them.

    ```bash      commands that are run; each must succeed
    ```console   looks: `$ command`, and lines as they are shown then, soon
    ```python    programs: each must print something soon; one that goes on is stopped then

In what is shown, `...` stands for anything, a number for any number, and blanks for any blanks;
lines may be left out. A look is repeated until it shows that: it must change nothing.
Blocks in any other language are not run.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ "

COMMANDS_S = 150.0
"""For one block of commands: that of a query may have to wait until Spark has started."""

LOOK_S = 45.0
"""Until a look must show what the document says."""


@dataclass(frozen=True, slots=True)
class Look:
    """A command, and lines of which each must be found in what it prints, in this order."""

    command: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A program in Python."""

    text: str


def steps_of(document: Path) -> Iterator[str | Look | Program]:
    """Blocks of commands, looks and programs, in their order."""
    for language, body in FENCED.findall(document.read_text("utf-8")):
        if language == "bash":
            yield body
        elif language == "console":
            yield from _looks(body)
        elif language == "python":
            yield Program(body)


def _looks(body: str) -> Iterator[Look]:
    assert body.startswith(PROMPT), f"a console block begins with a command: {body[:60]!r}"
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield Look(command, tuple(line for line in shown if line.strip(" .")))


def is_shown(look: Look, output: str) -> bool:
    """Whether the output has all lines of a look."""
    rest = output
    for line in look.lines:
        found = _pattern(line).search(rest)
        if found is None:
            return False
        rest = rest[found.end() :]
    return True


def _pattern(line: str) -> re.Pattern[str]:
    parts = re.split(r"(\.\.\.|\d+|\s+|─+)", line.strip())
    return re.compile("".join(map(_part, parts)))


def _part(part: str) -> str:
    """A figure stands for any, a gap for any gap, and the line below a head for any such line."""
    if part == "...":
        return r"[\s\S]*?"
    if part.isdigit():
        return r"\d+"
    if part.isspace():
        return r"\s+"
    return "─+" if part.startswith("─") else re.escape(part)


class Shell:
    """One bash in a folder of its own, as somebody who reads along has it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._output = folder / "shell.output"
        self._folder = folder
        self.environment = {**os.environ, **environment}
        with self._output.open("wb") as output:
            self._bash = subprocess.Popen(
                ["bash", "--norc", "-e", "-o", "pipefail"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=self.environment,
                start_new_session=True,
            )
        self._steps = 0

    def run(self, commands: str) -> None:
        """Run a block; fails with all output if a command fails or takes too long."""
        self._steps += 1
        mark = self._folder / f"step-{self._steps}.done"
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{commands}\ntouch {mark}\n".encode())
        self._bash.stdin.flush()
        deadline = time.monotonic() + COMMANDS_S
        while not mark.exists():
            told = self._output.read_text("utf-8", errors="replace")
            assert self._bash.poll() is None, f"a command failed in:\n{commands}\n{told}"
            assert time.monotonic() < deadline, (
                f"took more than {COMMANDS_S} s:\n{commands}\n{told}"
            )
            time.sleep(0.05)

    def look(self, look: Look) -> None:
        """Repeat a look until it shows what the document says."""
        shown = self._folder / "look.output"
        deadline = time.monotonic() + LOOK_S
        while True:
            self.run(f"({look.command}) > {shown} 2>&1 < /dev/null || true")
            output = shown.read_text("utf-8", errors="replace")
            if is_shown(look, output):
                return
            assert time.monotonic() < deadline, (
                f"$ {look.command}\n{output}\nshould show: {look.lines}"
            )
            time.sleep(0.5)

    def program(self, text: str) -> None:
        """Start a program, wait until it prints something, and interrupt it if it goes on."""
        path, printed = self._folder / "program.py", self._folder / "program.output"
        path.write_text(text, "utf-8")
        with printed.open("wb") as output:
            running = subprocess.Popen(
                [sys.executable, "-u", path],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self.environment,
            )
        try:
            self._await_output(running, printed)
            assert "Traceback" not in printed.read_text("utf-8"), printed.read_text("utf-8")
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(10)

    def _await_output(self, running: subprocess.Popen[bytes], printed: Path) -> None:
        deadline = time.monotonic() + LOOK_S
        while not printed.stat().st_size:
            assert running.poll() is None, "the program ended and printed nothing"
            assert time.monotonic() < deadline, f"the program printed nothing for {LOOK_S} s"
            time.sleep(0.05)

    def close(self) -> None:
        """End it and whatever it left in the background."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait(10)
        assert self._bash.stdin is not None
        self._bash.stdin.close()
