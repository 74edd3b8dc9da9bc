"""Who asks: known in every service that a request reaches, without being handed through all of
them.

The gate (`api.gate`) sets the caller for as long as a request takes, in the request's own context.
Code that acts for a user asks `caller()`; where no request is being answered there is none, and
what needs one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from mars.access import EVERYTHING, matches
from mars.errors import Forbidden
from mars.ports import KeyId, Role

PATTERNS_SHOWN = 10
"""Of a key's patterns in a message."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What the one who asks may do; `key` is None where nobody is asked for a key."""

    role: Role
    key: KeyId | None = None
    reads: tuple[str, ...] = EVERYTHING
    writes: tuple[str, ...] = EVERYTHING

    def check_read(self, topic: str) -> None:
        """Raises Forbidden unless tasks and queries of this caller may read a topic."""
        if not matches(self.reads, topic):
            raise Forbidden(self._sentence("read", f"topic {topic}", self.reads))

    def check_write(self, topic: str) -> None:
        """Raises Forbidden unless tasks and queries of this caller may write to a topic."""
        if not matches(self.writes, topic):
            raise Forbidden(self._sentence("write to", f"topic {topic}", self.writes))

    def sees_rows(self, topic: str) -> bool:
        """Whether this caller may look at rows of a topic, as a preview shows them."""
        return self.role.covers(Role.OPERATOR) and matches(self.reads, topic)

    def check_files(self, location: str) -> None:
        """Raises Forbidden unless tasks and queries of this caller may read files there."""
        climbs = self.reads != EVERYTHING and ".." in location.split("/")
        if climbs or not matches(self.reads, location):
            raise Forbidden(self._sentence("read", f"files at {location[:200]!a}", self.reads))

    def _sentence(self, verb: str, what: str, patterns: Sequence[str]) -> str:
        shown = ", ".join(patterns[:PATTERNS_SHOWN]) or "nothing"
        more = "" if len(patterns) <= PATTERNS_SHOWN else f" and {len(patterns) - PATTERNS_SHOWN}"
        return (
            f"tasks and queries of key {self.key} may not {verb} {what}, only {shown}{more}: use "
            "another key, or ask an admin for one"
        )


ANYBODY = Caller(Role.ADMIN)
"""Where access is off, whoever can connect may do everything."""

_CALLER: ContextVar[Caller] = ContextVar("caller")


def caller() -> Caller:
    """Who asks. Raises Forbidden where no request is being answered."""
    try:
        return _CALLER.get()
    except LookupError:
        raise Forbidden("nobody asks for this: it is done for a request only") from None


@contextmanager
def acting(who: Caller) -> Iterator[None]:
    """Let `who` be the caller."""
    token = _CALLER.set(who)
    try:
        yield
    finally:
        _CALLER.reset(token)
