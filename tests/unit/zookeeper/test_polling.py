"""How the ZooKeeper client waits for its sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from mars.adapters.zookeeper.polling import PollingHandler

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_can_be_read_or_written_is_named(pair: Pair) -> None:
    handler, (ours, theirs) = PollingHandler(), pair
    assert handler.select([ours], [ours], [], 0) == ([], [ours], [])

    theirs.send(b"x")

    assert handler.select([ours, theirs], [], [], 5) == ([ours], [], [])
    assert handler.select([ours], [ours], [], None) == ([ours], [ours], [])


def test_nothing_comes_of_a_wait_that_is_too_short(pair: Pair) -> None:
    assert PollingHandler().select([pair[0]], [], [], 0.001) == ([], [], [])


def test_who_waits_for_a_socket_that_was_closed_by_the_other_side_is_told(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()

    assert PollingHandler().select([ours], [], [], 5) == ([ours], [], [])
    assert ours.recv(1) == b""


def test_closed_sockets_and_negative_time_outs_are_refused_as_by_kazoo(pair: Pair) -> None:
    handler, (ours, theirs) = PollingHandler(), pair
    with pytest.raises(ValueError, match="non-negative"):
        handler.select([ours], [], [], -1)
    ours.close()
    with pytest.raises(ValueError, match="negative"):
        handler.select([ours, theirs], [], [], 0)
