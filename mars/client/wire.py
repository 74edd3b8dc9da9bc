"""How the REST API is addressed, what its answers say, and how its event streams are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

import msgspec

from mars.client.answers import MissedResults, Problem, ResultEvent, WindowSource
from mars.core.errors import (
    Conflict,
    Forbidden,
    NotAuthenticated,
    NotFound,
    Rejected,
    RequestError,
    SettingsError,
    SqlError,
    TooMany,
    Unavailable,
    VersionMismatch,
)

if TYPE_CHECKING:
    import httpx

PORT_MAX = 65_535

ADDRESS_CHARACTERS_SHOWN = 100
"""Of an address that is none: it may be a whole file."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What may stand behind `Bearer` (RFC 6750); whether it is a key that is known, the API says."""

AnswerType = TypeVar("AnswerType")


_REFUSALS: Mapping[int, type[RequestError]] = {
    HTTPStatus.UNAUTHORIZED: NotAuthenticated,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.PRECONDITION_FAILED: VersionMismatch,
    HTTPStatus.TOO_MANY_REQUESTS: TooMany,
}


def no_address(address: str, why: str) -> SettingsError:
    """That this is no address of an API, and why."""
    told = f"{shown(address)[:ADDRESS_CHARACTERS_SHOWN]!r} is not the address of an API: {why};"
    return SettingsError(f"{told} write it as http://127.0.0.1:8080 (--api, MARS_API or url=).")


def shown(address: object) -> str:
    """An address for people: a name or key before its `@` is for the server alone."""
    return re.sub(r"//[^/?#]*@", "//", str(address))


def authorization(key: str | None) -> dict[str, str]:
    """The header that shows a key to the API, without the blanks around it that files leave there.

    Raises SettingsError, which does not repeat the key, where it cannot be one.
    """
    kept = (key or "").strip()
    if not kept:
        return {}
    if _TOKEN.fullmatch(kept) is None:
        raise SettingsError(
            "The API key (MARS_KEY, or key=) has characters that no key has: give it exactly as "
            "`mars key create` printed it."
        )
    return {"Authorization": f"Bearer {kept}"}


def decode(response: httpx.Response, kind: type[AnswerType]) -> AnswerType:
    """The answer. Raises Unavailable where something else than a Mars API has answered."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise Unavailable(
            "api", f"{shown(response.url)} answered something else ({error}); is it a Mars API?"
        ) from error


def refusal(response: httpx.Response) -> RequestError | Unavailable:
    """The error that a problem document stands for."""
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except msgspec.MsgspecError:
        problem = Problem()
    detail = problem.detail or f"{shown(response.url)} answered {response.status_code}"
    if response.is_server_error:
        service = problem.service or "api"
        return Unavailable(service, detail.removeprefix(f"{service} is not available: "))
    if problem.line is not None and problem.column is not None:
        return SqlError(detail, problem.line, problem.column)
    return _REFUSALS.get(response.status_code, Rejected)(detail)


def events(
    pieces: Iterable[bytes],
    reached: Callable[[str], None],
    missed: Callable[[MissedResults], None],
) -> Iterator[ResultEvent]:
    """Server-sent events named `result`, with the `source` before them; others are passed over.

    `reached` is told every id, that of a row when the next one is asked for; `missed` every `gap`.
    """
    event, identity, data = b"", b"", b""
    source: WindowSource | None = None
    for line in _lines(pieces):
        name, _, value = line.partition(b": ")
        match name:
            case b"event":
                event = value
            case b"id":
                identity = value
            case b"data":
                data = value
            case b"":
                place = identity.decode()
                if event == b"result":
                    partition, _, offset = identity.partition(b"/")[0].partition(b":")
                    yield ResultEvent(int(partition), int(offset), data, place, source)
                elif event == b"source":
                    source = msgspec.json.decode(data, type=WindowSource)
                elif event == b"gap":
                    missed(msgspec.json.decode(data, type=MissedResults))
                if place:
                    reached(place)
                event, identity, data = b"", b"", b""
            case _:
                pass


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    r"""Lines that end with `\n` only: a row may hold every other character that ends lines."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
