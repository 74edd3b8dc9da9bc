"""Fixtures of the contract suites; each family of servers has a module of its own."""

from tests.contracts.bulk_engines import bulk
from tests.contracts.deaf import goes_deaf
from tests.contracts.kafka_servers import cluster, kafka, kafka_cluster, proxied_cluster
from tests.contracts.redis_servers import cluster_store, log, redis_cluster, redis_store, store
from tests.contracts.zookeeper_servers import ensemble, zookeeper_ensemble

__all__ = [
    "bulk",
    "cluster",
    "cluster_store",
    "ensemble",
    "goes_deaf",
    "kafka",
    "kafka_cluster",
    "log",
    "proxied_cluster",
    "redis_cluster",
    "redis_store",
    "store",
    "zookeeper_ensemble",
]
