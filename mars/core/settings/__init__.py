"""One frozen settings object from TOML and environment variables.

`load(path, environ)` starts from the defaults, lays the TOML file over them, and the environment
over that: `MARS_<SECTION>_<KEY>` (`MARS_KAFKA_BOOTSTRAP`, `MARS_MAPPER_POLL_MS`) and
`MARS_NAMESPACE`, `MARS_MEMBER` for the two values outside of sections. What is unknown or of the
wrong type is refused with its name.
"""

from __future__ import annotations

from mars.core.settings.reading import environment_for_child, load
from mars.core.settings.sections import (
    MIB,
    ApiSettings,
    BalanceSettings,
    BulkSettings,
    ClusterSettings,
    KafkaSettings,
    LoggingSettings,
    MapperSettings,
    MetricsSettings,
    RedisSettings,
    ReducerSettings,
    Settings,
    StrategyName,
    TrackerSettings,
    ZooKeeperSettings,
)
from mars.core.settings.surroundings import Surroundings, surroundings
from mars.core.settings.writing import to_toml

__all__ = [
    "MIB",
    "ApiSettings",
    "BalanceSettings",
    "BulkSettings",
    "ClusterSettings",
    "KafkaSettings",
    "LoggingSettings",
    "MapperSettings",
    "MetricsSettings",
    "RedisSettings",
    "ReducerSettings",
    "Settings",
    "StrategyName",
    "Surroundings",
    "TrackerSettings",
    "ZooKeeperSettings",
    "environment_for_child",
    "load",
    "surroundings",
    "to_toml",
]
