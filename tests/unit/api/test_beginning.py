"""Where a new task begins: how much of its history is left to Spark.

The world leaves more than 1,000 messages to Spark, in chunks of 400.
"""

from __future__ import annotations

from typing import Any

import pytest

from mars.core.definitions import LaneSpan
from mars.core.types import Lane, Range
from tests.unit.api.twins import BY_SIP, FLOWS, World, problem


@pytest.fixture
def long(world: World) -> World:
    """Partition 0 holds offsets 100 to 1000, partition 1 none, partition 2 0 to 101."""
    world.kafka.make_topic("flows", 3)
    world.kafka.start_offsets["flows"] = {0: 100, 1: 7, 2: 0}
    world.kafka.end_offsets["flows"] = {0: 1_000, 1: 7, 2: 101}
    world.files.sizes = {"/history": 1_000}
    return world


FILES: dict[str, Any] = {"files": "/history", "format": "parquet"}


def test_long_history_is_sparks_up_to_the_fence_and_the_mappers_from_there(long: World) -> None:
    assert long.register(start="earliest").status_code == 201
    definition = long.definition()
    (backfill,) = definition.backfills
    assert backfill.id == "b1"
    assert backfill.lanes == {
        Lane("0@b1"): LaneSpan(100, 1_000),
        Lane("2@b1"): LaneSpan(0, 101),
    }
    assert definition.current.starts == {
        Lane("0"): 1_000,
        Lane("1"): 7,
        Lane("2"): 101,
        Lane("0@b1"): 100,
        Lane("2@b1"): 0,
    }
    assert definition.current.complete_from_ms is None


def test_chunks_tile_the_history_and_are_as_large_as_configured(long: World) -> None:
    assert long.register(start="earliest").status_code == 201
    (backfill,) = long.definition().backfills
    assert backfill.chunks == 3
    chunks = [backfill.chunk(number) for number in range(3)]
    assert chunks[0] == (Range(Lane("0@b1"), 100, 400), Range(Lane("2@b1"), 0, 33))
    assert chunks[-1][-1].next == 101


def test_history_from_a_timestamp_is_what_came_after_it(long: World) -> None:
    long.kafka.timed_offsets["flows"] = {0: 0, 1: 0, 2: 101}
    long.kafka.end_offsets["flows"][0] = 1_001
    assert long.register(start={"timestamp": 777}).status_code == 201
    (backfill,) = long.definition().backfills
    assert backfill.lanes == {Lane("0@b1"): LaneSpan(0, 1_001), Lane("1@b1"): LaneSpan(0, 7)}
    assert long.definition().current.complete_from_ms == 777


def test_short_history_is_left_to_the_mappers(long: World) -> None:
    long.kafka.end_offsets["flows"][2] = 100
    assert long.register(start="earliest").status_code == 201
    assert long.definition().backfills == ()
    assert long.definition().current.starts == {Lane("0"): 100, Lane("1"): 7, Lane("2"): 0}


@pytest.mark.parametrize("scope", ["bucket", "key"])
def test_a_history_goes_by_partitions_only(long: World, scope: str) -> None:
    refused = long.register(start="earliest", options={"watermark": scope})
    assert refused.status_code == 422
    assert "history" in refused.json()["detail"]
    assert long.register(options={"watermark": scope}).status_code == 201


def test_rows_of_files_have_nothing_of_records(long: World) -> None:
    """A query that reads none of it may have a history from files all the same."""
    fields = {**FLOWS["fields"], "place": {"type": "int64", "from": "$offset"}}
    assert long.declare("rich", fields=fields).status_code == 201
    sql = BY_SIP.replace("flows", "rich")
    reads = sql.replace("count(*)", "max(place)")
    refused = problem(long.register(sql=reads, history=FILES), 422)
    assert (
        "field place is $offset of a record, which rows of files do not have" in refused["detail"]
    )
    assert long.register(sql=sql, history=FILES).status_code == 201
    long.begin_newest()
    changed = long.http.put("/v1/tasks/by_sip", json={"sql": reads})
    assert "field place is $offset" in problem(changed, 422)["detail"]
    assert long.declare("of_record", event_time="$timestamp").status_code == 201
    counted = long.register("two", sql=BY_SIP.replace("flows", "of_record"), history=FILES)
    assert "field $timestamp is $timestamp of a record" in problem(counted, 422)["detail"]


