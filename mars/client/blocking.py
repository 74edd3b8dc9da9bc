"""The REST API as typed calls; what the command line talks through.

Every call raises `Unavailable("api", ...)` where the API does not answer, and the `RequestError` of
its problem document where it refuses: NotFound, Conflict, VersionMismatch, SqlError, Rejected.
Times are epoch milliseconds. Answers may grow members that this release does not know.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from mars.client.calls.inside import InsideCalls
from mars.client.calls.keys import KeyCalls
from mars.client.calls.queries import QueryCalls
from mars.client.calls.results import ResultCalls
from mars.client.calls.service import ServiceCalls
from mars.client.calls.streams import StreamCalls
from mars.client.calls.tasks import TaskCalls
from mars.client.cluster_file import find_api
from mars.core.settings import surroundings

if TYPE_CHECKING:
    import httpx

URL = "http://127.0.0.1:8080"
"""Where `mars up` has its API unless told otherwise."""

TIMEOUT_S = 30.0
"""For one answer, unless told otherwise: a change of a task may wait 5 s for the leader, a look
into a large log longer.
"""


class Client(StreamCalls, TaskCalls, InsideCalls, ResultCalls, QueryCalls, KeyCalls, ServiceCalls):
    """One connection pool to one API. Use it as a context manager, or close it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url` is the API's [default: MARS_API, else of the cluster that runs on .mars, else URL].

        `key` opens it, if it asks for one [default: MARS_KEY]. `timeout_s` is the longest wait for
        an answer; `verify` and `tail` take longer by nature. Raises SettingsError.
        """
        # httpx is half of what this module would load: a program pays for it once it asks.
        from mars.client.connection import Connection  # noqa: PLC0415

        connection = Connection(
            find_api(url) or URL,
            key=key or surroundings().api_key,
            timeout_s=timeout_s,
            transport=transport,
        )
        super().__init__(connection, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()
