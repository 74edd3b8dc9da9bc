"""What the wheel alone, in an environment of its own, does: the client is all that it brings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.installed import build_wheel, install

LOADED = """
import sys
import mars, mars.client, mars.aio
{then}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
"""What is loaded by the import of all that a client needs, and by what it does then."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    return install(build_wheel(folder), folder / "venv")


def run(programs: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs / command[0], *command[1:]],
        cwd=programs,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def loaded(programs: Path, then: str = "") -> set[str]:
    done = run(programs, "python", "-c", LOADED.format(then=then))
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_client_is_there_and_loads_neither_frames_nor_servers(programs: Path) -> None:
    found = loaded(programs, "mars.client.Client('http://127.0.0.1:1').close()")
    assert {"mars", "httpx", "msgspec"} <= found
    assert not found & {"polars", "pyarrow", "pyspark", "pandas", "numpy", "confluent_kafka"}


def test_httpx_is_loaded_by_the_first_client_and_by_no_import(programs: Path) -> None:
    found = loaded(programs)
    assert {"mars", "msgspec"} <= found
    assert not found & {"httpx", "rich"}


def test_commands_that_ask_the_api_are_there(programs: Path) -> None:
    assert run(programs, "mars", "--help").returncode == 0
    asked = run(programs, "mars", "task", "list", "--api", "http://127.0.0.1:1")
    assert asked.returncode == 1
    assert "Traceback" not in asked.stderr
    assert "http://127.0.0.1:1" in asked.stderr


@pytest.mark.parametrize("command", ["up", "mapper", "reducer", "api", "bulk", "key list"])
def test_what_runs_a_cluster_says_what_to_install(programs: Path, command: str) -> None:
    done = run(programs, "mars", *command.split())
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Run: pip install 'mars-statistics[cluster]'" in done.stderr
    assert not (programs / ".mars").exists()


def test_a_data_frame_says_what_to_install(programs: Path) -> None:
    done = run(programs, "python", "-c", "import mars.engine.frames")
    assert "polars is not installed. Run: pip install 'mars-statistics[frames]'" in done.stderr
