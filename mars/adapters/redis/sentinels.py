"""The primary that sentinels name: connections go to it, and to none of before.

redis-py asks the sentinels when it connects. A former primary that is cut off from them keeps its
connections, so they are asked while a connection lasts, too.
"""

from __future__ import annotations

import time
from typing import Any

import redis
from redis.client import PubSub
from redis.exceptions import RedisError
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool

SENTINEL_TIMEOUT_S = 1.0
"""How long a sentinel may take; the next one is asked then."""

ASK_EVERY_S = 1.0
"""How long a former primary is written to at the most, after a sentinel knows of another."""

ASK_PAUSE = 9
"""Times as long as a question took there is none: what is connected waits for a tenth at most."""

SILENT_S = 30.0
"""So long a sentinel that did not answer is asked after the others."""


class Sentinels(Sentinel):
    """redis-py's sentinels, of which one after the other is asked, and an old answer left aside.

    One that is cut off with a former primary still names it, under a lower config epoch than the
    others have.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self._newest = 0
        self._silent_until_s: dict[redis.Redis, float] = {}

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Where the primary is. Raises MasterNotFoundError."""
        told: list[dict[str, Any]] = []
        problems: list[str] = []
        for sentinel in self._in_turn():
            try:
                known: Any = sentinel.sentinel_masters()
            except (RedisError, OSError) as error:
                self._silent_until_s[sentinel] = time.monotonic() + SILENT_S
                problems.append(str(error) or type(error).__name__)
                continue
            state = known.get(service_name)
            if state is None:
                problems.append(f"it knows no {service_name}")
            elif not self.check_master_state(state, service_name):  # type: ignore[no-untyped-call]
                problems.append(f"{service_name} is down")
            else:
                told.append(state)
                if state["config-epoch"] >= self._newest:
                    break
        if not told:
            raise MasterNotFoundError("; ".join(problems))
        # Sentinels that were set up anew begin to count anew: then all answers are lower.
        newest = max(told, key=lambda state: int(state["config-epoch"]))
        self._newest = newest["config-epoch"]
        return newest["ip"], newest["port"]

    def _in_turn(self) -> list[redis.Redis]:
        first, *others = self.sentinels  # read once: several threads may turn it
        self.sentinels = [*others, first]
        now_s = time.monotonic()
        return sorted([*others, first], key=lambda one: self._silent_until_s.get(one, 0.0) > now_s)


class PrimaryPool(SentinelConnectionPool):
    """Connections to the primary; those to a former one are given up within seconds."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self._next_look_s = 0.0

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """One to the primary."""
        self.follow()
        return super().get_connection(*arguments, **options)

    def follow(self) -> None:
        """Give up idle connections to a former primary; those in use when they come back.

        Where no sentinel answers, what is connected goes on.
        """
        begun_s = time.monotonic()
        if self.master_address is None or begun_s < self._next_look_s:
            return
        self._next_look_s = begun_s + ASK_EVERY_S
        try:
            self.get_master_address()  # type: ignore[no-untyped-call]
        except MasterNotFoundError:
            pass  # whoever has no connection hears of it
        asked_s = time.monotonic()
        self._next_look_s = asked_s + max(ASK_EVERY_S, ASK_PAUSE * (asked_s - begun_s))

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close connections, with all of them those to the sentinels."""
        super().disconnect(inuse_connections)
        if inuse_connections:
            self.sentinel_manager.close()


def is_former(client: redis.Redis, pubsub: PubSub) -> bool:
    """True if this connection leads to a server that is no longer the primary."""
    pool: Any = client.connection_pool
    connection: Any = pubsub.connection
    if not isinstance(pool, PrimaryPool) or connection is None:
        return False
    pool.follow()
    return not pool.owns_connection(connection)  # type: ignore[no-untyped-call]
