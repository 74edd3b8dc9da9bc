"""Who asks: known in every service that a request reaches, without being handed through all of
them.

The gate (`api.gate`) sets the caller for as long as a request takes, in the request's own context.
Code that acts for a user asks `caller()`; where no request is being answered there is none, and
what needs one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from mars.core.errors import Forbidden
from mars.core.locations import is_for_files, matches_files
from mars.protocol.ports import KeyId, Role
from mars.protocol.ports.access import EVERYTHING, matches

PATTERNS_SHOWN = 10
"""Of a key's patterns in a message."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What the one who asks may do; `key` is None where nobody is asked for a key."""

    role: Role
    key: KeyId | None = None
    reads: tuple[str, ...] = EVERYTHING
    writes: tuple[str, ...] = EVERYTHING

    def may_read(self, topic: str) -> bool:
        """Whether tasks and queries of this caller may read a topic."""
        return matches(self.reads, topic)

    def check_read(self, topic: str) -> None:
        """Raises Forbidden unless `may_read`."""
        if not self.may_read(topic):
            raise Forbidden(self._sentence("read", f"topic {topic}", self.reads))

    def check_write(self, topic: str) -> None:
        """Raises Forbidden unless tasks and queries of this caller may write to a topic."""
        if not matches(self.writes, topic):
            raise Forbidden(self._sentence("write to", f"topic {topic}", self.writes))

    def sees_rows(self, topic: str) -> bool:
        """Whether this caller may look at rows of a topic, as a preview shows them."""
        return self.role.covers(Role.OPERATOR) and self.may_read(topic)

    def sees_files(self, location: str) -> bool:
        """Whether tasks and queries of this caller may read files at a canonical location.

        `*` and other patterns of topics open none; an admin could make a key for any.
        """
        return self.role.covers(Role.ADMIN) or matches_files(self.reads, location)

    def sees_rows_of_files(self, locations: Iterable[str]) -> bool:
        """Whether this caller may look at rows of all these files."""
        return self.role.covers(Role.OPERATOR) and all(map(self.sees_files, locations))

    def check_files(self, location: str) -> None:
        """Raises Forbidden unless tasks and queries of this caller may read files there."""
        if not self.sees_files(location):
            patterns = [pattern for pattern in self.reads if is_for_files(pattern)]
            raise Forbidden(self._sentence("read", f"files at {location[:200]!a}", patterns))

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


def asker() -> KeyId | None:
    """The key that asks; None where nobody does, or is asked for one."""
    who = _CALLER.get(None)
    return None if who is None else who.key


@contextmanager
def acting(who: Caller) -> Iterator[None]:
    """Let `who` be the caller."""
    token = _CALLER.set(who)
    try:
        yield
    finally:
        _CALLER.reset(token)
