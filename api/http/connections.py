"""Connections: how many there are, and how long each may take to send a request.

    connected ──HEAD_S──▶ headers ──BODY_S──▶ body ──▶ answer ──▶ idle (uvicorn: 5 s) ──▶ ...

Whoever is too slow is cut off, and so is who takes nothing of an answer any more: half a request
costs its sender nothing, and would hold a file of this process for ever.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_S = 10.0
"""For the headers of a request, from the connection or their first byte on."""

BODY_S = 30.0
"""For its body: the longest is a megabyte."""

UNTAKEN_MS = 60_000
"""How long a client may leave unacknowledged what was sent to it (Linux)."""

FILES_BESIDE = 400
"""Files of this process beside connections: clients of all servers, consumers of event streams."""


# Which class that is, uvicorn chooses when it is imported.
class BoundedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol with these limits; `connections_max` is set by `bounded`."""

    connections_max = 1_000

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, unless there are too many."""
        self._timer: asyncio.TimerHandle | None = None
        self._awaited = ""
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.abort()
            return
        _end_untaken(transport)
        self._await(HEAD)

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a request."""
        super().data_received(data)
        self._await(_awaited_by(self.cycle))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._await(NOTHING)
        super().connection_lost(exc)

    def _await(self, what: str) -> None:
        """What is missing must have come when its time is over; the time does not begin anew."""
        if what == self._awaited:
            return
        self._awaited = what
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if what != NOTHING:
            seconds = HEAD_S if what == HEAD else BODY_S
            self._timer = self.loop.call_later(seconds, self.transport.abort)


HEAD, BODY, NOTHING = "head", "body", "nothing"


def _awaited_by(cycle: Any) -> str:
    """What a connection waits for that has sent something: of uvicorn, the last request on it."""
    if cycle is None or (cycle.response_complete and not cycle.more_body):
        return HEAD
    return BODY if cycle.more_body else NOTHING


def _end_untaken(transport: asyncio.Transport) -> None:
    plain: socket.socket | None = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if plain is not None and option is not None:
        with suppress(OSError):
            plain.setsockopt(socket.IPPROTO_TCP, option, UNTAKEN_MS)


def bounded(connections_max: int) -> type[BoundedProtocol]:
    """The protocol for at most so many connections, fewer where the system gives fewer files."""
    files = _files(connections_max + FILES_BESIDE)
    most = max(1, min(connections_max, files - FILES_BESIDE))
    return type("Bounded", (BoundedProtocol,), {"connections_max": most})


def _files(wanted: int) -> int:
    """How many files this process may open; it asks for as many as it wants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft
