"""A child process: its life, its log, and its end together with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mars.core.errors import LocalClusterError
from mars.local import child as child_module
from mars.local.child import tail
from tests.unit.local.conftest import Script, eventually, gone

Make = Callable[..., Script]

IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_child_runs_until_it_is_stopped_and_can_be_started_again(script: Make) -> None:
    child = script()
    assert (child.running, child.pid, child.exit_code) == (False, None, None)
    child.start()
    first = child.pid
    assert child.running
    child.stop(10)
    assert (child.running, child.pid, child.exit_code) == (False, None, -signal.SIGTERM)
    child.start()
    assert child.pid not in {None, first}


def test_a_child_that_runs_is_not_started_twice(script: Make) -> None:
    child = script()
    child.start()
    with pytest.raises(LocalClusterError, match="runs already"):
        child.start()


def test_stop_kills_a_child_that_ignores_it(script: Make) -> None:
    child = script(IGNORES_TERM)
    child.start()
    eventually(lambda: tail(child.log) == ["ready"])
    child.stop(0.1)
    assert child.exit_code == -signal.SIGKILL


def test_stop_ends_a_paused_child(script: Make) -> None:
    child = script()
    child.start()
    child.pause()
    child.stop(10)
    assert child.exit_code == -signal.SIGTERM


def test_output_of_all_lives_is_in_the_log(script: Make) -> None:
    child = script("import sys; print('out', flush=True); print('err', file=sys.stderr)")
    for _ in range(2):
        child.start()
        child.wait_ended(10)
    assert tail(child.log) == ["out", "err"] * 2


def test_a_long_log_is_set_aside_at_the_next_start(
    script: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "LOG_BYTES_MAX", 100)
    child = script("print('x' * 200)")
    for _ in range(2):
        child.start()
        child.wait_ended(10)
    assert tail(child.log) == ["x" * 200]
    assert tail(child.log.with_name("script.log.1")) == ["x" * 200]


def test_waiting_for_a_child_that_dies_tells_the_end_of_its_log(script: Make) -> None:
    child = script("import sys; sys.exit('no room here')")
    child.start()
    child.wait_ended(10)
    with pytest.raises(LocalClusterError, match=r"exit code 1(?s:.*)no room here"):
        child.wait_ready(10)


def test_waiting_too_long_tells_what_is_missing(
    script: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = script()
    monkeypatch.setattr(Script, "missing", lambda _self: "it is shy")
    child.start()
    with pytest.raises(LocalClusterError, match="not ready within 0 s: it is shy"):
        child.wait_ready(0)


def test_a_command_that_does_not_exist_is_told(
    script: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = script()
    monkeypatch.setattr(Script, "command", lambda _self: ["/no/such/thing"])
    child.start()
    child.wait_ended(10)
    assert (child.exit_code, tail(child.log)) == (
        127,
        ["/no/such/thing cannot be run: No such file or directory"],
    )


def test_a_child_outlives_the_thread_that_asked_for_it(script: Make) -> None:
    child = script("print('up', flush=True); " + "import time; time.sleep(600)")
    with ThreadPoolExecutor(1) as threads:
        threads.submit(child.start).result()
    eventually(lambda: tail(child.log) == ["up"])
    assert child.running


def test_a_child_does_not_take_the_signals_of_our_terminal(script: Make) -> None:
    child = script()
    child.start()
    assert child.pid is not None
    assert os.getpgid(child.pid) == child.pid
    assert os.getsid(child.pid) == os.getsid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent_code = f"""
        import time
        from pathlib import Path
        from tests.unit.local.conftest import Script
        code = "print('up', flush=True); import time; time.sleep(600)"
        child = Script(Path({str(tmp_path)!r}), code)
        child.start()
        print(child.pid, flush=True)
        time.sleep(600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent_code)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        eventually(lambda: tail(tmp_path / "logs" / "script.log") == ["up"])
        parent.kill()
    eventually(lambda: gone(pid))
