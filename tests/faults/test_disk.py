"""The disk under Kafka runs full, fault 15 of the list in `docs/reports/reliability.md`.

data/            the disk of the machine
data/kafka/      a disk of 256 MiB in memory, which is filled and freed again
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import missing_kafka, missing_valkey, need
from tests.faults.conftest import FOUR_BUCKETS, NO_BULK
from tests.support.cluster import MarsCluster, wait_for
from tests.support.disk import SmallDisk, missing_right
from tests.support.load import Load

pytestmark = pytest.mark.faults

MEGABYTES = 256


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    need(missing_kafka())
    need(missing_valkey())
    folder = tmp_path_factory.mktemp("disk")
    reason = missing_right(folder / "try")
    if reason is not None:
        pytest.skip(reason)
    made = SmallDisk(folder / "data" / "kafka", MEGABYTES)
    yield made
    made.close()


def test_15_a_full_disk_is_named_and_costs_nothing_once_there_is_room(disk: SmallDisk) -> None:
    mars = MarsCluster(disk.folder.parent, *FOUR_BUCKETS, *NO_BULK)
    try:
        with Load(mars, "f15", seconds=20, rows_per_s=500).running() as load:
            wait_for("rows", lambda: mars.client.ledger("f15").read > 0)
            with disk.full():
                wait_for("Kafka to say why", lambda: "No space left" in _log(mars, "kafka"))
                wait_for(
                    "Mars to say so", lambda: mars.client.readiness().services["kafka"] != "ok"
                )

        load.check(seconds=180)
        assert mars.client.task("f15").state == "running"
    finally:
        mars.down()


def _log(mars: MarsCluster, name: str) -> str:
    return (mars.data / "logs" / f"{name}.log").read_text("utf-8", "replace")
