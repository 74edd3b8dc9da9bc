"""The frame of the command line: exit codes, sentences, laziness, where the API is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import mars.cli
from mars.cli import exit_code_of, run
from mars.cli.running import background
from mars.cli.running.background import stopped_by
from mars.cli.running.report import Message, StartReport
from mars.cli.shared import api_address
from mars.core.errors import (
    Conflict,
    LocalClusterError,
    MarsError,
    NotFound,
    Rejected,
    SettingsError,
    Unavailable,
)
from mars.local.cluster import ClusterOptions
from mars.local.state import locked, write_cluster
from tests.unit.local.test_state import cluster


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MarsError("x"), 1),
        (LocalClusterError("x"), 1),
        (Unavailable("kafka", "x"), 1),
        (SettingsError("x"), 2),
        (NotFound("x"), 3),
        (Conflict("x"), 4),
        (Rejected("x"), 4),
    ],
)
def test_errors_have_the_documented_exit_codes(error: MarsError, code: int) -> None:
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["up", "--nonsense"],
        ["up", "--mappers", "-1"],
        ["up", "--demo", "--detach"],
        ["up", "--autoscale", "4"],
        ["up", "--autoscale", "4:2"],
        ["up", "--autoscale", "0:2"],
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert "Error:" in capsys.readouterr().err


def test_the_command_that_stops_a_cluster_names_its_folder_where_it_must() -> None:
    assert stopped_by(Path(".mars")) == "mars down"
    assert stopped_by(Path("other")) == "mars down --data other"


def test_an_error_is_one_sentence_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mapper", "--config", str(tmp_path / "none.toml")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "none.toml cannot be read" in captured.err


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_output_that_takes_nothing_is_told_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mars.cli", "down", "--data", str(tmp_path)]
    with FULL.open("wb") as full:
        answer = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert "Standard output cannot be written (No space left on device)" in answer.stderr


def test_a_reader_that_has_gone_ends_a_command_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mars.cli", "down", "--data", str(tmp_path)]
    read_end, write_end = os.pipe()
    os.close(read_end)
    answer = subprocess.run(
        command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write_end)
    assert (answer.returncode, answer.stderr) == (1, "")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(13, "Permission denied", "/x/y"), "/x/y cannot be used (Permission"),
        (PermissionError(1, "Operation not permitted"), "needs (Operation not permitted)."),
        (OSError("strange"), "needs (strange)."),
    ],
)
def test_what_the_system_refuses_is_told_in_a_sentence(
    error: OSError,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(_data: Path) -> None:
        raise error

    monkeypatch.setattr("mars.local.control.stop_cluster", refuse)
    assert run(["down", "--data", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert sentence in told


def test_a_process_that_the_system_ends_says_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_settings: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("mapper.__main__.run", refuse)
    assert run(["mapper"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_role_that_is_not_in_this_version_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mars.cli.running import roles

    monkeypatch.setitem(roles._MODULES, "bulk", "mapper.nothing.__main__")
    assert run(["bulk"]) == 1
    assert "no process of the role bulk" in capsys.readouterr().err


def test_every_command_that_is_there_can_be_loaded_and_explained() -> None:
    context = click.Context(mars.cli.cli)
    names = mars.cli.cli.list_commands(context)
    assert {"up", "down", "status", "mapper", "reducer", "api", "bulk"} <= set(names)
    for name in names:
        command = mars.cli.cli.get_command(context, name)
        assert command is not None
        assert command.help


def test_help_loads_no_client_library() -> None:
    code = "import sys; from mars.cli import run; run(['--help']); print(sorted(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(eval(answer.stdout.splitlines()[-1]))
    assert not loaded & {"confluent_kafka", "redis", "kazoo", "polars", "fastapi", "httpx"}


def test_down_without_a_cluster_is_done_and_status_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["down", "--data", str(tmp_path)]) == 0
    assert "nothing to stop" in capsys.readouterr().out
    assert run(["down", "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"stopped": False}
    assert run(["status", "--data", str(tmp_path)]) == 3
    assert "No cluster runs" in capsys.readouterr().err


def test_status_of_an_api_that_is_away_fails_with_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cluster(tmp_path, cluster())
    with locked(tmp_path):
        code = run(["status", "--data", str(tmp_path), "--api", "http://127.0.0.1:9", "--json"])
    status = json.loads(capsys.readouterr().out)
    assert code == 1
    assert status["local"]["kafka"] == "127.0.0.1:9092"
    assert status["cluster"] is None
    assert "does not answer" in status["problem"]


def test_the_api_is_named_by_option_then_variable_then_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LocalClusterError, match="mars up"):
        api_address(None, tmp_path)
    write_cluster(tmp_path, cluster())
    with locked(tmp_path):
        assert api_address(None, tmp_path) == "http://127.0.0.1:8080"
        monkeypatch.setenv("MARS_API", "http://named/")
        assert api_address(None, tmp_path) == "http://named"
        assert api_address("http://option", tmp_path) == "http://option"


def test_a_report_whose_reader_has_gone_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    read_end, write_end = os.pipe()
    report = StartReport(pipe=write_end)
    report.line("one")
    assert os.read(read_end, 1000) == b'{"kind":"line","text":"one"}\n'
    os.close(read_end)
    report.line("two")
    report.failed("three")
    assert capsys.readouterr().out == "one\ntwo\n"
    os.close(write_end)
    assert Message("ready").text == ""


STARTING = """
import os, signal, sys
os.write(int(sys.argv[1]), b'{"kind":"line","text":"%d"}\\n' % os.getpid())
signal.pause()
"""
"""A `mars up` that never becomes ready; its line is its pid."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_waits_stops_what_up_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    pids: list[int] = []

    class Signalled(StartReport):
        def line(self, text: str) -> None:
            pids.append(int(text))
            signal.raise_signal(number)

    def command(_options: ClusterOptions, _data: Path, pipe: int) -> list[str]:
        return [sys.executable, "-c", STARTING, str(pipe)]

    monkeypatch.setattr(background, "_command", command)
    before = signal.getsignal(signal.SIGTERM)
    (tmp_path / "logs").mkdir()
    with pytest.raises(KeyboardInterrupt):
        background.start(ClusterOptions(data=tmp_path), Signalled())
    (pid,) = pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert signal.getsignal(signal.SIGTERM) is before
