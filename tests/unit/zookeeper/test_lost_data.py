"""A connection to a ZooKeeper that comes back without its data.

Such a server refuses whoever has seen more changes than it holds: so does this one, which knows
nothing else than how to begin a session, and answers that no node is there.
"""

from __future__ import annotations

import gc
import socket
import struct
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kazoo.exceptions import NoNodeError

from mars.adapters.zookeeper.connection import ZooKeeperConnection
from mars.core.settings import ZooKeeperSettings
from tests.contracts.waiting import eventually

SESSION_S = 1.0
PING = -2
NO_NODE = -101


class Server:
    """One ZooKeeper; `zxid` is the number of changes that it has seen."""

    def __init__(self) -> None:
        self.zxid = 7
        self.sessions: list[int] = []
        self.refused = 0
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="fake zookeeper")
        self._thread.start()

    def lose_data(self) -> None:
        """Start again on nothing."""
        self.zxid = 0
        self._drop_all()

    def close(self) -> None:
        """Stop."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        self._drop_all()

    def _drop_all(self) -> None:
        for one in self._open:
            one.close()
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listening.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._begin(client):
                self._answer(client)
        except OSError:
            pass  # the connection was dropped
        finally:
            client.close()

    def _begin(self, client: socket.socket) -> bool:
        _version, seen, timeout_ms, session = struct.unpack("!iqiq", _message(client)[:24])
        if seen > self.zxid:
            self.refused += 1
            return False
        session = session or len(self.sessions) + 1
        self.sessions.append(session)
        answer = struct.pack("!iiqi16s?", 0, timeout_ms, session, 16, b"p" * 16, False)
        client.sendall(struct.pack("!i", len(answer)) + answer)
        return True

    def _answer(self, client: socket.socket) -> None:
        while True:
            (number,) = struct.unpack("!i", _message(client)[:4])
            error = 0 if number == PING else NO_NODE
            answer = struct.pack("!iqi", number, self.zxid, error)
            client.sendall(struct.pack("!i", len(answer)) + answer)


def _message(client: socket.socket) -> bytes:
    (length,) = struct.unpack("!i", _exactly(client, 4))
    return _exactly(client, length)


def _exactly(client: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = client.recv(length - len(found))
        if not piece:
            raise ConnectionError("the client has gone")
        found += piece
    return found


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def connection(server: Server) -> Iterator[ZooKeeperConnection]:
    hosts = f"127.0.0.1:{server.port}"
    made = ZooKeeperConnection.open(ZooKeeperSettings(hosts=hosts, session_timeout_s=SESSION_S))
    yield made
    made.close()


class AtHand:
    """What whoever asks for a node has at hand: a request with its body."""


def _asks_in_vain(connection: ZooKeeperConnection) -> weakref.ref[AtHand]:
    at_hand = AtHand()
    assert connection.found([connection.send(lambda client: client.get_async("/none"))]) == [None]
    with suppress(NoNodeError):
        connection.call(lambda client: client.get_async("/none"), NoNodeError)
    return weakref.ref(at_hand)


def test_what_asks_for_a_node_in_vain_leaves_nothing_to_look_for(
    connection: ZooKeeperConnection,
) -> None:
    """Cycles are looked for rarely; until then a megabyte of each such request stayed."""
    eventually(lambda: connection.ping() is None)
    gc.collect()
    gc.disable()
    try:
        assert _asks_in_vain(connection)() is None
    finally:
        gc.enable()


def test_a_process_that_is_refused_for_what_it_has_seen_begins_a_session_anew(
    server: Server, connection: ZooKeeperConnection
) -> None:
    eventually(lambda: connection.ping() is None)  # now the client knows of changes
    first = connection.link

    server.lose_data()

    eventually(lambda: server.refused > 0)
    eventually(lambda: connection.ping() is None)
    assert connection.link.generation > first.generation
    assert len(set(server.sessions)) == 2
