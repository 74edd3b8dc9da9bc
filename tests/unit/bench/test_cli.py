"""What `mars bench` accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli import PEER_NAMES
from bench.peers import PEERS
from bench.session import Finished, Latency, Throughput
from mars.cli import EXIT_USAGE, run
from mars.core.plan import Format


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What would be measured; nothing is."""
    seen: list[object] = []

    def note(what: object, _say: object) -> Finished:
        seen.append(what)
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.session.throughput_session", note)
    monkeypatch.setattr("bench.session.latency_session", note)
    return seen


def test_throughput_passes_its_options_on(asked: list[object], tmp_path: Path) -> None:
    options = ["--format", "ndjson", "--rows", "200000", "--mappers", "1", "--batch-rows", "500"]
    options += ["--tracker"]
    run(["bench", "throughput", *options, "--peer", "flink", "--results", str(tmp_path)])
    assert asked == [
        Throughput(
            format=Format.NDJSON, rows=200_000, mappers=1, batch_rows=500, peer="flink",
            tracker=True, folder=tmp_path,
        )
    ]  # fmt: skip


def test_every_peer_can_be_asked_for() -> None:
    assert set(PEER_NAMES) == PEERS.keys()


@pytest.mark.parametrize(("text", "seconds"), [("10s", 10), ("1 min", 60), ("1h", 3600)])
def test_windows_are_durations(asked: list[object], text: str, seconds: int) -> None:
    run(["bench", "latency", "--window", text, "--seconds", "4000"])
    assert isinstance(asked[0], Latency)
    assert asked[0].plan.window_s == seconds


@pytest.mark.parametrize(
    "arguments",
    [
        ["throughput", "--rows", "10"],
        ["throughput", "--peer", "storm"],
        ["throughput", "--mappers", "0"],
        ["throughput", "--sweep", "--batch-rows", "500"],
        ["latency", "--window", "soon"],
        ["latency", "--window", "0s"],
        ["latency", "--window", "10s", "--seconds", "5"],
        ["latency", "--rate", "0"],
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(
    asked: list[object], arguments: list[str]
) -> None:
    assert run(["bench", *arguments]) == EXIT_USAGE
    assert asked == []
