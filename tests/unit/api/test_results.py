"""Finished windows: the last ones, and as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from api.services.inside.naming import AskedWindow
from api.services.inside.results import _own
from mars.adapters.kafka.read.rows import committed_row
from mars.core.errors import TooMany
from mars.core.types import Bucket, Lane, Range
from mars.protocol.ports import CommittedRow, RecentRows, ResultGap
from tests.unit.api.twins import World, problem


def committed(
    window_start: int, sip: str, count: int, *, partition: int = 0, complete: bool = True
) -> CommittedRow:
    key = [window_start, sip]
    value = {
        "window_start": window_start,
        "window_end": window_start + 60_000,
        "sip": sip,
        "count": count,
    }
    return CommittedRow(
        partition=partition,
        offset=window_start // 1_000 + count,
        key=json.dumps(key).encode(),
        value=json.dumps(value).encode(),
        version=1,
        revision=0,
        complete=complete,
    )


@pytest.fixture
def finished(world: World) -> World:
    assert world.register().status_code == 201
    world.kafka.rows = [
        committed(0, "a", 1, complete=False),
        committed(60_000, "a", 2),
        committed(60_000, "b", 3),
    ]
    return world


def test_last_windows_come_newest_first(finished: World) -> None:
    answer = finished.http.get("/v1/tasks/by_sip/results").json()
    assert [
        (window["window_start"], window["window_end"], window["complete"], len(window["rows"]))
        for window in answer["windows"]
    ] == [(60_000, 120_000, True, 2), (0, 60_000, False, 1)]
    assert answer["windows"][1]["rows"] == [
        {"window_start": 0, "window_end": 60_000, "sip": "a", "count": 1}
    ]
    assert answer["truncated"] is False


def test_rows_of_one_window_from_several_partitions_are_in_order_of_their_keys(
    finished: World,
) -> None:
    finished.kafka.rows = [
        committed(0, sip, 1, partition=partition)
        for partition, sip in ((0, "c"), (1, "a"), (1, "d"), (2, "b"))
    ]
    (window,) = finished.http.get("/v1/tasks/by_sip/results").json()["windows"]
    assert [row["sip"] for row in window["rows"]] == ["a", "b", "c", "d"]


def test_rows_of_a_query_with_an_order_keep_it(world: World) -> None:
    sql = "SELECT sip, count(*) AS n FROM flows GROUP BY sip ORDER BY n LIMIT 2 WINDOWING 60 s"
    assert world.register(sql=sql).status_code == 201
    world.kafka.rows = [committed(0, "b", 1), committed(0, "a", 2)]
    (window,) = world.http.get("/v1/tasks/by_sip/results").json()["windows"]
    assert [row["sip"] for row in window["rows"]] == ["b", "a"]


def test_one_window_can_be_asked_for(finished: World) -> None:
    answer = finished.http.get("/v1/tasks/by_sip/results", params={"window_start": 0}).json()
    assert [window["window_start"] for window in answer["windows"]] == [0]


def test_limit_leaves_out_older_rows_and_says_so(finished: World) -> None:
    answer = finished.http.get("/v1/tasks/by_sip/results", params={"limit": 2}).json()
    assert [len(window["rows"]) for window in answer["windows"]] == [2]
    assert answer["truncated"] is True


def test_task_without_results_has_no_windows(world: World) -> None:
    assert world.register().status_code == 201
    answer = world.http.get("/v1/tasks/by_sip/results").json()
    assert answer == {"windows": [], "truncated": False, "revised": []}


def test_unknown_task_answers_404_to_a_stream_too(world: World) -> None:
    answer = world.http.get("/v1/tasks/no/results", headers={"Accept": "text/event-stream"})
    problem(answer, 404)


# ---------------------------------------------------------------------------- event streams


def after(polls: int) -> Any:
    """A client that goes after so many looks."""
    left = [polls]

    async def gone() -> bool:
        left[0] -= 1
        return left[0] < 0

    return gone


def follow(world: World, polls: int, last_event_id: str | None = None) -> list[bytes]:
    async def all_of_it() -> list[bytes]:
        events = await world.services.results.follow("by_sip", after(polls), last_event_id)
        world.kafka.rows.append(committed(120_000, "c", 4, partition=2))
        return [event async for event in events]

    return asyncio.run(all_of_it())


def test_stream_sends_rows_that_are_committed_after_it_began(finished: World) -> None:
    comment, event = follow(finished, polls=2)
    assert comment.startswith(b": ")
    row = finished.kafka.rows[-1]
    assert event == b"event: result\nid: 2:124/7,8,125\ndata: " + row.value + b"\n\n"


def test_stream_says_once_where_the_rows_of_a_window_and_bucket_come_from(finished: World) -> None:
    ranges = (Range(Lane("0"), 5, 9),)
    first = replace(committed(180_000, "a", 1), bucket=Bucket(3), ranges=ranges, rows=7)
    second = replace(first, key=b'[180000,"b"]')

    async def all_of_it() -> list[bytes]:
        events = await finished.services.results.follow("by_sip", after(2), None)
        finished.kafka.rows += [first, second]
        return [event async for event in events]

    _comment, events = asyncio.run(all_of_it())
    source = b'{"bucket":3,"rows":7,"ranges":{"0":[5,9]},"revision":0,"deleted":false}'
    assert events.startswith(b"event: source\ndata: " + source + b"\n\n")
    assert (events.count(b"event: source"), events.count(b"event: result")) == (1, 2)


def test_stream_says_what_is_gone_and_goes_on_behind_it(finished: World) -> None:
    async def all_of_it() -> list[bytes]:
        events = await finished.services.results.follow("by_sip", after(2), None)
        finished.kafka.followers[-1].gaps.append(ResultGap(1, 8, 20))
        finished.kafka.rows.append(committed(120_000, "c", 4, partition=2))
        return [event async for event in events]

    _comment, events = asyncio.run(all_of_it())
    gap = b'id: /7,20,9\nevent: gap\ndata: {"partition":1,"first":8,"next":20}\n\n'
    assert events.startswith(gap + b"event: result\nid: 2:124/7,20,125\n")


def test_stream_names_partitions_that_were_added_in_its_ids(finished: World) -> None:
    async def all_of_it() -> list[bytes]:
        events = await finished.services.results.follow("by_sip", after(2), None)
        finished.kafka.followers[-1].starts |= {3: 0, 4: 0}
        finished.kafka.rows.append(committed(120_000, "c", 4, partition=4))
        return [event async for event in events]

    _comment, events = asyncio.run(all_of_it())
    assert events.startswith(b"event: result\nid: 4:124/7,8,9,0,125\n")


@pytest.mark.parametrize(("last", "whole"), [("2:4/7,8,5", True), ("/7,8,5", True), ("2:4", False)])
def test_who_goes_on_gets_all_rows_of_partitions_that_his_event_did_not_know(
    finished: World, last: str, whole: bool
) -> None:
    follow(finished, 1, last)
    (follower,) = finished.kafka.followers
    assert follower.after == ({0: 7, 1: 8, 2: 5} if whole else {2: 5})
    assert follower.whole is whole


def test_finished_windows_say_where_each_bucket_counted_from(finished: World) -> None:
    ranges = (Range(Lane("0"), 5, 9), Range(Lane("1@b1"), 0, 3))
    row = replace(committed(180_000, "a", 1), bucket=Bucket(3), ranges=ranges, rows=7)
    finished.kafka.rows.append(row)
    (window,) = finished.http.get(
        "/v1/tasks/by_sip/results", params={"window_start": 180_000}
    ).json()["windows"]
    spans = {"0": [5, 9], "1@b1": [0, 3]}
    assert window["sources"] == [
        {"bucket": 3, "rows": 7, "ranges": spans, "revision": 0, "deleted": False}
    ]


def test_finished_windows_show_the_newest_revision_of_each_group(finished: World) -> None:
    again = replace(committed(60_000, "a", 4), revision=1, offset=70, partition=1)
    gone = replace(committed(0, "a", 9), revision=2, offset=71, deleted=True)
    finished.kafka.rows += [again, gone]

    (window,) = finished.http.get("/v1/tasks/by_sip/results").json()["windows"]

    assert (window["window_start"], window["revision"]) == (60_000, 1)
    assert {row["sip"]: row["count"] for row in window["rows"]} == {"a": 4, "b": 3}


def revised(row: CommittedRow, count: int, revision: int = 1) -> CommittedRow:
    value = json.loads(row.value) | {"count": count}
    return replace(row, value=json.dumps(value).encode(), revision=revision)


def results(world: World, **parameters: int) -> dict[str, Any]:
    answer = world.http.get("/v1/tasks/by_sip/results", params=parameters)
    found: dict[str, Any] = answer.json()
    return found


def shown(answer: dict[str, Any]) -> list[tuple[int, int, bool]]:
    return [(one["window_start"], len(one["rows"]), one["truncated"]) for one in answer["windows"]]


def test_an_old_window_is_not_shown_by_its_revised_rows_alone(finished: World) -> None:
    old = [committed(0, sip, 1) for sip in "abcd"]
    new = [committed(60_000, sip, 2) for sip in "abcd"]
    finished.kafka.rows = [*old, *new, revised(old[1], 5)]

    answer = results(finished, limit=4)
    assert shown(answer) == [(60_000, 4, False)]
    assert answer["truncated"] is True
    assert answer["revised"] == [
        {"window_start": 0, "version": 1, "revision": 1, "window_end": 60_000}
    ]

    answer = results(finished, limit=8)
    assert shown(answer) == [(60_000, 4, False), (0, 4, False)]
    assert (answer["truncated"], answer["revised"]) == (False, [])
    assert [row["count"] for row in answer["windows"][1]["rows"]] == [1, 5, 1, 1]


def test_many_revisions_of_old_windows_do_not_hide_the_newest(finished: World) -> None:
    old = [committed(0, sip, 1) for sip in "ab"]
    new = [committed(60_000, sip, 2) for sip in "ab"]
    again = [revised(old[0], number, number) for number in range(1, 10)]
    finished.kafka.rows = [*old, *new, *again]
    assert shown(results(finished, limit=2)) == [(60_000, 2, False)]
    assert results(finished, limit=2)["revised"][0]["revision"] == 9


def test_a_window_is_shown_whole_or_not_at_all_but_for_the_newest(finished: World) -> None:
    finished.kafka.rows = [committed(60_000 * n, sip, 1) for n in range(3) for sip in "abc"]
    for limit, expected in (
        (9, [(120_000, 3, False), (60_000, 3, False), (0, 3, False)]),
        (8, [(120_000, 3, False), (60_000, 3, False)]),
        (3, [(120_000, 3, False)]),
        (2, [(120_000, 2, True)]),
    ):
        answer = results(finished, limit=limit)
        assert shown(answer) == expected
        assert answer["truncated"] is (limit < 9)


def test_an_answer_is_made_anew_only_when_the_rows_are_others(
    finished: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = RecentRows(tuple(finished.kafka.rows))
    monkeypatch.setattr(finished.services.results._ports.results, "recent", lambda *_: found)
    made = [finished.services.results.recent("by_sip", AskedWindow(), 10) for _ in range(2)]
    assert made[0] is made[1]
    found = RecentRows((*found.rows, committed(120_000, "a", 7)))
    assert b'"count":7' in finished.services.results.recent("by_sip", AskedWindow(), 10)


def test_results_of_an_earlier_task_of_the_name_are_not_shown(finished: World) -> None:
    assert finished.http.delete("/v1/tasks/by_sip").status_code == 204
    assert finished.register().status_code == 201
    for parameters in ({}, {"window_start": 60_000}, {"limit": 1}):
        answer = results(finished, **parameters)
        assert answer == {"windows": [], "truncated": False, "revised": []}
    finished.kafka.rows.append(replace(committed(60_000, "a", 9), version=2))
    for parameters in ({}, {"window_start": 60_000}, {"limit": 1}):
        answer = results(finished, **parameters)
        assert shown(answer) == [(60_000, 1, False)]
        assert answer["windows"][0]["rows"][0]["count"] == 9
        assert answer["truncated"] is False


def test_rows_of_this_task_may_be_missing_where_none_of_an_earlier_one_lies_before_them() -> None:
    theirs, mine = committed(0, "a", 1), replace(committed(60_000, "a", 2), version=2)
    elsewhere = replace(mine, partition=1)
    assert _own(RecentRows((theirs, mine), 5), 2) == RecentRows((mine,), None)
    assert _own(RecentRows((theirs, mine, elsewhere), 5), 2) == RecentRows((mine, elsewhere), 5)
    assert _own(RecentRows((mine,), 5), 2) == RecentRows((mine,), 5)


def test_stream_has_no_rows_of_an_earlier_task_of_the_name(finished: World) -> None:
    finished.alter(first_version=2)

    async def all_of_it() -> list[bytes]:
        events = await finished.services.results.follow("by_sip", after(2), None)
        finished.kafka.rows.append(committed(120_000, "theirs", 4))
        finished.kafka.rows.append(replace(committed(120_000, "mine", 4), version=2))
        return [event async for event in events]

    _comment, event = asyncio.run(all_of_it())
    assert event.count(b"event: result") == 1
    assert b'"mine"' in event


# ------------------------------------------------------------------------- somebody else's rows


OURS = {"mars-task": b"by_sip", "mars-version": b"1", "mars-bucket": b"2"}


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"[0]", b"{}", {"mars-version": b"newest"}),
        (b"[0]", b"{}", {"mars-revision": b""}),
        (b"[0]", b"{}", {"mars-bucket": b"1.5"}),
        (b"[0]", b"{}", {"mars-emit": b"9" * 5_000}),
        (b"[0]", b"{}", {"mars-rows": b"-"}),
        (b"key", b"{}", {}),
        (b"", b"{}", {}),
        (b"[0]", b"7", {}),
        (b"[0]", b"[]", {}),
        (b"[0]", b"", {}),
        (b"[0]", b'{"a":1}\n\ndata: {"forged":1}', {}),
        (b"[0]", b'{"a":\r1}', {}),
        (None, b"{}", {}),
        (b"[0]", None, {}),
        (b"[0]", b"{}", {"mars-task": b"other"}),
    ],
)
def test_records_that_only_say_they_are_of_a_task_are_passed_over(
    key: bytes | None, value: bytes | None, headers: dict[str, bytes]
) -> None:
    assert committed_row(0, 0, b"[0]", b"{}", OURS, b"by_sip") is not None
    assert committed_row(0, 0, key, value, {**OURS, **headers}, b"by_sip") is None


@pytest.mark.parametrize(
    "value", [b"{", b'{"a": nothing}', b'{"a": "\xff"}', b'{"a":' * 20_000, b'{"a": 1e999}']
)
def test_a_value_that_cannot_be_read_hides_no_other(finished: World, value: bytes) -> None:
    finished.kafka.rows.append(replace(committed(60_000, "x", 1), value=value))
    assert [len(window["rows"]) for window in results(finished)["windows"]] == [2, 1]


# ------------------------------------------------------------------------------ more of streams


def test_stream_gives_its_place_before_the_first_row(finished: World) -> None:
    (comment,) = follow(finished, polls=0)
    assert comment == b": results as they are committed\nid: /7,8,9\n\n"


@pytest.mark.parametrize(
    ("last_event_id", "positions"),
    [
        ("2:124/7,8,125", {0: 7, 1: 8, 2: 125}),
        ("/7,8,9", {0: 7, 1: 8, 2: 9}),
        ("2:124", {2: 125}),
        (None, {}),
    ],
)
def test_stream_goes_on_behind_the_last_event_that_a_client_saw(
    finished: World, last_event_id: str | None, positions: dict[int, int]
) -> None:
    follow(finished, 0, last_event_id)
    (follower,) = finished.kafka.followers
    assert follower.after == positions


@pytest.mark.parametrize("last_event_id", ["", "/", "1:2/", "1", "x", "1:2/3,", "1:²", "9" * 30])
def test_id_that_is_none_of_ours_is_refused(finished: World, last_event_id: str) -> None:
    answer = finished.http.get(
        "/v1/tasks/by_sip/results",
        headers={b"Accept": b"text/event-stream", b"Last-Event-ID": last_event_id.encode("utf-8")},
    )
    assert "Last-Event-ID" in problem(answer, 422)["detail"]
    assert finished.kafka.followers == []


def test_stream_ends_and_frees_its_consumer_when_the_client_goes(finished: World) -> None:
    follow(finished, polls=1)
    assert [follower.closed for follower in finished.kafka.followers] == [True]


def test_stream_that_is_dropped_half_way_frees_its_consumer(finished: World) -> None:
    async def dropped() -> None:
        events: AsyncIterator[bytes] = await finished.services.results.follow("by_sip", after(99))
        await anext(events)
        await events.aclose()  # type: ignore[attr-defined]

    asyncio.run(dropped())
    assert [follower.closed for follower in finished.kafka.followers] == [True]


def test_silent_stream_sends_a_comment_now_and_then(finished: World, monkeypatch: Any) -> None:
    monkeypatch.setattr("api.services.inside.results.HEARTBEAT_S", 0.0)
    events = follow(finished, polls=3)
    assert b": nothing new\n\n" in events


def test_stream_outlives_a_kafka_that_is_away(finished: World, monkeypatch: Any) -> None:
    monkeypatch.setattr("api.services.inside.results.POLL_S", 0.0)
    looks = [0]

    async def gone() -> bool:
        looks[0] += 1
        finished.kafka.server.away = looks[0] < 3
        return looks[0] > 4

    async def all_of_it() -> list[bytes]:
        events = await finished.services.results.follow("by_sip", gone)
        finished.kafka.rows.append(committed(120_000, "c", 4))
        return [event async for event in events]

    assert len(asyncio.run(all_of_it())) == 2


def test_followers_beyond_the_limit_are_refused_until_one_goes(finished: World) -> None:
    places = finished.services.results._places
    taken = [places.take() for _ in range(places.count)]
    with pytest.raises(TooMany):
        follow(finished, polls=1)
    answer = finished.http.get("/v1/tasks/by_sip/results", headers={"Accept": "text/event-stream"})
    problem(answer, 429)
    taken.pop()()
    assert follow(finished, polls=1)


def test_stream_over_http_ends_when_the_process_stops(finished: World) -> None:
    finished.stopping.set()
    answer = finished.http.get("/v1/tasks/by_sip/results", headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.content == b": results as they are committed\nid: /7,8,9\n\n"
