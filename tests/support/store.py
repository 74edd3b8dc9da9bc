"""What a test does to the Valkey of a cluster, and what it can see of it."""

from __future__ import annotations

from typing import Any, cast

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.support.cluster import MarsCluster, wait_for

LOOK_AGAIN_S = 0.1
COMES_BACK_S = 30
"""The supervisor has started a new server, which does not answer yet."""


class Store:
    """The store of a cluster, by a connection of the test's own.

    A server that is just being started is waited for, as Mars would.
    """

    def __init__(self, mars: MarsCluster) -> None:
        self._mars = mars
        patience = Retry(ConstantBackoff(LOOK_AGAIN_S), int(COMES_BACK_S / LOOK_AGAIN_S))
        self._client = redis.Redis.from_url(
            mars.file["redis"], retry=patience, retry_on_error=[redis.ConnectionError]
        )

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.close()

    def flush(self) -> None:
        """FLUSHALL."""
        self._client.flushall()

    def info(self) -> dict[str, Any]:
        """All of INFO."""
        return self._client.info("everything")

    def refusals(self) -> int:
        """How often a command was refused for want of memory, since the last `forget_refusals`."""
        return int(self.info().get("errorstat_OOM", {}).get("count", 0))

    def forget_refusals(self) -> None:
        """Begin to count anew."""
        self._client.config_resetstat()

    def memory_max(self) -> str:
        """The limit, as CONFIG takes it."""
        found = cast("dict[str, str]", self._client.config_get("maxmemory"))
        return found["maxmemory"]

    def limit_memory(self, bytes_max: int | str) -> None:
        """Set the limit."""
        self._client.config_set("maxmemory", bytes_max)

    def keys_of(self, task: str) -> list[str]:
        """Every key of a task."""
        return [key.decode() for key in self._client.scan_iter(f"mars:{{{task}}}*", count=1000)]

    def save(self) -> None:
        """Write everything to the file that the server would read at its next start."""
        self._client.save()

    def kill(self) -> None:
        """End the server where it stands, and wait until another has been started."""
        before = self._mars.kill("redis")
        wait_for("another Valkey", lambda: self._mars.pid("redis") != before)

    def forget_file(self) -> None:
        """Remove what `save` wrote."""
        (self._mars.data / "redis" / "dump.rdb").unlink(missing_ok=True)
