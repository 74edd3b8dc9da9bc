"""Ports that nobody else takes before they are used."""

from __future__ import annotations

import random
import socket
import subprocess
import sys

import pytest

from mars.local import network
from mars.local.network import HOST, PORTS_KEPT, free_port, is_free

CHOOSE = """
import random, sys
from mars.local.network import free_port
random.seed(7)
print(free_port(), flush=True)
sys.stdin.read()
"""
"""A process that chooses like its twin, and lives until it is told to end."""


def test_processes_that_choose_alike_get_different_ports() -> None:
    with (
        _chooser() as first,
        _chooser() as second,
    ):
        ports = [_line(first), _line(second)]
        first.communicate("")
        second.communicate("")
    assert len(set(ports)) == 2


def _chooser() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHOOSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_port_that_was_chosen_is_not_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is taken on this machine: each number is drawn twice, one after the other."""
    randint = random.randint
    again: list[int] = []

    def draw(low: int, high: int) -> int:
        if again:
            return again.pop()
        again.append(randint(low, high))
        return again[0]

    monkeypatch.setattr(random, "randint", draw)
    assert free_port() != free_port()


def test_a_server_can_listen_on_it_at_once() -> None:
    with socket.create_server((HOST, free_port())) as server:
        assert not is_free(server.getsockname()[1])


def test_only_the_last_ports_are_kept() -> None:
    for _ in range(PORTS_KEPT + 3):
        free_port()
    assert len(network._kept) == PORTS_KEPT
