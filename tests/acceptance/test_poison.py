"""Poison of every format and codec in one partition: what it takes of a mapper's memory.

partition 0    a row of each stream, poison: many rows that are none, messages that are too large
all            a row that closes the first one's window

It fails where all rows of a message are decoded at once: the mapper takes gigabytes then, see MOST.
What cannot be unpacked at all is not among it, for half a gigabyte would have to be made for that;
see `tests/contracts/test_source_undecodable.py`, where a few megabytes are too much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.poison import CODECS, Poison, PoisonSender, many_rows, memory_mib, poisons

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

PARTITIONS = 4
FORMATS = {"json": 300_000, "ndjson": 300_000, "csv": 300_000, "arrow": 2_000_000}
"""With how many rows a message is sent: more than are decoded at once."""

MOST = 7_500_000
"""And one of JSON with nearly as many as a message may hold."""

TOO_LARGE = 17 * 1024 * 1024 + 1
TASKS_OF_EACH = 3
MEMORY_MIB_MAX = 700
"""Of a mapper, with default settings; README of limits: docs/reference/limits.md."""

START_MS = 1_700_000_040_000
WINDOW_MS = 60_000


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    yield from running_mars(tmp_path_factory.mktemp("poison"), "--mappers", "1", "--reducers", "1")


def row(format: str, time_ms: int, name: str) -> bytes:
    """A good row."""
    match format:
        case "csv":
            return f"{time_ms},{name}".encode()
        case "arrow":
            sink = pa.BufferOutputStream()
            table = pa.table({"timestamp": [time_ms], "name": [name]})
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            return bytes(sink.getvalue())
        case _:
            return json.dumps({"timestamp": time_ms, "name": name}).encode()


def extremes(format: str) -> Iterator[Poison]:
    """What shows at once where all rows of a message are decoded together."""
    if format == "json":
        yield Poison(format, "gzip", many_rows(format, MOST), MOST)


def test_poison_of_every_format_and_codec_costs_its_rows_and_no_more_memory_than_is_said(
    mars: MarsCluster,
) -> None:
    fields = {"timestamp": "timestamp_ms", "name": "string"}
    for format in FORMATS:
        mars.topic(format, PARTITIONS, max_message_bytes=str(2 * TOO_LARGE))
        stream = {"topic": format, "format": format, "fields": fields, "event_time": "timestamp"}
        mars.client.put_stream(format, stream)
        for number in range(TASKS_OF_EACH):
            sql = f"SELECT name, count(*) AS n FROM {format} GROUP BY name WINDOWING 60 s"
            mars.register(f"{format}_{number}", sql, idle_after="1h")
    sender = PoisonSender(str(mars.file["kafka"]))
    bad: dict[str, int] = {}
    for format, rows in FORMATS.items():
        mars.produce(format, [(0, row(format, START_MS, "first"))])
        for one in [*poisons(format, rows, TOO_LARGE), *extremes(format)]:
            sender.send(format, 0, one)
            bad[format] = bad.get(format, 0) + one.rows
        closing = row(format, START_MS + 2 * WINDOW_MS, "last")
        mars.produce(format, [(partition, closing) for partition in range(PARTITIONS)])

    for format in FORMATS:
        for number in range(TASKS_OF_EACH):
            _check(mars, f"{format}_{number}", bad[format])
    now, peak = memory_mib(mars.pid("mapper-1"))
    assert not any(mars.restarts.values()), f"{mars.restarts}\n{mars.logs()}"
    assert peak < MEMORY_MIB_MAX, (now, peak)
    wait_for(
        "the memory to be given back",
        lambda: memory_mib(mars.pid("mapper-1"))[0] < MEMORY_MIB_MAX // 2,
    )


def _check(mars: MarsCluster, task: str, bad: int) -> None:
    """Every row of the poison is bad; the one before it comes, and what is behind is counted."""
    ledger = mars.ledger(task, bad + 1 + PARTITIONS, emitted=1)
    assert (ledger.bad, ledger.counted, ledger.late) == (bad, 1 + PARTITIONS, 0), ledger
    found = mars.read_until(f"mars.results.{task}", 1)
    assert [(value["name"], value["n"]) for _key, value, _headers in found] == [("first", 1)]
    assert mars.client.task(task).state == "running"
    assert bad > 5 * len(CODECS)
