"""Who may use the API."""

from __future__ import annotations

from mars.answers.base import Answer


class Key(Answer, frozen=True):
    """What is known of an API key; `ending` are its last characters."""

    id: str
    role: str
    ending: str
    reads: list[str]
    writes: list[str]
    note: str
    created: int


class NewKey(Key, frozen=True):
    """A key that was just made: `key` is its text, which nobody can show again."""

    key: str


class Keys(Answer, frozen=True):
    """All keys, oldest first."""

    keys: list[Key]
