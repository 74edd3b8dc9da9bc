"""What all calls have in common: a connection, and how an answer becomes a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from mars.client.wire import AnswerType, decode

if TYPE_CHECKING:
    from mars.client.connection import Connection


class Calls:
    """Some calls of a client; `timeout_s` is its own limit for one answer."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def _call(
        self,
        method: str,
        path: str,
        kind: type[AnswerType],
        *,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> AnswerType:
        answer = self._connection.send(
            method, path, body=body, query=query, headers=headers, timeout_s=timeout_s
        )
        return decode(answer, kind)


def window_query(
    start_ms: int | None, end_ms: int | None, partition: int | None, number: int | None
) -> dict[str, int | None]:
    """How a request names a window: by its times or, where it counts rows, by its number."""
    return {
        "window_start": start_ms,
        "window_end": end_ms,
        "partition": partition,
        "window_number": number,
    }


def segment(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def task_path(name: str) -> str:
    """Where a task is."""
    return f"/v1/tasks/{segment(name)}"
