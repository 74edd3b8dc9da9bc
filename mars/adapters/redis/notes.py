"""The ackers' mailboxes in Redis: a list each, `mars:tracker:<acker>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis

from mars.adapters.redis.connection import CALL_TIMEOUT_S
from mars.adapters.redis.keys import mailbox_key
from mars.adapters.redis.servers import StoreServers, calling, open_servers
from mars.adapters.store import LETTERS_MAX, LETTERS_TAKEN_MAX, letters_of, notes_of
from mars.core.settings import Settings
from mars.core.types import MemberId
from mars.protocol.ports import NoteBox
from mars.protocol.ports.notes import Note

MAILBOX_LIFE_S = 600
"""A mailbox that gets no letter for so long belongs to nobody any more."""


class RedisNoteBox(NoteBox):
    """`NoteBox` on lists that are trimmed at their older end."""

    def __init__(self, servers: StoreServers, namespace: str) -> None:
        self._servers = servers
        self._namespace = namespace

    @classmethod
    def open(cls, settings: Settings) -> RedisNoteBox:
        """With a connection of its own."""
        return cls(open_servers(settings.redis, CALL_TIMEOUT_S), settings.namespace)

    def send(self, notes: Mapping[MemberId, Sequence[Note]]) -> None:
        """All letters to mailboxes of a server in one round trip."""
        with calling(self._servers):
            boxes: dict[redis.Redis, dict[str, Sequence[Note]]] = {}
            for acker, some in notes.items():
                key = mailbox_key(self._namespace, acker)
                boxes.setdefault(self._servers.of(key), {})[key] = some
            for client, letters in boxes.items():
                _put(client, letters)

    def take(self, acker: MemberId) -> list[Note]:
        """Some letters at a time: who gets as many as asked for asks again."""
        key = mailbox_key(self._namespace, acker)
        with calling(self._servers):
            letters: Any = self._servers.of(key).lpop(key, LETTERS_TAKEN_MAX)
        return notes_of(letters or ())

    def close(self) -> None:
        """Free the connection."""
        self._servers.close()


def _put(client: redis.Redis, letters: Mapping[str, Sequence[Note]]) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for key, some in letters.items():
            pipeline.rpush(key, *letters_of(some))
            pipeline.ltrim(key, -LETTERS_MAX, -1)
            pipeline.expire(key, MAILBOX_LIFE_S)
        pipeline.execute()
