"""Declarations of streams."""

from __future__ import annotations

from collections.abc import Mapping

from mars.client.answers import Stream, Streams
from mars.client.calls.base import Calls, segment


class StreamCalls(Calls):
    """Declare streams, and look at them."""

    def put_stream(self, name: str, declaration: Mapping[str, object]) -> Stream:
        """Declare a stream, or replace its declaration."""
        return self._call("PUT", f"/v1/streams/{segment(name)}", Stream, body=declaration)

    def streams(self) -> list[Stream]:
        """All streams, by name."""
        return self._call("GET", "/v1/streams", Streams).streams

    def stream(self, name: str) -> Stream:
        """One stream."""
        return self._call("GET", f"/v1/streams/{segment(name)}", Stream)

    def delete_stream(self, name: str) -> None:
        """Remove a declaration that no task uses."""
        self._connection.send("DELETE", f"/v1/streams/{segment(name)}")
