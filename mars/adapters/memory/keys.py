"""API keys in memory: the twin of ZooKeeper's registry of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from mars.adapters.memory.faults import Faults, fallible
from mars.protocol.ports.keys import ApiKey, KeyId, decode_key, encode_key


@dataclass(slots=True)
class MemoryKeyShelf:
    """What is kept: keys as their JSON, and who watches."""

    keys: dict[KeyId, bytes] = field(default_factory=dict)
    watchers: list[Callable[[], None]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryKeyRegistry:
    """`KeyRegistry` in memory; each is one process's connection to a shelf. Safe for threads."""

    def __init__(self, shelf: MemoryKeyShelf | None = None) -> None:
        self.faults = Faults("zookeeper")
        self._shelf = shelf or MemoryKeyShelf()

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def all(self) -> list[ApiKey]:
        """All keys."""
        with self._shelf.lock:
            return [decode_key(raw) for raw in self._shelf.keys.values()]

    @fallible
    def create(self, key: ApiKey) -> bool:
        """False if the id exists."""
        with self._shelf.lock:
            if key.id in self._shelf.keys:
                return False
            self._shelf.keys[key.id] = encode_key(key)
        self._tell()
        return True

    @fallible
    def delete(self, key: KeyId) -> bool:
        """False if there was none."""
        with self._shelf.lock:
            present = self._shelf.keys.pop(key, None) is not None
        if present:
            self._tell()
        return present

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` now, and after any change of any key."""
        with self._shelf.lock:
            self._shelf.watchers.append(changed)
        changed()

    def _tell(self) -> None:
        with self._shelf.lock:
            watchers = list(self._shelf.watchers)
        for changed in watchers:
            changed()
