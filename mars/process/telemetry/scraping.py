"""The server that Prometheus asks: a small one that nobody can keep busy.

Each request has a thread. Where there are too many, the oldest is cut off. So whoever leaves
requests half sent cuts off himself, and a scrape, which takes milliseconds, is always answered.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

CONNECTIONS_MAX = 20
"""Requests at a time: Prometheus has one."""

SILENCE_S = 10.0
"""Longest wait for the next bytes of a request."""


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a scrape every few seconds is no news."""


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Answers on an address, from a thread of its own, until it is closed. Raises OSError."""

    daemon_threads = True

    def __init__(self, host: str, port: int, application: Callable[..., Any]) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._open: dict[int, socket.socket] = {}
        self._changing = threading.Lock()
        super().__init__((host, port), _Handler)
        self.set_app(application)
        self._thread = threading.Thread(target=self.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin with a request; where there are too many, cut off the oldest."""
        with self._changing:
            self._open[id(request)] = request
            oldest = next(iter(self._open)) if len(self._open) > CONNECTIONS_MAX else None
            if oldest is not None:
                _cut_off(self._open.pop(oldest))
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It has ended."""
        with self._changing:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever sends half a request, or goes away, is no news either."""

    def close(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()
        self._thread.join()


def _cut_off(request: socket.socket) -> None:
    """Wake the thread that waits for its bytes; that thread closes it."""
    with suppress(OSError):  # the other side has gone already
        request.shutdown(socket.SHUT_RDWR)
