"""What the suite of the partial log runs on: the twin, and a real Valkey."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
import redis
from redis.cluster import RedisCluster

from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.redis.addresses import read_address
from mars.adapters.redis.keys import TaskKeys
from mars.adapters.redis.log import RedisPartialLog
from mars.core.settings import ClusterSettings, RedisSettings, Settings
from mars.core.types import Bucket, Sequence64
from mars.local.servers import ValkeyServer
from mars.protocol.ports import PartialLog
from tests.contracts.batches import BUCKETS, EPOCH, TASK, start
from tests.contracts.waiting import eventually
from tests.support.redis_cluster import ValkeyCluster, valkey_cluster

BUDGET_BYTES = 1_000_000


class Store(Protocol):
    """A store, and what tests must be able to see of it from outside."""

    def open(self, log_bytes_max: int = BUDGET_BYTES) -> PartialLog:
        """One process's connection; the first one's budget is the store's."""

    def with_budget(self, log_bytes_max: int) -> PartialLog:
        """A connection to a store with this budget, which is empty where it is another store."""

    def dump(self) -> object:
        """Everything in it, but when each life of a task was begun."""

    def lose_entry(self, bucket: Bucket, seq: int) -> None:
        """Delete an entry of TASK's log behind everybody's back."""

    def lose_all(self) -> None:
        """FLUSHALL, of what is the test's."""

    def let_leases_expire(self) -> None:
        """Let the server's clock go on past the length of an idle lease."""

    def let_time_pass(self) -> None:
        """Let the server's clock go on."""

    def close(self) -> None:
        """Free everything."""


class MemoryStoreUnderTest:
    """The twin, with a clock that the tests set."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._first: MemoryPartialLog | None = None

    def open(self, log_bytes_max: int = BUDGET_BYTES) -> MemoryPartialLog:
        if self._first is not None:
            return self._first.connect()
        self._first = MemoryPartialLog(
            lambda: self.now_ms, buckets=BUCKETS, log_bytes_max=log_bytes_max
        )
        return self._first

    def with_budget(self, log_bytes_max: int) -> MemoryPartialLog:
        return MemoryPartialLog(lambda: self.now_ms, buckets=BUCKETS, log_bytes_max=log_bytes_max)

    def dump(self) -> object:
        assert self._first is not None
        found = self._first.snapshot()
        for task in found.tasks.values():
            task.born = ""
        return found

    def lose_entry(self, bucket: Bucket, seq: int) -> None:
        assert self._first is not None
        self._first.lose_entry(TASK, bucket, Sequence64(seq))

    def lose_all(self) -> None:
        assert self._first is not None
        self._first.flush()

    def let_leases_expire(self) -> None:
        self.now_ms += 3_000

    def let_time_pass(self) -> None:
        self.now_ms += 7

    def close(self) -> None:
        pass


class RedisStoreUnderTest:
    """A namespace of its own on a real server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.namespace = f"test_{uuid.uuid4().hex}"
        self.client: Any = None if "+" in url else redis.Redis.from_url(url)
        self._opened: list[RedisPartialLog] = []

    def settings(self, log_bytes_max: int = BUDGET_BYTES) -> Settings:
        return Settings(
            namespace=self.namespace,
            redis=RedisSettings(url=self.url),
            cluster=ClusterSettings(log_bytes_max=log_bytes_max),
        )

    def open(self, log_bytes_max: int = BUDGET_BYTES) -> RedisPartialLog:
        log = RedisPartialLog.open(self.settings(log_bytes_max), BUCKETS)
        self._opened.append(log)
        return log

    def with_budget(self, log_bytes_max: int) -> RedisPartialLog:
        return self.open(log_bytes_max)

    def dump(self) -> dict[bytes, object]:
        keys = sorted(self.client.scan_iter(f"mars:{self.namespace}:*"))
        return {
            key: self._meta(key) if key.endswith(b":meta") else self.client.dump(key)
            for key in keys
        }

    def _meta(self, key: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.client.hgetall(key)
        return {name: value for name, value in found.items() if name != b"born"}

    def lose_entry(self, bucket: Bucket, seq: int) -> None:
        log = TaskKeys.of(self.namespace, TASK).log(bucket)
        assert self.client.xdel(log, f"{seq}-0") == 1

    def lose_all(self) -> None:
        self.client.unlink(*self.client.scan_iter(f"mars:{self.namespace}:*"))

    def let_leases_expire(self) -> None:
        log = self.open()
        eventually(lambda: _is_idle_nowhere(log))

    def let_time_pass(self) -> None:
        before_ms = self._now_ms()
        eventually(lambda: self._now_ms() > before_ms)

    def _now_ms(self) -> int:
        seconds, microseconds = self.client.time()
        return int(seconds) * 1_000 + int(microseconds) // 1_000

    def close(self) -> None:
        for log in self._opened:
            log.close()
        for key in self.client.scan_iter(f"mars:{self.namespace}:*"):
            self.client.unlink(key)
        self.client.close()


class ClusterStoreUnderTest(RedisStoreUnderTest):
    """A namespace of its own on a cluster."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        host, port = read_address(url).servers[0]
        self.client = RedisCluster(host=host, port=port)


def _is_idle_nowhere(log: PartialLog) -> bool:
    head = log.head([TASK])[TASK]
    return head is not None and not head.idle


@pytest.fixture
def redis_store(valkey_server: ValkeyServer) -> Iterator[RedisStoreUnderTest]:
    """An empty namespace on the real server."""
    store = RedisStoreUnderTest(valkey_server.url)
    yield store
    store.close()


@pytest.fixture(scope="session")
def redis_cluster(
    valkey_server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ValkeyCluster]:
    """Three primaries."""
    assert valkey_server.running
    with valkey_cluster(tmp_path_factory.mktemp("cluster"), replicas=False) as found:
        yield found


@pytest.fixture
def cluster_store(redis_cluster: ValkeyCluster) -> Iterator[RedisStoreUnderTest]:
    """An empty namespace on the cluster."""
    store = ClusterStoreUnderTest(redis_cluster.url)
    yield store
    store.close()


REAL = [pytest.param(name, marks=pytest.mark.integration) for name in ("redis", "cluster")]


@pytest.fixture(params=["memory", *REAL])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store: the twin's, a real one, and one of several servers."""
    if request.param in {"redis", "cluster"}:
        yield request.getfixturevalue(f"{request.param}_store")
    else:
        yield MemoryStoreUnderTest()


@pytest.fixture
def log(store: Store) -> PartialLog:
    """A connection to a store with one task of two lanes."""
    log = store.open()
    assert log.initialise(TASK, EPOCH, start())
    return log
