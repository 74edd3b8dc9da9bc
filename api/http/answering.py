"""Equal requests that come at the same moment get one answer, made once.

    requests    a   b c         d             all for the same
    made        ├─a─────┤├─b c─────┤  ├─d─────┤

An answer is made after each of the requests that get it has come: nobody gets one that is older
than the question. What is asked for must not depend on who asks.

Clients that were answered together ask again nearly together. So who comes just after an answer
waits a moment for the others, unless there are none: else the first of them would be answered
alone, and all others would wait for two answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api.http.turns import Turns
from mars.client.answers import Answer

JSON = "application/json"

TOGETHER_S = 0.002
"""How long after an answer the next one waits for those who may ask again."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A body, and what else the answer says."""

    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    status: HTTPStatus = HTTPStatus.OK

    def response(self) -> Response:
        """As a response of its own."""
        return Response(
            self.body, self.status, media_type=self.media_type, headers=dict(self.headers)
        )


def rendered(
    answer: Answer,
    headers: Mapping[str, str] | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Rendered:
    """An answer as JSON."""
    return Rendered(msgspec.json.encode(answer), headers=headers or {}, status=status)


def respond(
    answer: Answer,
    headers: Mapping[str, str] | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    """An answer as a response."""
    return rendered(answer, headers, status).response()


def event(name: str, answer: Answer | Mapping[str, object]) -> bytes:
    """An answer, or the members of one, as a server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(answer))


@dataclass(slots=True)
class _Round:
    """One answer, and how many have asked for it."""

    answer: asyncio.Task[Rendered]
    asked: int = 0


class Responder:
    """Makes answers in threads. To be used in one event loop."""

    def __init__(self) -> None:
        self._next: dict[Hashable, _Round] = {}
        self._last: dict[Hashable, _Round] = {}
        """What is being made, and for a moment what was made."""

    async def answer(
        self, question: Hashable, make: Callable[[], Rendered], turns: Turns | None = None
    ) -> Response:
        """What `make` gives when it is called after this, in its turn if it is to wait for one.

        Raises what it raises, and TooMany.
        """
        coming = self._next.get(question)
        if coming is None:
            coming = _Round(asyncio.create_task(self._make(question, make, turns)))
            coming.answer.add_done_callback(_heard)
            self._next[question] = coming
        coming.asked += 1
        # Others want it, too: it is made even if this one has gone.
        return (await asyncio.shield(coming.answer)).response()

    async def _make(
        self, question: Hashable, make: Callable[[], Rendered], turns: Turns | None
    ) -> Rendered:
        last = self._last.get(question)
        if last is not None:
            await asyncio.wait([last.answer])
            if last.asked > 1 or self._next[question].asked > 1:
                await asyncio.sleep(TOGETHER_S)
        own = self._last[question] = self._next.pop(question)
        try:
            return await (run_in_threadpool(make) if turns is None else turns.take(make))
        finally:
            asyncio.get_running_loop().call_later(TOGETHER_S, self._forget, question, own)

    def _forget(self, question: Hashable, made: _Round) -> None:
        if self._last.get(question) is made:
            del self._last[question]


def _heard(made: asyncio.Task[Rendered]) -> None:
    """Of an error that nobody waits for any more nothing is said."""
    if not made.cancelled():
        made.exception()
