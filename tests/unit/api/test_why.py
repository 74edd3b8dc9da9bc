"""Why no result is coming, and where rows went."""

from __future__ import annotations

from typing import Any

import pytest

from mars.core.definitions import TaskState
from mars.core.types import Bucket, Sequence64, StoreEpoch, TaskName, Topic, live_lane
from mars.protocol.ports import DeadLetter, IdleLease, Incident, IncidentKind
from tests.unit.api.twins import World, problem

ROWS = [
    {"timestamp": 5_000, "sip": "10.0.0.1", "bytes": 1},
    {"timestamp": 9_000, "sip": "10.0.0.2", "bytes": 2},
]


@pytest.fixture
def busy(world: World) -> World:
    """A task with two rows of partition 0 in an open window, read by mapper-1."""
    assert world.register(start="earliest").status_code == 201
    world.start_in_store()
    world.join_mapper("reading", "reading")
    world.join_reducer()
    world.run_batch(ROWS)
    return world


def why(world: World) -> dict[str, Any]:
    answer = world.http.get("/v1/tasks/by_sip/why")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_open_window_names_the_partition_that_holds_it(busy: World) -> None:
    busy.kafka.end_offsets["flows"][1] = 30
    answer = why(busy)
    (window,) = answer["windows"]
    assert (window["window_start"], window["window_end"]) == (0, 60_000)
    assert window["held_by"] == {
        "lane": "1",
        "partition": 1,
        "bucket": None,
        "reason": "behind",
        "member": "mapper-1",
        "watermark": None,
        "lag": 30,
    }
    assert window["expected_close"] is None
    assert window["rows"] == 2
    assert window["partitions"][0] == {
        "lane": "0",
        "partition": 0,
        "watermark": 9_000,
        "lag": 0,
        "idle": False,
        "reason": "silent",
        "member": "mapper-1",
    }
    assert "mapper-1 has 30 rows of partition 1" in answer["summary"]


def test_idle_partitions_let_event_time_go_on_from_the_newest_row(busy: World) -> None:
    taken_ms = busy.now_ms
    places = [(live_lane(0), 2), (live_lane(1), 0)]
    task, epoch = TaskName("by_sip"), StoreEpoch(1)
    leases = [IdleLease(task, epoch, lane, offset, 1) for lane, offset in places]
    assert busy.log.renew_idle(leases) == [True, True]
    (window,) = why(busy)["windows"]
    assert window["held_by"]["reason"] == "idle"
    # as far as the window's end is from the newest row, of 9 s, and idle_after
    assert window["expected_close"] == taken_ms + 51_000 + 5_000


def test_window_without_a_mapper_has_no_owner(busy: World) -> None:
    busy.coordinator("mapper-1").close()
    assert why(busy)["windows"][0]["held_by"]["reason"] == "no_owner"


def test_paused_task_says_so(busy: World) -> None:
    busy.alter(state=TaskState.PAUSED)
    answer = why(busy)
    assert answer["windows"][0]["held_by"]["reason"] == "paused"
    assert "resume" in answer["summary"]


def test_what_happened_lately_is_told_unless_the_task_came_later(busy: World) -> None:
    created_ms = busy.definition().current.created_ms
    for time_ms, told in ((created_ms - 1, False), (created_ms, True)):
        lost = Incident(f"i{time_ms}", time_ms, IncidentKind.REWOUND, "It was lost.", "", "Wait.")
        busy.incidents.put(lost)
        assert ("It was lost." in why(busy)["summary"]) is told


def test_window_that_every_bucket_has_closed_is_not_open(busy: World) -> None:
    for bucket in range(4):
        busy.commit(bucket, closed_ms=60_000, merged={live_lane(0): 2}, read=1, counted=1)
    answer = why(busy)
    assert answer["windows"] == []
    assert "closed up to 1970-01-01 00:01:00Z" in answer["summary"]


def test_rows_in_the_log_that_were_all_bad_are_named_before_they_are_committed(
    world: World,
) -> None:
    assert world.register(start="earliest").status_code == 201
    world.start_in_store()
    world.join_mapper("reading", "reading")
    world.join_reducer()
    world.run_batch([b"no json", b"nor this"])
    assert "of 2 rows read, 2 bad" in why(world)["summary"]


def test_dropped_rows_are_counted_and_sampled_newest_first(busy: World) -> None:
    busy.commit(1, read=9, bad=2, future=3, late=4)
    flows, task = Topic("flows"), TaskName("by_sip")
    busy.kafka.letters = [
        DeadLetter(task, flows, 0, 7, 8, "wrong_type", 1),
        DeadLetter(TaskName("other"), flows, 0, 8, 9, "wrong_type", 1),
        DeadLetter(task, flows, 1, 20, 30, "late", 6, window_start_ms=0),
    ]
    assert why(busy)["dropped"] == {
        "bad": 2,
        "future": 3,
        "late": 4,
        "samples": [
            {"partition": 1, "offset": 20, "next": 30, "rows": 6, "reason": "late"},
            {"partition": 0, "offset": 7, "next": 8, "rows": 1, "reason": "wrong_type"},
        ],
    }


