"""Who may use the API."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, says


class Key(Answer, frozen=True):
    """What is known of a key."""

    id: str
    role: str
    ending: Annotated[str, says("its last characters")]
    reads: list[str]
    writes: list[str]
    note: str
    created: int


class NewKey(Key, frozen=True):
    """A key that was just made; `key` is shown here and never again."""

    key: str


class Keys(Answer, frozen=True):
    """All keys, oldest first."""

    keys: list[Key]
