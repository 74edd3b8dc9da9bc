"""A child process: started on a leash, watched, stopped; its output in a log file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mars.core.errors import LocalClusterError

LOG_BYTES_MAX = 16 * 1024 * 1024
"""Size at which a log is set aside (one older one is kept) when its process starts."""

LOG_TAIL_LINES = 5
"""Lines of a log in a message: enough for the reason, few enough to be read."""

POLL_S = 0.05
"""Between two looks at a process that is starting or stopping."""

_LEASH = Path(__file__).with_name("leash.py")

_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
"""The parent of all children, for the kernel: see `leash`. It ends with this process."""


class Child:
    """A process that can be started again and again, one at a time.

    Subclasses say what to run (`command`), what to write before (`prepare`) and what is missing
    until it can be used (`missing`). The child does not outlive the process that started it.
    """

    def __init__(self, name: str, role: str, log: Path) -> None:
        self.name = name
        self.role = role
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """What to run."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str] | None:
        """The environment of the child; None: ours."""
        return None

    def prepare(self) -> None:
        """Write the files that the command reads. Raises LocalClusterError."""

    def missing(self) -> str | None:
        """None when it can be used, else a sentence that says what is missing."""
        return None if self.running else f"{self.name} is not running"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended (a paused one runs)."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the last run ended (negative: by that signal); None while it runs or before."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Run the command. Raises LocalClusterError when it runs already or cannot be prepared."""
        if self.running:
            raise LocalClusterError(f"{self.name} runs already (process {self.pid}).")
        self.prepare()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        _set_aside(self.log)
        self._process = _spawner.submit(self._spawn).result()

    def _spawn(self) -> subprocess.Popen[bytes]:
        leash = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid())]
        with self.log.open("ab") as output:
            # A group of its own: Ctrl-C in a terminal reaches us, and we stop it in order. Not a
            # session: Linux shares processors out between sessions first, and one that seldom
            # runs waited up to a third of a second beside busy ones
            # (docs/reports/2026-11-performance.md).
            return subprocess.Popen(
                [*leash, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                process_group=0,
            )

    def wait_ready(self, within_s: float) -> None:
        """Return when nothing is missing any more.

        Raises LocalClusterError, with the end of its log, when it dies or takes too long.
        """
        deadline = time.monotonic() + within_s
        while True:
            self.check_alive()
            missing = self.missing()
            if missing is None:
                return
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"{self.name} was not ready within {within_s:.0f} s: {missing}. {self._see()}"
                )
            time.sleep(POLL_S)

    def check_alive(self) -> None:
        """Raises LocalClusterError, with the end of its log, when it has died."""
        if not self.running:
            raise LocalClusterError(f"{self.name} ended ({self.how_it_ended()}). {self._see()}")

    def how_it_ended(self) -> str:
        """For a person: `exit code 1`, `signal 9`, `still running`, `never started`."""
        code = self.exit_code
        if code is None:
            return "never started" if self._process is None else "still running"
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def _see(self) -> str:
        lines = tail(self.log)
        end = "".join(f"\n  {line}" for line in lines)
        return f"Its log is {self.log}" + (f", which ends:{end}" if lines else ", and is empty.")

    def stop(self, within_s: float) -> None:
        """Ask it to end, wait, and kill it if it does not. Nothing happens when it does not run."""
        self.ask_to_end()
        self.wait_ended(within_s)

    def ask_to_end(self) -> None:
        """SIGTERM, also to a paused one."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def wait_ended(self, within_s: float) -> None:
        """Wait for its end; kill it after `within_s` seconds."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout=max(within_s, 0))
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: it keeps its place and connections, and does nothing.

        Returns once that is so: until one of its threads has taken the signal, the others go on.
        """
        self._signal(signal.SIGSTOP)
        if self._process is not None and self._process.poll() is None:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # does nothing when it has ended


def tail(log: Path, lines: int = LOG_TAIL_LINES) -> list[str]:
    """The last lines of a log that have something in them; none when it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 64 * 1024))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]


def _set_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_name(f"{log.name}.1"))
