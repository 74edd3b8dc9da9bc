"""Answers in parts: what a server that does not answer would have said is left out, and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from mars.core.errors import Unavailable

Answer = TypeVar("Answer")

Away = Callable[[], Mapping[str, Unavailable]]
"""Says which servers are known to be away."""


class Missing:
    """Collects which servers did not answer; each is asked no more after its first failure.

    `away` are those known to be away, with what is known: nobody waits for their time-outs. To be
    used in one thread; what it begins, it asks in others.
    """

    def __init__(self, away: Mapping[str, Unavailable]) -> None:
        self._errors = dict(away)

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence per server that did not answer."""
        return tuple(str(self._errors[service]) for service in sorted(self._errors))

    @property
    def services(self) -> tuple[str, ...]:
        """The names of these servers."""
        return tuple(sorted(self._errors))

    def ask(self, service: str, call: Callable[[], Answer]) -> Answer | None:
        """What `call` answers, or None if the server is away (now or earlier)."""
        if service in self._errors:
            return None
        try:
            return call()
        except Unavailable as error:
            self._errors[service] = error
            return None

    def begin(self, service: str, call: Callable[[], Answer]) -> Callable[[], Answer | None]:
        """Ask while other things are asked; what this returns waits for the answer.

        began    ├─ends──┤
        asked    ├─head─┤├─logs─┤├─progress─┤├ends
        """
        if service in self._errors:
            return lambda: None
        began: Future[Answer] = Future()
        # Nothing that is asked is worth a wait when the process ends.
        Thread(target=_answer, args=(began, call), name=f"ask {service}", daemon=True).start()
        return lambda: self.ask(service, began.result)


def _answer(began: Future[Answer], call: Callable[[], Answer]) -> None:
    try:
        answer = call()
    except BaseException as error:  # noqa: BLE001 -- it is raised in who waits for the answer
        began.set_exception(error)
    else:
        began.set_result(answer)
