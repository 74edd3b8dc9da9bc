"""A mapper or reducer with links of its own: what lies between it and each server can be broken.

    reducer ──▶ KafkaLink ──▶ Kafka
            ──▶ Link      ──▶ ZooKeeper
            ──▶ RedisLink ──▶ Valkey

The servers are those of a cluster that `mars up` has started; they need no configuration for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from mars.core.settings import Settings, load, to_toml
from mars.local.roles import RoleProcess
from tests.support.cluster import MarsCluster
from tests.support.kafka_proxy import KafkaLink
from tests.support.proxy import HOST, Link
from tests.support.redis_proxy import RedisLink

STOP_S = 15.0
"""What a role gets to end by itself."""

Change = Callable[[Settings], Settings]


class LinkedRole(RoleProcess):
    """One process behind three links; a context manager that ends all four."""

    def __init__(
        self,
        mars: MarsCluster,
        role: str,
        name: str,
        *,
        change: Change = lambda settings: settings,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        settings = load(mars.data / "mars.toml", {})
        self.kafka = KafkaLink(_port(settings.kafka.bootstrap))
        self.zookeeper = Link(_port(settings.zookeeper.hosts))
        self.redis = RedisLink(_port(settings.redis.url.removesuffix("/0")))
        own = replace(
            settings,
            kafka=replace(settings.kafka, bootstrap=f"{HOST}:{self.kafka.port}"),
            zookeeper=replace(settings.zookeeper, hosts=f"{HOST}:{self.zookeeper.port}"),
            redis=replace(settings.redis, url=f"redis://{HOST}:{self.redis.port}/0"),
        )
        config = mars.data / f"{name}.toml"
        config.write_text(to_toml(change(own)), "utf-8")
        super().__init__(name, role, config, _log(mars, name))
        self._variables = dict(variables or {})

    def environment(self) -> Mapping[str, str]:
        """Its name, and what this test adds."""
        return {**super().environment(), **self._variables}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop(STOP_S)
        for link in (self.kafka, self.zookeeper, self.redis):
            link.close()

    def start_again(self) -> None:
        """Kill it where it stands, and start it."""
        self.kill()
        self.start()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _log(mars: MarsCluster, name: str) -> Path:
    return mars.data / "logs" / f"{name}.log"
