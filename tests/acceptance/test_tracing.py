"""A result is followed back to its batches by what processes tell at level debug."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import pytest

from mars.engine.codec.result_headers import decode_ranges
from tests.support.cluster import MarsCluster, wait_for

pytestmark = pytest.mark.acceptance

NAME = "traced"
START_MS = 1_700_000_000_000
RANGE = re.compile(r"(\S+)\[(\d+),(\d+)\)")


def lines(mars: MarsCluster, role: str, text: str) -> Iterator[dict[str, str]]:
    """The fields of the lines that say this, of all processes of a role."""
    for path in (mars.data / "logs").glob(f"{role}-*.log"):
        for line in path.read_text().splitlines():
            _head, said, fields = line.partition(f" {text} ")
            if said:
                yield {
                    name: json.loads(value) if value.startswith('"') else value
                    for name, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|[^ ]*)', fields)
                }


def test_a_result_is_followed_back_to_the_batches_it_came_from(shared_mars: MarsCluster) -> None:
    mars = shared_mars
    mars.topic(NAME, 1)
    fields = {"timestamp": "timestamp_ms", "sip": "string"}
    stream = {"topic": NAME, "format": "json", "fields": fields, "event_time": "timestamp"}
    mars.client.put_stream(NAME, stream)
    sql = f"SELECT sip, timestamp, count(*) FROM {NAME} GROUP BY sip, timestamp WINDOWING 10 s"
    mars.client.create_task(NAME, sql, start="earliest", options={"idle_after": "1h"})
    rows = [{"timestamp": START_MS + second * 1000, "sip": "a"} for second in (1, 2, 3, 60)]
    mars.produce(NAME, [(0, json.dumps(row).encode()) for row in rows])

    ((_key, _value, headers),) = mars.read_until(f"mars.results.{NAME}", 1)
    (part,) = decode_ranges(headers["mars-ranges"].encode())
    bucket, emit = headers["mars-bucket"], headers["mars-emit"]

    def commits() -> list[dict[str, str]]:
        found = lines(mars, "reducer", "results committed")
        wanted = (NAME, bucket, emit)
        return [one for one in found if (one["task"], one["bucket"], one["emit"]) == wanted]

    (commit,) = wait_for("the commit's line", commits)
    assert ast.literal_eval(commit["merged"])[part.lane] >= part.next
    written = {
        one["batch"]: RANGE.findall(one["ranges"])
        for one in lines(mars, "mapper", "batch written")
        if one["batch"].startswith(f"{NAME}/")
    }
    traces = {
        trace
        for trace, ranges in written.items()
        for lane, first, after in ranges
        if lane == part.lane and int(first) < part.next and part.first < int(after)
    }
    read = {
        one["batch"]
        for one in lines(mars, "reducer", "batch read")
        if one["bucket"] == bucket and one["batch"].startswith(f"{NAME}/")
    }
    assert traces
    assert traces <= read
