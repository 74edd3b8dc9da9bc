"""What the API says of tasks whose windows are sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from mars.adapters.kafka.wire import state_key
from mars.core.types import (
    Bucket,
    Entry,
    Partial,
    Records,
    RowCounts,
    Sequence64,
    TaskName,
    Topic,
    live_lane,
)
from mars.engine.codec.snapshot import encode_snapshot, parts_checksum
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import CommittedRow, Progress, Snapshot, WantedSessions
from tests.unit.api.emitting import committed
from tests.unit.api.twins import BUCKETS, EPOCH, World, problem

SQL = "SELECT sip, count(*) AS n FROM flows GROUP BY sip WINDOWING SESSION 10 s MAX 1 min"


@pytest.fixture
def visits(world: World) -> World:
    """Three rows of one group, of which the last is more than a gap behind."""
    assert world.register(sql=SQL, start="earliest").status_code == 201
    world.start_in_store()
    rows = [{"timestamp": at, "sip": "a"} for at in (5_000, 9_000, 30_000)]
    world.run_batch(rows)
    return world


def test_plan_says_how_long_sessions_are_and_how_far_apart(world: World) -> None:
    window = world.register(sql=SQL).json()["plan"]["window"]
    assert (window["kind"], window["size_ms"], window["slide_ms"]) == ("session", 60_000, 10_000)
    assert (window["size"], window["slide"]) == ("1 min", "10 s")


def test_open_sessions_are_shown_each_with_its_rows(visits: World) -> None:
    windows = visits.http.get("/v1/tasks/by_sip/windows").json()["windows"]
    shown = [(one["window_start"], one["window_end"], one["rows"][0]["n"]) for one in windows]
    assert shown == [(5_000, 19_000, 2), (30_000, 40_000, 1)]


def test_the_ledger_of_a_session_is_refused(visits: World) -> None:
    answer = visits.http.get("/v1/tasks/by_sip/ledger", params={"window_start": 5_000})
    assert "sessions have no ledger of their own" in problem(answer, 422)["detail"]


def test_a_time_names_all_sessions_that_begin_then(world: World) -> None:
    assert world.register(sql=SQL, start="earliest").status_code == 201
    sessions = [(5_000, 19_000, b"a"), (5_000, 15_000, b"b"), (5_000, 15_000, b"c")]
    for start, end, sip in [*sessions, (5_001, 15_001, b"d")]:
        value = b'{"window_start":%d,"window_end":%d,"sip":"%s","n":2}' % (start, end, sip)
        world.kafka.rows.append(committed(0, b'[%d,"%s"]' % (start, sip), value, 2))

    def listed(**query: int) -> list[tuple[int, list[str]]]:
        answer = world.http.get("/v1/tasks/by_sip/results", params=query).json()
        shown = answer["windows"]
        return [(one["window_end"], [row["sip"] for row in one["rows"]]) for one in shown]

    assert listed(window_start=5_000) == [(19_000, ["a"]), (15_000, ["b", "c"])]
    assert listed(window_start=5_000, window_end=15_000) == [(15_000, ["b", "c"])]
    assert listed(window_start=5_002) == []


def test_rows_before_sessions_that_are_wanted_are_of_a_commit_before_theirs() -> None:
    """Commits emit sessions by their ends, and in no order within."""
    wanted = WantedSessions(50_000, None, 60_000)

    def row(emit: int, end_ms: int, bucket: int = 0) -> CommittedRow:
        value = b'{"window_start":0,"window_end":%d}' % end_ms
        return replace(committed(bucket, b"[0]", value, 2), emit=emit)

    assert not wanted.is_behind([row(5, 59_999)]), "more of this commit may lie before it"
    assert not wanted.is_behind([row(4, 61_000), row(5, 60_000)])
    assert not wanted.is_behind([row(4, 20_000, bucket=1), row(5, 59_999)])
    assert wanted.is_behind([row(4, 61_000), row(5, 59_999)])


def test_a_query_over_history_is_taken(world: World) -> None:
    assert world.http.post("/v1/queries", json={"sql": SQL}).status_code == 202


def states_alone(part: Partial) -> Partial:
    """As it stands where rows are merged that are accounted."""
    return replace(part, counts=RowCounts())


def anchor(world: World, rows: Sequence[Mapping[str, object]]) -> None:
    """All buckets commit what the log has, and of the one that has rows these are saved; others of
    it came too late.
    """
    plan, merged = world.plan(), {live_lane(0): 3, live_lane(1): 0}
    values = [json.dumps(row).encode() for row in rows]
    records = Records(live_lane(0), 0, 3, values, range(len(rows)), [-1] * len(rows))
    mapped = map_batch(plan, BUCKETS, decode(plan.stream, plan.fields, records))
    for part in mapped.partials:
        world.commit(part.bucket, merged=merged, read=3, counted=len(rows), late=3 - len(rows))
        if part.panes:
            parts = encode_snapshot(Entry(Sequence64(0), 1, mapped.ranges, states_alone(part)))
            key = state_key(TaskName("by_sip"), 1, part.bucket, 0)
            world.broker.append(Topic("mars.state"), part.bucket, parts[0], key=key)
            saved = Snapshot(merged, 60_000, len(parts), parts_checksum(parts), 0, 0)
            own = world.kafka.progress[part.bucket]
            assert isinstance(own[-1], Progress)
            own[-1] = replace(own[-1], snapshot=saved, anchored=True)


def shown(world: World) -> list[tuple[int, int, int]]:
    """Begin, end and rows of the open sessions."""
    windows = world.http.get("/v1/tasks/by_sip/windows").json()["windows"]
    return [(one["window_start"], one["window_end"], one["rows"][0]["n"]) for one in windows]


def lose_saved(world: World) -> None:
    """What was saved is not there any more."""
    for records in world.kafka.progress.values():
        if isinstance(records[-1], Progress) and records[-1].snapshot is not None:
            lost = replace(records[-1].snapshot, checksum=1)
            records[-1] = replace(records[-1], snapshot=lost)


def test_open_sessions_are_those_that_were_saved(visits: World) -> None:
    """The log still has the entries below the anchor, which are passed over."""
    anchor(visits, [{"timestamp": at, "sip": "a"} for at in (5_000, 30_000)])
    assert shown(visits) == [(5_000, 15_000, 1), (30_000, 40_000, 1)]

    visits.run_batch([{"timestamp": 33_000, "sip": "a"}], first=3)
    assert shown(visits) == [(5_000, 15_000, 1), (30_000, 43_000, 2)]


def test_open_sessions_are_those_of_a_log_that_was_merged_since(visits: World) -> None:
    anchor(visits, [{"timestamp": at, "sip": "a"} for at in (5_000, 30_000)])
    name = TaskName("by_sip")
    head = visits.log.head([name])[name]
    assert head is not None
    for bucket in map(Bucket, range(BUCKETS)):
        for entry in visits.log.read(name, bucket, Sequence64(0), head.seq).entries:
            base = replace(entry, partial=states_alone(entry.partial))
            assert visits.log.compact(name, EPOCH, head.born, bucket, base)
    lose_saved(visits)
    assert shown(visits) == [(5_000, 19_000, 2), (30_000, 40_000, 1)]


def test_what_was_saved_anew_meanwhile_is_to_be_asked_for_again(visits: World) -> None:
    anchor(visits, [{"timestamp": 5_000, "sip": "a"}])
    lose_saved(visits)
    answer = visits.http.get("/v1/tasks/by_sip/windows")
    assert "Ask again: what is open may have been saved anew" in problem(answer, 409)["detail"]