def test_latest_has_no_history(long: World) -> None:
    assert long.register().status_code == 201
    assert long.definition().backfills == ()


def test_files_are_a_lane_of_their_own_before_the_live_rows(long: World) -> None:
    answer = long.register(start="latest", history={**FILES, "until": 60_000})
    assert answer.status_code == 201
    definition = long.definition()
    (backfill,) = definition.backfills
    assert (backfill.id, backfill.chunks) == ("b2", 3)
    assert backfill.lanes == {Lane("f@b2"): LaneSpan(0, 1_000)}
    assert backfill.files is not None
    assert (backfill.files.format, backfill.files.until_ms) == ("parquet", 60_000)
    assert definition.current.starts == {
        Lane("0"): 1_000,
        Lane("1"): 7,
        Lane("2"): 101,
        Lane("f@b2"): 0,
    }


@pytest.mark.parametrize(
    ("start", "until_ms", "unread_ms"),
    [
        ("latest", 60_000, (60_000, 1_000_000)),
        ("latest", 999_999, (999_999, 1_000_000)),
        ("latest", 1_000_000, None),  # up to now
        ("latest", 2_000_000, None),
        ("latest", None, None),
        ({"timestamp": 60_000}, 60_000, None),
        ({"timestamp": 60_000}, 50_000, (50_000, 60_000)),
        ("earliest", 60_000, None),  # from when on the topic has rows is not known
    ],
)
def test_the_time_between_the_end_of_files_and_the_topics_rows_is_unread(
    long: World, start: object, until_ms: int | None, unread_ms: tuple[int, int] | None
) -> None:
    """Windows between them once said that they were complete."""
    long.now_ms = 1_000_000
    history = {**FILES, "until": until_ms}
    assert long.register(start=start, history=history).status_code == 201
    current = long.definition().current
    assert (current.complete_from_ms, current.unread_ms) == (None, unread_ms)


def test_files_and_topic_may_both_be_history(long: World) -> None:
    assert long.register(start="earliest", history=FILES).status_code == 201
    assert [backfill.id for backfill in long.definition().backfills] == ["b1", "b2"]


def test_chunks_of_text_files_are_of_more_bytes_than_rows(long: World) -> None:
    long.files.sizes["/text"] = 400 * 200 + 1
    history = {"files": "/text", "format": "csv", "csv_header": True}
    assert long.register(history=history).status_code == 201
    (backfill,) = long.definition().backfills
    assert backfill.chunks == 2
    assert backfill.files is not None
    assert backfill.files.csv_header


def test_files_that_are_not_there_are_refused_and_nothing_is_made(long: World) -> None:
    answer = long.register(history={**FILES, "files": "/nowhere"})
    assert "/nowhere" in problem(answer, 422)["detail"]
    problem(long.http.get("/v1/tasks/by_sip"), 404)
    assert "mars.results.by_sip" not in long.kafka.topics


@pytest.mark.parametrize(
    "history",
    [
        {},
        {"files": "/history"},
        {"files": "", "format": "csv"},
        {"files": "/history", "format": "xml"},
        {"files": "/history", "format": "csv", "until": "soon"},
        {"files": "/history", "format": "csv", "other": 1},
        "/history",
    ],
)
def test_other_histories_are_refused(long: World, history: object) -> None:
    problem(long.register(history=history), 422)


def test_task_that_takes_a_deleted_ones_name_has_its_own_history(long: World) -> None:
    assert long.register().status_code == 201
    assert long.http.delete("/v1/tasks/by_sip").status_code == 204
    assert long.register(start="earliest").status_code == 201
    assert [backfill.id for backfill in long.definition().backfills] == ["b1"]
