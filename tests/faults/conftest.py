"""One running Mars for all faults that it is to survive, and one without mappers and reducers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import MarsCluster, lent, running_mars

LOG_BYTES_MAX = 8_000_000
"""Bytes of partials that a task may hold: little, so that a test can go over it in seconds."""

PROGRESS_INTERVAL_MS = 2_000
"""Age at which buckets without results commit: what a ledger lacks, tests wait for."""

SNAPSHOT_EVERY_MS = 2_000
"""Panes are saved in Kafka as often as this, though the windows here are open for seconds only: so
every fault also meets snapshots that are being written, replaced and read."""


DRAFT_ROWS_MIN = 1
"""Every window is drafted: so every fault also meets rows that are written and not yet due."""

SOON_AGAIN = """
[balance]
cooldown_s = 5.0
bucket_rest_s = 5.0
"""
"""A bucket that was lent goes home within seconds, half a minute and a minute by default."""

FOUR_BUCKETS = ("--buckets", "4")
"""Each commits and saves its panes every two seconds, which costs more than the rows do."""

NO_BULK = ("--bulk", "0")
"""Nothing here has a history for Spark; to start the process takes a second of a processor."""

REDUCERS = 3
"""Of a cluster whose buckets have somebody to move to."""


def settings(snapshot_every_ms: int = SNAPSHOT_EVERY_MS) -> str:
    """What a configuration file says."""
    return f"""
[cluster]
log_bytes_max = {LOG_BYTES_MAX}

[reducer]
progress_interval_ms = {PROGRESS_INTERVAL_MS}
snapshot_every_ms = {snapshot_every_ms}
draft_rows_min = {DRAFT_ROWS_MIN}
"""


@pytest.fixture(scope="package")
def one_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """What has survived some faults has to survive the next ones too."""
    folder = tmp_path_factory.mktemp("faults")
    options = (*FOUR_BUCKETS, *NO_BULK)
    yield from running_mars(folder, *options, settings=settings() + SOON_AGAIN)


@pytest.fixture(scope="module")
def mars(one_for_all: MarsCluster) -> Iterator[MarsCluster]:
    """Everything; a test that breaks a server has it whole again at its end."""
    yield from lent(one_for_all)


@pytest.fixture(scope="module")
def servers_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """Servers and API; each test brings the mappers and reducers that it torments."""
    options = ("--mappers", "0", "--reducers", "0", *FOUR_BUCKETS, *NO_BULK)
    yield from running_mars(tmp_path_factory.mktemp("faults"), *options, settings=settings())


def three_reducers(
    folder: Path, buckets: int, more_settings: str, *, mappers: int = 1
) -> Iterator[MarsCluster]:
    """A cluster of REDUCERS reducers."""
    options = ("--mappers", str(mappers), "--reducers", str(REDUCERS))
    every = (*options, "--buckets", str(buckets), *NO_BULK)
    yield from running_mars(folder, *every, settings=settings() + more_settings)
