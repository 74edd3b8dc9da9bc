"""The data folder of a new Kafka, as Kafka's own tool sees it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mars.local import jars
from mars.local.java import find_java
from mars.local.servers import CHECKPOINT, KafkaServer
from tests.conftest import missing_kafka, need

pytestmark = pytest.mark.integration

ANSWER_S = 120


def test_a_folder_that_is_made_from_what_is_kept_is_a_formatted_one(tmp_path: Path) -> None:
    need(missing_kafka())
    KafkaServer(tmp_path / "first").prepare()  # from now on it is kept, if it was not
    server = KafkaServer(tmp_path / "second", cluster="bWFycy1mb2xkZXItMDAwMQ")
    server.prepare()

    said = _tool("info", "-c", str(server.data / "server.properties"))
    kept = _tool("info", "-c", str(tmp_path / "first" / "server.properties"))

    assert "cluster.id=bWFycy1mb2xkZXItMDAwMQ" in said
    assert "node.id=1" in said
    assert "Found problem" not in said + kept
    assert (jars.location("kafka") / CHECKPOINT).is_file()


def _tool(*words: str) -> str:
    classes = f"{jars.location('kafka')}/*"
    done = subprocess.run(
        [find_java(), "-cp", classes, "kafka.tools.StorageTool", *words],
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
