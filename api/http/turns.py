"""Answers that take long have threads of their own: whoever asks for many holds up nobody else.

requests ──▶ of one key not more than its share, see api.places: 429
         ──▶ at most `at_once` are being made, each in a thread
         ──▶ at most `waiting_max` wait, without a thread
         ──▶ others are refused: 429
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import anyio.to_thread

from api.http.places import Places

Answer = TypeVar("Answer")


class Turns:
    """Makes answers of one kind, some at a time. To be used in one event loop."""

    def __init__(self, what: str, at_once: int, waiting_max: int) -> None:
        self._at_once = at_once
        self._threads = anyio.CapacityLimiter(at_once)
        self._places = Places(
            at_once + waiting_max,
            f"{at_once} {what} are under way and {waiting_max} wait: try again in some seconds",
        )

    async def take(self, make: Callable[[], Answer], price: int = 1) -> Answer:
        """What `make` gives, in a thread, when its turn comes; `price` is in places.

        Raises TooMany.
        """
        give_back = self._places.take(price)
        try:
            return await anyio.to_thread.run_sync(make, limiter=self._threads)
        finally:
            give_back()


@dataclass(frozen=True, slots=True)
class AllTurns:
    """The kinds of answers that may take long; what one holds in memory bounds how many at once."""

    logs: Turns = field(default_factory=lambda: Turns("looks into open windows", 8, 64))
    """Of those only some read a log at the same time, see `api.services.operation.logs`."""

    topics: Turns = field(default_factory=lambda: Turns("searches of topics", 8, 64))
    """A search takes about a second, and a consumer of some megabytes."""

    rows: Turns = field(default_factory=lambda: Turns("answers of queries", 2, 16))
    """An answer may take several times its 64 MiB."""

    checks: Turns = field(default_factory=lambda: Turns("checks of queries", 1, 15))
    """A heavy query keeps a processor busy for some tenths of a second, and takes some megabytes;
    two at once would not be ready sooner."""

    changes: Turns = field(default_factory=lambda: Turns("changes", 8, 64))
    """Of tasks, queries and streams: each compiles, and asks servers that may be away."""

    sets: Turns = field(default_factory=lambda: Turns("sets of tasks", 1, 3))
    """A thousand tasks keep a processor busy for some seconds."""

    verifications: Turns = field(default_factory=lambda: Turns("verifications", 1, 3))
    """Each keeps a processor busy, for up to half a minute."""
