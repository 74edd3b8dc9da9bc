"""Waiting for what an answer says, or until somebody gives up."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import Event
from time import monotonic, sleep

from mars.client.wire import AnswerType
from mars.core.errors import WaitedTooLong

WAIT_S = 60.0
"""For waiting, unless told otherwise."""

POLL_S = 0.3
"""Between two looks while waiting."""

GIVEN_UP: ContextVar[Event | None] = ContextVar("given_up", default=None)
"""Set by who waits in another thread, and may stop to."""


def waited(
    what: Callable[[], str], look: Callable[[], AnswerType | None], timeout_s: float | None
) -> AnswerType:
    """What `look` gives once it is something. Raises WaitedTooLong."""
    deadline = None if timeout_s is None else monotonic() + timeout_s
    given_up = GIVEN_UP.get()
    while (found := look()) is None:
        if deadline is not None and monotonic() >= deadline:
            raise WaitedTooLong(f"Waited {timeout_s:g} s for {what()}.")
        if given_up is None:
            sleep(POLL_S)
        elif given_up.wait(POLL_S):
            raise WaitedTooLong(f"Nobody waits for {what()} any more.")
    return found
