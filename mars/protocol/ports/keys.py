"""API keys: who may ask for what. The keys themselves are kept nowhere, only their hashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

import msgspec

KeyId = NewType("KeyId", str)


class Role(StrEnum):
    """What a key may do; each role may do what those before it may."""

    READER = "reader"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether this role may do what `needed` may."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key.

    `hash` is the SHA-256 of its secret in hexadecimal digits, `ending` its last characters, by
    which its owner recognises it. Tasks and queries made with it read topics (and files) that match
    one of `reads`, and write to topics that match one of `writes`; `*` in a pattern stands for any
    text. `note` says whose it is.
    """

    id: KeyId
    role: Role
    hash: str
    ending: str
    created_ms: int
    reads: tuple[str, ...] = ("*",)
    writes: tuple[str, ...] = ("*",)
    note: str = ""


class KeyRegistry(Protocol):
    """The keys of a namespace, in ZooKeeper."""

    def all(self) -> list[ApiKey]:
        """All keys, in no order."""

    def create(self, key: ApiKey) -> bool:
        """False if the id exists."""

    def delete(self, key: KeyId) -> bool:
        """False if there was none."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` (from another thread) after any change of any key."""


def encode_key(key: ApiKey) -> bytes:
    """The JSON of what is known of a key."""
    return msgspec.json.encode(key)


def decode_key(raw: bytes) -> ApiKey:
    """What `encode_key` wrote."""
    return msgspec.json.decode(raw, type=ApiKey)
