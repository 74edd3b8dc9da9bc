"""Signals that come while the main thread waits for what they set."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal, threading
from mars.core.stopping import at_signals

asked = threading.Event()
at_signals([signal.SIGTERM], asked.set)
with asked._cond:  # as in the middle of `asked.wait`
    signal.raise_signal(signal.SIGTERM)
assert asked.wait(60)
"""


def test_a_signal_that_comes_while_the_event_is_locked_does_not_hang() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
