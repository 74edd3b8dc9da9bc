"""A TCP proxy that can cut, delay, deafen or hold a link between a process and its server.

    process ──▶ Link.port ──▶ Link ──▶ port of the server

Two threads carry each connection, one for each direction, so a direction can be lost or held by
itself. Subclasses look at what passes: `split` cuts the stream into the pieces they understand, and
`treat` decides what becomes of a piece.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from enum import Enum

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536

CONNECT_S = 5.0
"""For the connection to the server; all is on this machine."""


class Way(Enum):
    """A direction of a connection."""

    UP = "from the process to the server"
    DOWN = "from the server to the process"


class Connection:
    """One accepted connection and the one made for it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._sockets = {Way.UP: (client, server), Way.DOWN: (server, client)}
        self.torn = False
        self.ended: set[Way] = set()

    def source(self, way: Way) -> socket.socket:
        """Where bytes of this direction come from."""
        return self._sockets[way][0]

    def send(self, way: Way, data: bytes) -> None:
        """Hand bytes on in this direction."""
        self._sockets[way][1].sendall(data)

    def end(self, way: Way) -> None:
        """Nothing more comes in this direction; the receiver is told."""
        with contextlib.suppress(OSError):
            self._sockets[way][1].shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End everything, for both sides."""
        for one in self._sockets[Way.UP]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class Link:
    """Forwards connections to `target` on this machine, until it is told otherwise."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay_s = 0.0
        self._refusing = False
        self._deaf: set[Way] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._closing = False
        self._lock = threading.Lock()
        self._connections: list[Connection] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept_all, name="link", daemon=True)]
        self._threads[0].start()

    # ------------------------------------------------------------------------------- faults

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._refusing = True
        self.disconnect()

    def disconnect(self) -> None:
        """End all connections; new ones are welcome."""
        with self._lock:
            ended, self._connections = self._connections, []
        for connection in ended:
            connection.close()

    def stall(self) -> None:
        """Forward nothing more; both sides believe that they are connected (half-open)."""
        self._flowing.clear()

    def deafen(self, way: Way) -> None:
        """Lose every byte of one direction; the other direction works."""
        self._deaf.add(way)

    def heal(self) -> None:
        """Forward again. Connections that have lost bytes end: TCP never goes on after a hole."""
        self._refusing = False
        self._deaf.clear()
        self.delay_s = 0.0
        with self._lock:
            torn = [connection for connection in self._connections if connection.torn]
            self._connections = [one for one in self._connections if not one.torn]
        for connection in torn:
            connection.close()
        self._flowing.set()

    def close(self) -> None:
        """End everything and wait for the threads."""
        self._closing = True
        self.cut()
        self._flowing.set()
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
            pass  # wakes the one that accepts
        for thread in self._threads:
            thread.join(CONNECT_S)
        self.disconnect()
        self._listener.close()

    @property
    def connections(self) -> int:
        """How many there are now."""
        with self._lock:
            return len(self._connections)

    # -------------------------------------------------------------------------- for subclasses

    def split(self, connection: Connection, way: Way) -> Iterator[bytes]:
        """The pieces of one direction, in order."""
        while data := connection.source(way).recv(CHUNK_BYTES):
            yield data

    def treat(self, connection: Connection, way: Way, piece: bytes) -> bytes | None:
        """What is forwarded for a piece; None: nothing."""
        return piece

    # ------------------------------------------------------------------------------- carrying

    def _accept_all(self) -> None:
        while not self._closing:
            client, _ = self._listener.accept()
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection((HOST, self.target), CONNECT_S)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._carry(Connection(client, server))

    def _carry(self, connection: Connection) -> None:
        with self._lock:
            self._connections.append(connection)
        for way in Way:
            thread = threading.Thread(target=self._pump, args=(connection, way), daemon=True)
            thread.start()
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]

    def _pump(self, connection: Connection, way: Way) -> None:
        with contextlib.suppress(OSError):  # one side has gone
            for piece in self.split(connection, way):
                self._pass(connection, way, piece)
        connection.end(way)
        with self._lock:
            connection.ended.add(way)
            over = len(connection.ended) == len(Way)
            if over and connection in self._connections:
                self._connections.remove(connection)
        if over:
            connection.close()

    def _pass(self, connection: Connection, way: Way, piece: bytes) -> None:
        treated = self.treat(connection, way, piece)
        if self.delay_s:
            time.sleep(self.delay_s)  # this is the fault, not a way to synchronise
        self._flowing.wait()
        if treated is None:
            return
        if way in self._deaf:
            connection.torn = True
        elif not connection.torn:
            connection.send(way, treated)
