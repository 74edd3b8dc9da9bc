"""How the ZooKeeper client waits for its sockets."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable
from typing import Protocol

from kazoo.handlers.threading import SequentialThreadingHandler

_MS_PER_S = 1_000


class HasFileno(Protocol):
    """A socket."""

    def fileno(self) -> int:
        """Its file descriptor."""


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # it has no types
    """kazoo's handler with a `select` of one system call.

    Its own makes an epoll for each wait, and closes it: with five waits for each request that was
    nearly half of the CPU time of a request.
    """

    def select(
        self,
        readers: Iterable[HasFileno],
        writers: Iterable[HasFileno],
        _: Iterable[HasFileno],
        timeout: float | None = None,
    ) -> tuple[list[HasFileno], list[HasFileno], list[HasFileno]]:
        """Those that can be read and those that can be written, within `timeout` seconds.

        One that has failed can be both: whoever tries is told. Raises ValueError for one that is
        closed, and for a negative time-out.
        """
        if timeout is not None and timeout < 0:
            raise ValueError("timeout must be non-negative")
        reading = {one.fileno(): one for one in readers}
        writing = {one.fileno(): one for one in writers}
        poll = select.poll()
        for number in reading.keys() | writing.keys():
            wanted = select.POLLIN if number in reading else 0
            poll.register(number, wanted | (select.POLLOUT if number in writing else 0))
        found = poll.poll(None if timeout is None else math.ceil(timeout * _MS_PER_S))
        return (
            [
                reading[number]
                for number, event in found
                if event & ~select.POLLOUT and number in reading
            ],
            [
                writing[number]
                for number, event in found
                if event & ~select.POLLIN and number in writing
            ],
            [],
        )
