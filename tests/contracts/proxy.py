"""A TCP proxy between a client and its server, which can cut a connection or let it stand still."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading

CHUNK_BYTES = 65_536


class Proxy:
    """Forwards connections to `port` of this machine; its own port is `self.port`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.RLock()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._refusing = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End all connections, and each new one at once."""
        with self._lock:
            self._refusing = True
            for one in list(self._peers):
                self._end(one)

    def stall(self) -> None:
        """Forward nothing more; connections stay as they are."""
        self._flowing.clear()

    def heal(self) -> None:
        """Forward again, new connections too."""
        self._refusing = False
        self._flowing.set()

    def close(self) -> None:
        """End everything."""
        self._closing = True
        self.cut()
        self._flowing.set()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            pass  # wakes the thread
        self._thread.join()
        self._selector.close()
        self._listener.close()

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                self._flowing.wait()
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket):
                        self._forward(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._refusing:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        if source not in self._peers:
            return
        try:
            data = source.recv(CHUNK_BYTES)
            if data:
                self._peers[source].sendall(data)
                return
        except OSError:
            pass  # one side has gone: so does the other
        self._end(source)

    def _end(self, one: socket.socket) -> None:
        other = self._peers.pop(one, None)
        if other is None:
            return
        self._peers.pop(other, None)
        for end in (one, other):
            self._selector.unregister(end)
            end.close()
