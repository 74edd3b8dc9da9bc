"""One running Mars for the tests that do not break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser, missing_browser
from tests.support.cluster import MarsCluster, lent, running_mars

LOG_BYTES_MAX = 1_000_000
"""Bytes of partials that a task may hold: little, so that a test can fill it in a few seconds."""

PROGRESS_INTERVAL_MS = 2_000
"""Age at which buckets without results commit: what a ledger lacks, tests wait for."""

SETTINGS = f"""
[cluster]
log_bytes_max = {LOG_BYTES_MAX}

[reducer]
progress_interval_ms = {PROGRESS_INTERVAL_MS}

[logging]
level = "debug"
"""


@pytest.fixture(scope="package")
def one_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """Starting one costs more than most tests."""
    # Below it lie the folders that tests keep files in.
    files = f'\n[bulk]\nfiles = ["{tmp_path_factory.getbasetemp()}"]\n'
    yield from running_mars(tmp_path_factory.mktemp("shared"), settings=SETTINGS + files)


@pytest.fixture(scope="module")
def shared_mars(one_for_all: MarsCluster) -> Iterator[MarsCluster]:
    """One cluster for all of them; tests keep apart by names of topics, streams and tasks."""
    yield from lent(one_for_all)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for the tests of a file."""
    reason = missing_browser()
    if reason is not None:
        # In CI, too: Chromium comes from no registry that the project uses.
        pytest.skip(reason)
    with Browser(tmp_path_factory.mktemp("browser")) as made:
        yield made
