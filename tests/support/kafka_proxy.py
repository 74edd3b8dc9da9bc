"""A proxy that understands Kafka's frames: it can lose one answer, or hold one request back.

    request    length, api key (2 bytes), version (2), correlation id (4), client id (2 + n), ...
    answer     length, correlation id (4), ...

Brokers tell clients the address to connect to; the proxy puts its own in its place, so no broker
has to be configured for it and each process can have a proxy to itself.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.support.proxy import HOST, Connection, Link, Way

PRODUCE = 0
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
END_TXN = 26

_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")

FORWARD_S = 5.0
"""For the thread that holds a request to send it, once it was told to."""

RELEASE_S = 60.0
"""A request is not held for longer, whatever happens."""


@dataclass(frozen=True, slots=True)
class Request:
    """The header of a request, and all of it: a topic's name is in it as it is."""

    api: int
    version: int
    correlation: int
    client: str
    frame: bytes = field(repr=False)


def parse_request(frame: bytes) -> Request:
    """The header of a frame; `frame` begins with its length."""
    api, version, correlation, size = _HEADER.unpack_from(frame, _LENGTH.size)
    start = _LENGTH.size + _HEADER.size
    client = frame[start : start + max(size, 0)].decode()
    return Request(api, version, correlation, client, frame)


@dataclass(slots=True)
class Held:
    """A request that waits in the proxy; `begun`: partitions were added since, so many times.

    One that is `dropped` goes no further when it is released, and its connection ends.
    """

    request: Request
    begun: int = 0
    dropped: bool = False
    release: threading.Event = field(default_factory=threading.Event)
    forwarded: threading.Event = field(default_factory=threading.Event)


class KafkaLink(Link):
    """A way to the broker at `target`; see `lose_answers` and `hold` for what it can do."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._address = _address(target), _address(self.port)
        self._losing: set[tuple[Connection, int]] = set()
        self._lose: Callable[[Request], bool] | None = None
        self._hold: Callable[[Request], bool] | None = None
        self._then: Callable[[], None] | None = None
        self.lost: list[Request] = []
        self.held: list[Held] = []

    def lose_answers(self, which: Callable[[Request], bool] | None) -> None:
        """Requests that match reach the broker; its answer is lost and the connection cut."""
        self._lose = which

    def hold(
        self, which: Callable[[Request], bool] | None, then: Callable[[], None] | None = None
    ) -> None:
        """Keep the requests that match until the same client is in its next transaction.

        That is when it adds partitions for the second time (the first ones have got their rows by
        then), or ends the transaction if it had only one. What made the proxy let go comes after
        what it held. The process may hang up meanwhile: the request reaches the broker all the
        same, late. `then` is called each time it has been sent, before anything else goes on.
        """
        self._hold, self._then = which, then

    def release_all(self) -> None:
        """Let everything go that is held."""
        self.hold(None)
        for held in self.held:
            held.release.set()

    def drop_all(self) -> None:
        """What is held never arrives, nor what was sent after it: the process is gone."""
        for held in self.held:
            held.dropped = True
        self.release_all()

    def close(self) -> None:
        """End everything."""
        self.release_all()
        super().close()

    def split(self, connection: Connection, way: Way) -> Iterator[bytes]:
        """Whole frames, with their lengths."""
        source = connection.source(way)
        while head := _exactly(source, _LENGTH.size):
            (length,) = _LENGTH.unpack(head)
            yield head + _exactly(source, length)

    def treat(self, connection: Connection, way: Way, piece: bytes) -> bytes | None:
        """Apply what was asked for."""
        if way is Way.UP:
            return self._request(connection, piece)
        return self._answer(connection, piece)

    def _request(self, connection: Connection, frame: bytes) -> bytes | None:
        request = parse_request(frame)
        self._let_go(request)
        if self._hold is not None and self._hold(request):
            held = Held(request)
            self.held.append(held)
            held.release.wait(RELEASE_S)
            if held.dropped:
                connection.close()
                return None
            connection.send(Way.UP, frame)  # even though the process has long hung up
            held.forwarded.set()
            return b""
        if self._lose is not None and self._lose(request):
            self._losing.add((connection, request.correlation))
            self.lost.append(request)
        return frame

    def _let_go(self, request: Request) -> None:
        """Forward what is held of the client, if it is in the middle of its next transaction."""
        for held in self.held:
            if held.request.client != request.client or held.release.is_set():
                continue
            again = held.begun > 0
            held.begun += request.api == ADD_PARTITIONS_TO_TXN
            if again and request.api in {ADD_PARTITIONS_TO_TXN, END_TXN}:
                held.release.set()
                if held.forwarded.wait(FORWARD_S) and self._then is not None:
                    self._then()

    def _answer(self, connection: Connection, frame: bytes) -> bytes | None:
        (correlation,) = _LENGTH.unpack_from(frame, _LENGTH.size)
        if (connection, correlation) in self._losing:
            connection.close()
            return None
        return frame.replace(*self._address)


def _address(port: int) -> bytes:
    """Host and port as answers hold them: a text and four bytes."""
    return HOST.encode() + struct.pack(">i", port)


def _exactly(source: socket.socket, size: int) -> bytes:
    """So many bytes; none at the end of the stream, even in the middle of a frame."""
    found = bytearray()
    while len(found) < size:
        data = source.recv(size - len(found))
        if not data:
            return b""
        found += data
    return bytes(found)
