"""The ackers' mailboxes in Redis: a list each, `mars:tracker:<acker>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis

from mars.adapters.redis.connection import connect, translated
from mars.adapters.redis.keys import mailbox_key
from mars.adapters.store import LETTERS_MAX, LETTERS_TAKEN_MAX, letters_of, notes_of
from mars.core.settings import Settings
from mars.core.types import MemberId
from mars.protocol.ports import NoteBox
from mars.protocol.ports.notes import Note

MAILBOX_LIFE_S = 600
"""A mailbox that gets no letter for so long belongs to nobody any more."""


class RedisNoteBox(NoteBox):
    """`NoteBox` on lists that are trimmed at their older end."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    @classmethod
    def open(cls, settings: Settings) -> RedisNoteBox:
        """With a connection of its own."""
        return cls(connect(settings.redis), settings.namespace)

    def send(self, notes: Mapping[MemberId, Sequence[Note]]) -> None:
        """All letters in one round trip."""
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for acker, some in notes.items():
                key = mailbox_key(self._namespace, acker)
                pipeline.rpush(key, *letters_of(some))
                pipeline.ltrim(key, -LETTERS_MAX, -1)
                pipeline.expire(key, MAILBOX_LIFE_S)
            pipeline.execute()

    def take(self, acker: MemberId) -> list[Note]:
        """Some letters at a time: who gets as many as asked for asks again."""
        with translated():
            letters: Any = self._client.lpop(mailbox_key(self._namespace, acker), LETTERS_TAKEN_MAX)
        return notes_of(letters or ())

    def close(self) -> None:
        """Free the connection."""
        self._client.close()
