"""Requests to one API, with what goes wrong as errors of Mars: all that the client has of httpx."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

import httpx

from mars.client.wire import PORT_MAX, authorization, no_address, refusal, shown
from mars.core.errors import Rejected, Unavailable

CONNECT_TIMEOUT_S = 5.0
"""For a connection: longer means that nobody listens."""


def base_url(address: str) -> httpx.URL:
    """An API's address. Raises SettingsError, which names it, where it cannot be one."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise no_address(address, str(error)) from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise no_address(address, "it does not begin with http:// or https:// and a host")
    if url.port is not None and not 0 < url.port <= PORT_MAX:
        raise no_address(address, f"ports are 1 to {PORT_MAX}")
    return url


class Connection:
    """A pool of connections to one API; close it."""

    def __init__(
        self,
        address: str,
        *,
        key: str | None,
        timeout_s: float,
        transport: httpx.BaseTransport | None,
    ) -> None:
        self.address = address
        self._url = shown(address)
        self._timeout_s = timeout_s
        self._http = httpx.Client(
            base_url=base_url(address),
            headers=authorization(key),
            timeout=self._limits(timeout_s),
            transport=transport,
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """The answer. Raises what its problem document stands for, and Unavailable."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        with self._talking():
            response = self._http.request(
                method,
                path,
                content=None if body is None else json.dumps(body).encode(),
                params=given or None,
                headers={"Content-Type": "application/json", **(headers or {})},
                timeout=self._limits(self._timeout_s if timeout_s is None else timeout_s),
            )
        if response.is_error:
            raise refusal(response)
        return response

    def look(self, path: str) -> httpx.Response:
        """The answer, whatever its status. Raises Unavailable."""
        with self._talking():
            return self._http.get(path)

    def pieces(
        self, path: str, *, headers: Mapping[str, str], silence_s: float
    ) -> Generator[bytes, None, None]:
        """The body as it comes, with no pause longer than `silence_s`. Raises as `send` does."""
        request = self._http.build_request(
            "GET", path, headers=headers, timeout=self._limits(silence_s)
        )
        with self._talking():
            response = self._http.send(request, stream=True)
            try:
                if response.is_error:
                    response.read()
                    raise refusal(response)
                yield from response.iter_bytes()
            finally:
                response.close()

    def _limits(self, timeout_s: float) -> httpx.Timeout:
        """For an answer within so long; a connection takes no longer than any other one may."""
        return httpx.Timeout(timeout_s, connect=min(self._timeout_s, CONNECT_TIMEOUT_S))

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            raise Unavailable("api", f"{self._url} did not answer in time") from error
        except httpx.TransportError as error:
            raise Unavailable(
                "api",
                f"{self._url} cannot be reached ({error}); see that an API runs there, or name "
                "another (--api, MARS_API or url=)",
            ) from error
        except httpx.InvalidURL as error:
            raise Rejected(f"this request has no valid address ({error})") from error
