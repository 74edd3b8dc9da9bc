"""Fixtures of the contract suites; each family of servers has a module of its own."""

from tests.contracts.redis_servers import log, redis_store, store
from tests.contracts.zookeeper_servers import ensemble, zookeeper_ensemble

__all__ = ["ensemble", "log", "redis_store", "store", "zookeeper_ensemble"]
