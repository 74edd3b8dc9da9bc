"""Keys of the API."""

from __future__ import annotations

from collections.abc import Iterable

from mars.client.answers import Key, Keys, NewKey
from mars.client.calls.base import Calls, segment


class KeyCalls(Calls):
    """Make keys, and remove them."""

    def create_key(
        self,
        role: str,
        *,
        reads: Iterable[str] = ("*",),
        writes: Iterable[str] = ("*",),
        note: str = "",
    ) -> NewKey:
        """Make a key: `reader`, `operator` or `admin`, its tasks limited to patterns of topics."""
        body = {"role": role, "reads": list(reads), "writes": list(writes), "note": note}
        return self._call("POST", "/v1/keys", NewKey, body=body)

    def keys(self) -> list[Key]:
        """All keys, oldest first."""
        return self._call("GET", "/v1/keys", Keys).keys

    def delete_key(self, key: str) -> None:
        """Remove a key, by its id."""
        self._connection.send("DELETE", f"/v1/keys/{segment(key)}")
