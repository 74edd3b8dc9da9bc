"""One running Mars for all faults that it is to survive, and one without mappers and reducers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import missing_kafka, missing_valkey, need
from tests.support.cluster import MarsCluster

LOG_BYTES_MAX = 8_000_000
"""Bytes of partials that a task may hold: little, so that a test can go over it in seconds."""

PROGRESS_INTERVAL_MS = 2_000
"""Age at which buckets without results commit: what a ledger lacks, tests wait for."""

SNAPSHOT_EVERY_MS = 2_000
"""Panes are saved in Kafka as often as this, though the windows here are open for seconds only: so
every fault also meets snapshots that are being written, replaced and read."""

SETTINGS = f"""
[cluster]
log_bytes_max = {LOG_BYTES_MAX}

[reducer]
progress_interval_ms = {PROGRESS_INTERVAL_MS}
snapshot_every_ms = {SNAPSHOT_EVERY_MS}
"""


def _cluster(factory: pytest.TempPathFactory, *options: str) -> Iterator[MarsCluster]:
    need(missing_kafka())
    need(missing_valkey())
    folder = factory.mktemp("faults")
    config = folder / "small.toml"
    config.write_text(SETTINGS)
    cluster = MarsCluster(folder / "data", "--config", str(config), *options)
    yield cluster
    cluster.down()


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """Everything; a test that breaks a server has it whole again at its end."""
    yield from _cluster(tmp_path_factory)


@pytest.fixture(scope="module")
def servers_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """Servers and API; each test brings the mappers and reducers that it torments."""
    yield from _cluster(tmp_path_factory, "--mappers", "0", "--reducers", "0", "--buckets", "4")