def test_task_that_the_leader_has_not_started_says_so(world: World) -> None:
    assert world.register().status_code == 201
    assert "No reducer runs" in why(world)["summary"]
    world.join_reducer()
    assert "has not started the task" in why(world)["summary"]


def test_store_that_is_away_is_named_instead_of_an_error(busy: World) -> None:
    busy.log.fail_next("head")
    answer = why(busy)
    assert answer["windows"] == []
    assert "redis is not available" in answer["summary"]


def test_kafka_that_is_away_is_named_and_the_windows_are_still_shown(busy: World) -> None:
    busy.kafka.server.away = True
    answer = why(busy)
    assert len(answer["windows"]) == 1
    assert "kafka is not available" in answer["summary"]


# ------------------------------------------------------------------------- commits under way


def take_out_of_the_log(world: World, bucket: int) -> None:
    """What a reducer does with a bucket's log once its commit is answered."""
    name = TaskName("by_sip")
    seqs = [Sequence64(number) for number in range(1, 10)]
    head = world.log.head([name])[name]
    assert head is not None
    assert world.log.trim(name, head.epoch, head.born, Bucket(bucket), seqs)


@pytest.fixture
def committing(busy: World) -> World:
    """All rows are committed and out of the log, and Kafka does not show the commit yet."""
    for bucket in range(4):
        take_out_of_the_log(busy, bucket)
    busy.kafka.uncommitted = {Bucket(2): 1}
    return busy


def test_rows_on_their_way_into_the_progress_are_waited_for(committing: World) -> None:
    def shown_after_a_while(seconds: float) -> None:
        committing.slept_s.append(seconds)
        if len(committing.slept_s) == 3:
            committing.kafka.uncommitted = {}
            committing.commit(2, closed_ms=60_000, merged={live_lane(0): 2}, read=2, counted=2)

    committing.on_sleep = shown_after_a_while
    assert "closed up to 1970-01-01 00:01:00Z" in why(committing)["summary"]
    assert len(committing.slept_s) == 3


def test_where_a_commit_stays_unseen_nothing_is_said_of_the_rows(committing: World) -> None:
    said = why(committing)["summary"]
    assert "is not known yet" in said
    assert "No row has come" not in said
    assert 0 < len(committing.slept_s) < 100


def test_nobody_waits_for_commits_while_a_window_is_open(busy: World) -> None:
    busy.kafka.uncommitted = {Bucket(2): 1}
    assert len(why(busy)["windows"]) == 1
    assert busy.slept_s == []


# --------------------------------------------------------------------------------- ledger


def test_ledger_sums_the_newest_record_of_each_bucket_and_balances(busy: World) -> None:
    busy.commit(0, read=1, counted=1)
    busy.commit(0, read=10, filtered=1, bad=2, future=1, late=1, counted=5, emitted=3)
    busy.commit(3, read=4, counted=4, emitted=4, late_partly=2)
    ledger = busy.http.get("/v1/tasks/by_sip/ledger").json()
    assert ledger == {
        "read": 14,
        "filtered": 1,
        "bad": 2,
        "future": 1,
        "late": 1,
        "counted": 9,
        "emitted": 7,
        "open": 2,
        "late_partly": 2,
    }


def test_ledger_counts_all_versions_those_left_out_by_now_too(busy: World) -> None:
    busy.commit(0, version=1, read=5, counted=5)
    busy.commit(0, version=1, read=5, counted=5, emitted=5, deleted=True)
    busy.commit(0, version=2, read=7, counted=7)
    busy.commit(0, name="other", read=50, counted=50)
    assert busy.http.get("/v1/tasks/by_sip/ledger").json()["read"] == 12


def test_ledger_of_an_earlier_task_of_that_name_does_not_count(busy: World) -> None:
    busy.commit(0, version=1, read=5, counted=5)
    assert busy.http.delete("/v1/tasks/by_sip").status_code == 204
    assert busy.register().status_code == 201
    busy.commit(0, version=1, read=5, counted=5, emitted=5, deleted=True)
    busy.commit(0, version=2, read=7, counted=7)
    assert busy.http.get("/v1/tasks/by_sip/ledger").json()["read"] == 7


def test_ledger_is_never_older_than_the_question(busy: World) -> None:
    for read in range(1, 4):
        busy.commit(0, read=read, counted=read)
        assert busy.http.get("/v1/tasks/by_sip/ledger").json()["read"] == read


def test_requests_do_not_wait_one_by_one_for_a_kafka_that_is_away(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy.kafka.server.away = True
    problem(busy.http.get("/v1/tasks/by_sip/ledger"), 503)
    busy.kafka.server.away = False
    problem(busy.http.get("/v1/tasks/by_sip/ledger"), 503)
    now_s = busy.services.progress._monotonic_s()
    monkeypatch.setattr(busy.services.progress, "_monotonic_s", lambda: now_s + 2)
    assert busy.http.get("/v1/tasks/by_sip/ledger").status_code == 200


def test_ledger_without_kafka_answers_503(busy: World) -> None:
    busy.kafka.server.away = True
    assert problem(busy.http.get("/v1/tasks/by_sip/ledger"), 503)["service"] == "kafka"
