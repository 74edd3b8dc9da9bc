"""Request bodies: strict JSON objects of a limited size, checked against a schema.

bytes ──limit──▶ text ──strict JSON──▶ object ──schema──▶ model
      413              400                    422
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.errors import NotAnObject, TooLarge, WrongMembers, member_problems, problem_of, render
from api.http.places import Places
from mars.core.errors import Rejected

INTEGER_DIGITS_MAX = 40
"""Digits of an integer in a body: no member takes more than 64 bits, and Python's own limit
(4,300) would end in an error that names no reason."""

INLINE_BYTES_MAX = 16 * 1024
"""Bodies up to this size are read where they come in, in less than a millisecond; larger ones in a
thread, so that they do not hold up all others."""

PROBLEMS_MAX = 1_000
"""Members that are wrong which an answer names; of more it says how many. Each takes a kilobyte."""

Model = TypeVar("Model", bound=BaseModel)


BODIES_AT_ONCE = 4
"""Of the longest bodies, or as many bytes in shorter ones, that requests under way have sent. As
objects they take up to 25 times as much: a hundred megabytes of a process that takes some 150."""

PLACE_BYTES = 1024
"""Of the bodies under way one place."""


class Room:
    """How long a body may be, and how many of the longest may be under way at the same time.

    With `at_once` of 1 a single key may have all of it.
    """

    def __init__(self, bytes_max: int, at_once: int = BODIES_AT_ONCE) -> None:
        self.bytes_max = bytes_max
        count = at_once * _places_of(bytes_max)
        self.places = Places(
            count,
            f"{at_once * bytes_max} bytes of bodies are under way: try again soon",
            share=count if at_once == 1 else None,
        )

    def too_large(self) -> TooLarge:
        """What is said of a longer one."""
        return TooLarge(f"a body may have at most {self.bytes_max} bytes")


class BodyLimit:
    """ASGI middleware: refuse bodies over `bytes_max`, announced or not, without reading on.

    And those for which there is no room beside the bodies that have come, see BODIES_AT_ONCE.
    `larger` has the requests, by method and path, that have a room of their own.
    """

    def __init__(
        self, app: ASGIApp, bytes_max: int, larger: Mapping[tuple[str, str], int] | None = None
    ) -> None:
        self._app = app
        self._room = Room(bytes_max)
        self._rooms = {
            request: Room(max(bytes_max, longest), at_once=1)
            for request, longest in (larger or {}).items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        room = self._rooms.get((scope["method"], scope["path"]), self._room)
        if self._announced(scope) > room.bytes_max:
            await render(problem_of(room.too_large()))(scope, receive, send)
            return
        with ExitStack() as places:
            await self._app(scope, _counting(room, receive, places), send)

    @staticmethod
    def _announced(scope: Scope) -> int:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                return int(value[:INTEGER_DIGITS_MAX])
        return 0


def _counting(room: Room, receive: Receive, places: ExitStack) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        before, seen = seen, seen + len(message.get("body", b""))
        if seen > room.bytes_max:
            raise room.too_large()
        price = _places_of(seen) - _places_of(before)
        if price:
            places.callback(room.places.take(price))
        return message

    return counted


def _places_of(size: int) -> int:
    return -(-size // PLACE_BYTES)


def body_of(
    model: type[Model], bytes_max: int | None = None
) -> Callable[[Request], Awaitable[Model]]:
    """A dependency that reads the body as `model`; `bytes_max` is below the limit of all bodies.

    Raises NotAnObject, WrongMembers, Rejected, TooLarge.
    """

    async def read(request: Request) -> Model:
        try:
            raw = await request.body()
        except ClientDisconnect:
            raise NotAnObject("the client went away before the body was complete") from None
        if bytes_max is not None and len(raw) > bytes_max:
            raise TooLarge(f"a body may have at most {bytes_max} bytes here")
        if len(raw) <= INLINE_BYTES_MAX:
            return _as(model, raw)
        return await run_in_threadpool(_as, model, raw)

    return read


def _as(model: type[Model], raw: bytes) -> Model:
    try:
        return model.model_validate(parse_object(raw))
    except ValidationError as error:
        if error.error_count() > PROBLEMS_MAX:
            text = f"{error.error_count()} members are unknown, missing or of a wrong type"
            raise Rejected(text) from None
        raise WrongMembers(
            member_problems(error.errors(include_url=False, include_input=False))
        ) from None


def parse_object(raw: bytes) -> dict[str, object]:
    """Strict JSON (RFC 8259, I-JSON): no NaN, no member twice, no lone surrogates.

    Raises NotAnObject if it is not JSON or not an object, Rejected if it is JSON that means
    nothing here.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotAnObject(f"the body is not UTF-8: byte {error.start}") from None
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
            object_pairs_hook=_unique_members,
        )
    except json.JSONDecodeError as error:
        raise NotAnObject(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise _too_deep(text) from None
    if not isinstance(value, dict):
        raise NotAnObject("the body is JSON, but not an object: {...} is expected")
    _refuse_lone_surrogates(text, value)
    return value


def _too_deep(text: str) -> NotAnObject | Rejected:
    if text.lstrip().startswith("{"):
        return Rejected("the body is nested too deep")
    return NotAnObject("the body is nested too deep, and not an object: {...} is expected")


def _refuse_constant(name: str) -> NoReturn:
    raise NotAnObject(f"the body is not JSON: {name} is not a JSON value")


def _parse_int(digits: str) -> int:
    if len(digits) > INTEGER_DIGITS_MAX:
        raise Rejected(f"the integer {digits[:10]}... has more than {INTEGER_DIGITS_MAX} digits")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise Rejected(f"the number {digits[:10]}... is too large")
    return value


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice, _times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Rejected(f"member {twice[:100]!a} is given twice: leave one out")
    return members


def _refuse_lone_surrogates(text: str, value: object) -> None:
    r"""`"\ud800"` is JSON, but no text: it could neither be stored nor be answered."""
    if "\\u" not in text:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise Rejected(
            "the body holds half of a surrogate pair, which is not a character"
        ) from None
