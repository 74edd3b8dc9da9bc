"""Equal requests that come at the same moment get one answer, made once.

    requests    a   b c       d        all for the same
    made        ├─a─────┤├─b c───┤├─d──┤

An answer is made after each of the requests that get it has come: nobody gets one that is older
than the question. What is asked for must not depend on who asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from api.turns import Turns

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A body, and what else the answer says."""

    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """As a response of its own."""
        return Response(self.body, media_type=self.media_type, headers=dict(self.headers))


def rendered(answer: BaseModel, headers: Mapping[str, str] | None = None) -> Rendered:
    """An answer as JSON; it was checked when it was made, and is not checked again."""
    return Rendered(answer.model_dump_json(by_alias=True).encode(), headers=headers or {})


class Answering:
    """Makes answers in threads. To be used in one event loop."""

    def __init__(self) -> None:
        self._next: dict[Hashable, asyncio.Task[Rendered]] = {}
        self._making: dict[Hashable, asyncio.Task[Rendered]] = {}

    async def answer(
        self, question: Hashable, make: Callable[[], Rendered], turns: Turns | None = None
    ) -> Response:
        """What `make` gives when it is called after this, in its turn if it is to wait for one.

        Raises what it raises, and TooMany.
        """
        coming = self._next.get(question)
        if coming is None:
            coming = asyncio.create_task(self._make(question, make, turns))
            coming.add_done_callback(_heard)
            self._next[question] = coming
        # Others want it, too: it is made even if this one has gone.
        return (await asyncio.shield(coming)).response()

    async def _make(
        self, question: Hashable, make: Callable[[], Rendered], turns: Turns | None
    ) -> Rendered:
        before = self._making.get(question)
        if before is not None:
            await asyncio.wait([before])
        own = self._making[question] = self._next.pop(question)
        try:
            return await (run_in_threadpool(make) if turns is None else turns.take(make))
        finally:
            if self._making.get(question) is own:
                del self._making[question]


def _heard(made: asyncio.Task[Rendered]) -> None:
    """Of an error that nobody waits for any more nothing is said."""
    if not made.cancelled():
        made.exception()
