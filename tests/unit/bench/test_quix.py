"""How Quix Streams is installed, started and looked at."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

from bench.errors import BenchError
from bench.quix import install
from bench.quix.side import QuixSide, _Process
from bench.topics import Topics


def test_every_package_is_pinned_with_its_hashes_and_names_no_registry() -> None:
    listed = install.LOCK.read_text("utf-8")
    packages = re.findall(
        r"^\S[^\n]*(?:\n +--hash=sha256:[0-9a-f]{64}[^\n]*)*", listed, re.MULTILINE
    )
    assert all(re.match(r"[a-z0-9-]+==\S+ \\\n +--hash=", package) for package in packages)
    assert f"quixstreams=={install.version()} \\" in listed
    assert "://" not in listed


def test_it_is_installed_once_and_with_hashes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def runs(command: list[str], **_how: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("MARS_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", runs)
    said: list[str] = []
    install.fetch(said.append)
    install.fetch(said.append)
    assert len(commands) == 2
    assert "--require-hashes" in commands[1]
    assert said == [
        f"Installing Quix Streams {install.version()} into {install.location()}, this once."
    ]
    assert list((tmp_path / "peers").iterdir()) == [install.location()]


def test_what_cannot_be_installed_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(command: list[str], **_how: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "No matching distribution.\n")

    monkeypatch.setenv("MARS_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(
        BenchError, match=r"^Quix Streams is not installed: No matching dist.* Check"
    ):
        install.fetch(lambda _: None)
    assert list((tmp_path / "peers").iterdir()) == []


def test_processes_have_state_of_their_own_and_the_same_work(tmp_path: Path) -> None:
    first, second = (_Process(number, tmp_path, {"name": "run_1"}) for number in (1, 2))
    asked = [json.loads(process.command()[-1]) for process in (first, second)]
    assert [each["name"] for each in asked] == ["run_1", "run_1"]
    assert asked[0]["state"] != asked[1]["state"]


def test_a_row_is_taken_when_it_was_regrouped_and_counted(tmp_path: Path) -> None:
    processes = [_Process(number, tmp_path, {}) for number in (1, 2)]
    side = QuixSide(tmp_path, commit_interval_s=1.0, _running=processes)
    assert side.messages_taken() == 0
    for process, messages in zip(processes, (70, 30), strict=True):
        path = json.loads(process.command()[-1])["count"]
        Path(path).write_text(str(messages), "utf-8")
    assert side.messages_taken() == 50


def asking(outcome: object) -> Topics:
    """Asks a broker that answers, or refuses, so."""
    answer: Future[object] = Future()
    answer.set_exception(outcome) if isinstance(outcome, Exception) else answer.set_result(outcome)
    topics = Topics.__new__(Topics)
    topics._admin = SimpleNamespace(describe_consumer_groups=lambda _: {"run_1": answer})  # type: ignore[assignment]
    return topics


def group(state: ConsumerGroupState) -> object:
    return SimpleNamespace(state=state, members=["one", "two"])


def test_members_count_once_partitions_are_shared_out() -> None:
    assert asking(group(ConsumerGroupState.STABLE)).members("run_1") == 2
    assert asking(group(ConsumerGroupState.PREPARING_REBALANCING)).members("run_1") == 0


def test_broker_that_is_not_ready_for_groups_yet_has_no_members() -> None:
    late = KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
    assert asking(late).members("run_1") == 0
    forbidden = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException):
        asking(forbidden).members("run_1")
