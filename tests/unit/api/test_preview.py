"""Previews: what a query would give and cost, over a topic's last seconds or given rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from api.callers import Caller, acting
from api.preview_schemas import PreviewRequest
from api.services.previews import reading as preview_reading
from api.services.previews import service as preview
from api.services.previews import trial as preview_trial
from api.services.previews import words as preview_words
from api.wiring import cluster_of
from mars.client.answers import Preview
from mars.core.errors import Rejected, SqlError
from mars.core.settings import Settings
from mars.core.types import Topic
from mars.engine.decode import parts as decode_parts
from mars.protocol.ports import Role
from tests.unit.api.twins import World, problem

SQL = "SELECT sip, count(*), sum(bytes) FROM flows GROUP BY sip WINDOWING 10 s"
NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def clock(world: World) -> None:
    world.now_ms = NOW_MS
    world.broker.create_topic(Topic("flows"), 2)


def send(
    world: World,
    rows: Iterable[Mapping[str, object] | bytes],
    partition: int = 0,
    ago_ms: int = 500,
) -> None:
    """Messages that came some time ago, in the topic and in what the brokers say of it."""
    for row in rows:
        value = row if isinstance(row, bytes) else json.dumps(row).encode()
        world.broker.append(Topic("flows"), partition, value, timestamp_ms=world.now_ms - ago_ms)
    log = world.broker.partition(Topic("flows"), partition)
    since = [one.offset for one in log.records if one.timestamp_ms >= world.now_ms - 10_000]
    world.kafka.timed_offsets["flows"][partition] = since[0] if since else log.stable_end
    world.kafka.end_offsets["flows"][partition] = log.stable_end


def flow(at_ms: int, sip: str = "a", **more: object) -> dict[str, object]:
    return {"timestamp": NOW_MS + at_ms, "sip": sip, "bytes": 10, **more}


def ask(world: World, **members: object) -> dict[str, Any]:
    answer = world.http.post("/v1/tasks/preview", json={"sql": SQL, **members})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_preview_gives_the_rows_that_the_task_would_emit(world: World) -> None:
    send(world, [flow(-9_000), flow(-8_000), flow(-1_000, "b")])
    send(world, [flow(-7_000)], partition=1)

    found = ask(world)

    assert found["source"] == "last_seconds"
    assert found["messages"] == 4
    assert found["counts"] == {"read": 4, "counted": 4, "filtered": 0, "bad": 0, "future": 0}
    (window,) = found["windows"]
    start = window["window_start"]
    assert (window["window_end"], window["groups"]) == (start + 10_000, 2)
    common = {"window_start": start, "window_end": start + 10_000}
    assert window["rows"] == [
        {**common, "sip": "a", "count": 3, "sum_bytes": 30},
        {**common, "sip": "b", "count": 1, "sum_bytes": 10},
    ]
    assert [column["name"] for column in found["output"]["columns"]][2:] == [
        "sip",
        "count",
        "sum_bytes",
    ]
    assert (found["truncated"], found["more_windows"], found["notes"]) == (False, False, [])


def test_preview_touches_nothing_and_frees_its_reader(world: World) -> None:
    send(world, [flow(-1_000)])
    before = world.registry.tasks(), set(world.kafka.topics), dict(world.kafka.progress)
    ask(world)
    assert (world.registry.tasks(), set(world.kafka.topics), dict(world.kafka.progress)) == before
    (reader,) = world.readers
    assert reader.lags() == {}
    assert world.broker.groups == {}


def test_a_stream_may_be_named_in_another_case(world: World) -> None:
    found = ask(world, sql=SQL.replace("flows", "Flows"), rows=[flow(-1_000)])
    assert found["counts"]["counted"] == 1


def test_cells_of_csv_that_are_passed_over_are_told(world: World) -> None:
    assert world.declare(format="csv", csv_delimiter=";").status_code == 200
    at = NOW_MS - 1_000
    lines = [f"{at};a;t;1;1;true", f"{at};a;t;1;1;true;x", f"{at};b;t"]
    send(world, [line.encode() for line in lines])
    found = ask(world)
    assert (found["counts"]["counted"], found["counts"]["bad"]) == (2, 1)
    told = "1 of 3 rows have more cells than the stream has fields: the extra cells are ignored."
    assert told in found["notes"]


def test_record_times_in_seconds_are_told_and_may_be_ignored(world: World) -> None:
    send(world, [flow(-1_000)], ago_ms=NOW_MS - NOW_MS // 1_000)
    found = ask(world)
    assert found["counts"]["future"] == 1
    assert any(note.startswith("Record times lie before 2001: have") for note in found["notes"])
    assert world.declare(record_time="ignore").status_code == 200
    found = ask(world)
    assert (found["counts"]["future"], found["counts"]["counted"]) == (0, 1)
    assert "Record times lie" not in str(found["notes"])
    assert "with one row of the year 9999 a partition holds no window open" in str(found["notes"])


def test_record_times_in_seconds_are_told_where_they_are_the_event_times(world: World) -> None:
    assert world.declare(event_time="$timestamp").status_code == 200
    send(world, [flow(0)], ago_ms=NOW_MS - NOW_MS // 1_000)
    told = "All event times lie before 2001: have the producer write Kafka's record time in"
    assert any(note.startswith(told) for note in ask(world)["notes"])


RICH = {"bytes": "int64", "who": {"type": "string", "from": "$key"}}
BY_WHO = "SELECT who, count(*), sum(bytes) FROM flows GROUP BY who WINDOWING 10 s"


def test_fields_of_records_are_read_from_the_topic_and_are_not_in_rows_of_the_request(
    world: World,
) -> None:
    assert world.declare(fields=RICH, event_time="$timestamp").status_code == 200
    for key in (b"a", b"b", b"a"):
        at = world.now_ms - 500
        world.broker.append(Topic("flows"), 0, b'{"bytes":1}', key=key, timestamp_ms=at)
    send(world, [])
    (window,) = ask(world, sql=BY_WHO)["windows"]
    assert [(row["who"], row["count"]) for row in window["rows"]] == [("a", 2), ("b", 1)]
    (window,) = ask(world, sql=BY_WHO, rows=[{"bytes": 3}])["windows"]
    assert [(row["who"], row["sum_bytes"]) for row in window["rows"]] == [(None, 3)]
    assert window["window_start"] == NOW_MS // 10_000 * 10_000


def test_preview_of_rows_in_the_request_reads_no_topic(world: World) -> None:
    assert world.declare(format="csv").status_code == 200
    found = ask(world, rows=[flow(-1_000), flow(-500), {"sip": "a"}, "no object"])
    assert found["source"] == "rows"
    assert found["counts"] == {"read": 4, "counted": 2, "filtered": 0, "bad": 2, "future": 0}
    assert [(row["offset"], row["reason"]) for row in found["rejected"]] == [
        (2, "no_event_time"),
        (3, "unreadable"),
    ]
    assert found["predictions"]["rows_per_second"] is None
    assert found["predictions"]["redis_bytes"] is None
    assert world.readers == []


def test_windows_are_the_newest_and_their_rows_limited(world: World) -> None:
    rows = [flow(10_000 * number, sip) for number in range(25) for sip in "abc"]
    found = ask(world, rows=rows, limit=2)
    starts = [window["window_start"] for window in found["windows"]]
    assert len(starts) == 20
    assert starts == sorted(starts)
    assert starts[-1] == NOW_MS + 240_000
    assert found["more_windows"]
    assert {(window["groups"], len(window["rows"])) for window in found["windows"]} == {(3, 2)}


def test_sliding_windows_are_made_of_their_panes(world: World) -> None:
    sql = "SELECT count(*) FROM flows WINDOWING 20 s SLIDE 10 s"
    found = ask(world, sql=sql, rows=[flow(0), flow(10_000), flow(10_001)])
    counts = [window["rows"][0]["count"] for window in found["windows"]]
    assert counts == [1, 3, 2]


# ------------------------------------------------------------------------------- predictions


def test_rates_and_sizes_are_predicted_from_the_last_seconds(world: World) -> None:
    send(world, [flow(-9_000 + number, f"sip-{number % 50}") for number in range(200)])
    found = ask(world, options={"delay": "5s"})["predictions"]
    assert found["rows_per_second"] == 20.0
    assert found["groups_per_window"] == 50
    assert found["groups_at_least"]
    assert 0 < found["redis_bytes_merged"] <= found["redis_bytes"] < found["redis_bytes_max"]
    assert "About 20 rows a second." in found["sentences"]
    assert any("in Redis" in sentence for sentence in found["sentences"])


@pytest.mark.parametrize(("age_ms", "rate"), [(4_000, 50.0), (1_000, 200.0), (9_999, 20.0)])
def test_the_rate_of_a_young_topic_is_that_since_its_first_message(
    world: World, age_ms: int, rate: float
) -> None:
    send(world, [flow(-number) for number in range(100)], ago_ms=age_ms)
    send(world, [flow(-number) for number in range(100)], ago_ms=0)
    assert ask(world)["predictions"]["rows_per_second"] == rate


def test_what_is_written_at_once_into_a_new_topic_is_no_rate(world: World) -> None:
    send(world, [flow(-number) for number in range(100)], ago_ms=999)
    send(world, [flow(-number) for number in range(100)], ago_ms=0)
    assert ask(world)["predictions"]["rows_per_second"] == 20.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_keys": 2}, "That is more than max_keys (2): the task would fail."),
        ({"max_keys": 2, "over_max_keys": "fold"}, "would become one row, __other__,"),
        ({"max_keys": 3}, None),
        ({}, None),
    ],
)
def test_more_groups_than_max_keys_are_told(
    world: World, options: dict[str, object], said: str | None
) -> None:
    found = ask(world, rows=[flow(0, sip) for sip in "abc"], options=options)["predictions"]
    assert "At least 3 groups a window." in found["sentences"]
    about = [sentence for sentence in found["sentences"] if "max_keys" in sentence]
    assert len(about) == (said is not None)
    assert said is None or said in about[0]


def test_delay_is_suggested_from_the_disorder_within_partitions(world: World) -> None:
    # Every tenth row is 3.9 s behind the one before: late for 39 % of the places of a border.
    rows = [flow(100 * number - (4_000 if number % 10 == 9 else 0)) for number in range(100)]
    found = ask(world, rows=rows)["predictions"]
    shares = {one["delay_ms"]: one["share"] for one in found["late"]}
    assert list(shares) == [0, 1_000, 5_000, 30_000, 60_000]
    assert shares[0] == pytest.approx(0.039)
    assert shares[1_000] == pytest.approx(0.029)
    assert shares[5_000] == 0
    assert found["disorder_max_ms"] == 3_900
    assert found["suggested_delay_ms"] == 5_000
    assert "use a delay of 5 s." in found["sentences"][-1]


def test_rows_in_order_need_no_delay(world: World) -> None:
    found = ask(world, rows=[flow(number) for number in range(10)])["predictions"]
    assert (found["suggested_delay_ms"], found["disorder_max_ms"]) == (0, 0)
    assert "a delay of 0 s is enough" in found["sentences"][-1]


def test_of_keys_that_lag_it_is_said_that_windows_may_close_key_by_key(world: World) -> None:
    rows = [
        flow(100 * number - (30_000 if sip == "slow" else 0), sip)
        for number in range(100)
        for sip in ("fast", "slow")
    ]
    found = ask(world, rows=rows)["predictions"]
    late = {one["delay_ms"]: one["share"] for one in found["late"]}
    by_key = {one["delay_ms"]: one["share"] for one in found["late_by_key"]}
    assert late[5_000] == pytest.approx(0.5, abs=0.05)
    assert late[30_000] == 0
    assert set(by_key.values()) == {0}
    assert (found["suggested_delay_ms"], found["disorder_max_ms"]) == (30_000, 30_000)
    said = "(watermark: key) a delay of 0 s is enough, and none would be late."
    assert said in found["sentences"][-1]

    options = {"watermark": "key", "key_lag": "20s"}
    found = ask(world, rows=rows, options=options)["predictions"]
    by_key = {one["delay_ms"]: one["share"] for one in found["late_by_key"]}
    assert by_key[1_000] > 0.4  # further behind the partition than keys may be
    assert by_key[30_000] == 0
    assert found["suggested_delay_ms"] == 30_000


def test_what_cannot_close_key_by_key_is_not_compared(world: World) -> None:
    sql = "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 20 s SLIDE 10 s"
    found = ask(world, sql=sql, rows=[flow(0), flow(-5_000)])["predictions"]
    assert found["late"]
    assert found["late_by_key"] == []


def paced(world: World, pause_ms: int, partition: int, options: dict[str, str]) -> dict[str, Any]:
    """Rows an hour old, in order: 30, a pause, and 60 in another partition or in the same."""
    old = -3_600_000
    rows = [flow(old + 1_000 * number) for number in range(90)]
    send(world, rows[:30], ago_ms=500 + pause_ms)
    send(world, rows[30:], partition=partition)
    found: dict[str, Any] = ask(world, options=options)["predictions"]
    return found


@pytest.mark.parametrize("partition", [0, 1])
def test_rows_after_a_pause_lie_behind_what_event_time_has_come_to(
    world: World, partition: int
) -> None:
    # By 8 s - 5 s event time comes to 3 s after the newest row: the next ones are 2, 1 and 0 s
    # behind, each of which is late for that part of the places of a border.
    found = paced(world, 8_000, partition, {})
    shares = {one["delay_ms"]: one["share"] for one in found["late"]}
    assert shares[0] == pytest.approx((0.2 + 0.1) / 90, abs=1e-6)
    assert shares[1_000] == pytest.approx(0.1 / 90, abs=1e-6)
    assert (shares[5_000], found["disorder_max_ms"]) == (0, 0)
    in_order, of_pause = found["sentences"][-2:]
    assert in_order == (
        "Rows are in order within their partitions; after pauses, with the delay of 0 s, at most "
        "0.33 % of the rows would be late."
    )
    assert of_pause.startswith("All partitions paused for up to 8 s. ")
    assert "idle for 5 s (idle_after)" in of_pause


@pytest.mark.parametrize(
    ("pause_ms", "options"), [(5_000, {}), (8_000, {"idle_after": "8s"}), (6_000, {})]
)
def test_pauses_after_which_no_row_can_be_late_are_not_told(
    world: World, pause_ms: int, options: dict[str, str]
) -> None:
    found = paced(world, pause_ms, 0, options)
    assert {one["share"] for one in found["late"]} == {0}
    assert found["sentences"][-1].endswith("a delay of 0 s is enough.")


def test_partition_that_goes_on_ends_the_pause_of_another(world: World) -> None:
    send(world, [flow(-3_600_000)], ago_ms=9_000)
    for ago_ms in (7_000, 5_000, 3_000):
        send(world, [flow(-3_600_000)], partition=1, ago_ms=ago_ms)
    send(world, [flow(-3_600_000)])
    assert {one["share"] for one in ask(world)["predictions"]["late"]} == {0}


def test_event_time_does_not_go_beyond_the_clock_in_a_pause(world: World) -> None:
    # rows of now: by the next ones the clock has not come further than they have
    send(world, [flow(-8_500)], ago_ms=8_500)
    send(world, [flow(-500)], ago_ms=500)
    assert {one["share"] for one in ask(world)["predictions"]["late"]} == {0}


def test_disorder_is_within_partitions_not_between_them(world: World) -> None:
    send(world, [flow(-1_000)])
    send(world, [flow(-9_000)], partition=1)
    assert ask(world)["predictions"]["disorder_max_ms"] == 0


# ----------------------------------------------------------------------- what goes wrong


def note_of(world: World, **members: object) -> str:
    return " ".join(ask(world, **members)["notes"])


def test_empty_topic_says_so(world: World) -> None:
    assert "Topic flows has no messages" in note_of(world)


def test_silent_topic_shows_its_newest_messages(world: World) -> None:
    send(world, [flow(-100_000)], ago_ms=100_000)
    found = ask(world)
    assert (found["source"], found["messages"]) == ("newest", 1)
    assert "No message came in the last 10 s" in found["notes"][0]
    assert "event time goes on from the newest row, of 2023-11-14 22:11:40Z, " in found["notes"][-1]
    assert found["predictions"]["rows_per_second"] is None


def test_a_partition_without_messages_is_named(world: World) -> None:
    send(world, [flow(-1_000)])
    assert (
        "Partition 1 had no message in the last 10 s: windows wait for it until it has been idle "
        "for 1 h (idle_after)." in note_of(world, options={"idle_after": "1h"})
    )
    send(world, [flow(-1_000)], partition=1)
    assert "Partition" not in note_of(world)


def test_a_partition_that_never_had_messages_is_named_in_a_silent_topic(world: World) -> None:
    send(world, [flow(-100_000)], partition=1, ago_ms=100_000)
    assert "Partition 0 never had a message, or none that is kept:" in note_of(world)


def test_of_many_partitions_without_messages_the_first_are_named(world: World) -> None:
    partitions = preview_words.PARTITIONS_NAMED + 3
    world.kafka.make_topic("flows", partitions)
    send(world, [flow(-1_000)])
    assert "Partitions 1, 2, 3, 4, 5 and 2 more had no message" in note_of(world)
    world.kafka.make_topic("flows", 3)
    send(world, [flow(-1_000)])
    assert "Partitions 1 and 2 had no message" in note_of(world)


def test_of_rows_in_the_request_no_partition_is_missed(world: World) -> None:
    assert note_of(world, rows=[flow(0)]) == ""


def test_wrong_type_is_told_with_an_example(world: World) -> None:
    note = note_of(world, rows=[flow(0), flow(1, bytes="many")])
    assert (
        "1 of 2 rows have a value of a wrong type, such as: `bytes` is not a valid int64." in note
    )


def test_missing_field_is_told(world: World) -> None:
    note = note_of(world, rows=[{"timestamp": NOW_MS, "source": "a", "bytes": 1}])
    assert "Field sip is missing or NULL in every row" in note


def test_seconds_for_milliseconds_are_told(world: World) -> None:
    send(world, [{"timestamp": NOW_MS // 1_000, "sip": "a"}])
    assert "declare it timestamp_s" in note_of(world)


def test_microseconds_for_milliseconds_are_told(world: World) -> None:
    send(world, [{"timestamp": NOW_MS * 1_000, "sip": "a"}])
    assert "declare it timestamp_us" in note_of(world)


def test_future_rows_are_told(world: World) -> None:
    send(world, [flow(0), flow(0), flow(3_600_000)])
    assert "1 of 3 rows have an event time far after they came" in note_of(world)


def test_filters_that_let_nothing_through_are_told(world: World) -> None:
    where = "SELECT count(*) FROM flows WHERE bytes > 99 WINDOWING 10 s"
    having = "SELECT sip, count(*) FROM flows GROUP BY sip HAVING count(*) > 9 WINDOWING 10 s"
    assert "WHERE lets none of 1 rows through." in note_of(world, sql=where, rows=[flow(0)])
    assert "HAVING lets no group through." in note_of(world, sql=having, rows=[flow(0)])


def test_preview_stops_at_its_limits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview_reading, "MESSAGES_MAX", 10)
    send(world, [flow(-1_000 + number) for number in range(50)])
    found = ask(world)
    assert (found["messages"], found["truncated"]) == (5, True)
    assert "reached its limit" in found["notes"][0]
    monkeypatch.setattr(preview_reading, "BYTES_MAX", 1)
    monkeypatch.setattr(preview_reading, "PIECE_MESSAGES", 2)
    assert (ask(world)["messages"], ask(world)["truncated"]) == (2, True)


def test_wrong_query_is_refused_at_its_place(world: World) -> None:
    answer = world.http.post("/v1/tasks/preview", json={"sql": "SELECT nothing\nFROM flows"})
    document = problem(answer, 422)
    assert (document["line"], document["column"]) == (1, 8)


@pytest.mark.parametrize("members", [{"seconds": 61}, {"seconds": 0}, {"limit": 0}, {"rows": {}}])
def test_members_out_of_their_range_are_refused(world: World, members: dict[str, Any]) -> None:
    problem(world.http.post("/v1/tasks/preview", json={"sql": SQL, **members}), 422)


def test_stream_without_a_topic_is_refused(world: World) -> None:
    del world.kafka.topics["flows"]
    problem(world.http.post("/v1/tasks/preview", json={"sql": SQL}), 422)


def test_too_many_previews_at_a_time_are_refused(world: World) -> None:
    places = world.services.previews._places
    taken = [places.take() for _ in range(preview.PREVIEWS_MAX)]
    document = problem(world.http.post("/v1/tasks/preview", json={"sql": SQL, "rows": []}), 429)
    assert "try again" in document["detail"]
    taken.pop()()
    assert ask(world, rows=[])["notes"] == ["No rows were given."]
    assert ask(world, rows=[])["notes"] == ["No rows were given."]


def break_reading(world: World) -> None:
    """Every poll of a reader fails from now on."""
    open_reader = world.open_reader

    def failing() -> Any:
        reader = open_reader()
        reader.fail_next("poll")
        return reader

    world.open_reader = failing  # type: ignore[method-assign]
    world.services = world._services()


def test_kafka_that_goes_away_is_named_and_the_place_is_free_again(world: World) -> None:
    send(world, [flow(-1_000)])
    break_reading(world)
    for _ in range(preview.PREVIEWS_MAX + 1):
        answer = world.http.post("/v1/tasks/preview", json={"sql": SQL})
        assert problem(answer, 503)["service"] == "kafka"


# --------------------------------------------------------------------------------- stream


def events(world: World, **members: object) -> list[tuple[str, dict[str, Any]]]:
    answer = world.http.post(
        "/v1/tasks/preview",
        json={"sql": SQL, **members},
        headers={"Accept": "text/event-stream"},
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = [piece.split("\n") for piece in answer.text.split("\n\n") if piece]
    return [
        (name.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
        for name, data in parts
    ]


def test_preview_is_streamed_when_asked_for(world: World) -> None:
    send(world, [flow(-15_000), flow(-1_000)])
    found = events(world)
    assert [name for name, _ in found] == ["progress", "window", "window", "preview"]
    assert found[0][1] == {"messages": 2, "messages_total": 2}
    assert found[-1][1]["counts"]["counted"] == 2
    assert found[-1][1]["windows"] == []


def test_stream_tells_of_a_server_that_goes_away(world: World) -> None:
    send(world, [flow(-1_000)])
    break_reading(world)
    (only,) = events(world)
    assert (only[0], only[1]["status"], only[1]["service"]) == ("problem", 503, "kafka")
    assert (only[1]["line"], only[1]["column"], only[1]["errors"]) == (None, None, None)


def test_stream_of_a_wrong_query_is_refused_before_it_begins(world: World) -> None:
    answer = world.http.post(
        "/v1/tasks/preview", json={"sql": "SELECT"}, headers={"Accept": "text/event-stream"}
    )
    problem(answer, 422)


def test_a_preview_takes_so_many_rows_and_says_that_there_are_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of some kilobytes may hold millions."""
    monkeypatch.setattr(preview_trial, "ROWS_MAX", 4)
    monkeypatch.setattr(decode_parts, "ROWS_MAX", 2)
    send(world, [json.dumps([flow(-2_000)] * 3).encode()])
    assert (ask(world)["counts"]["counted"], ask(world)["truncated"]) == (3, False)

    send(world, [json.dumps([flow(-1_000)] * 9).encode()], ago_ms=400)
    send(world, [flow(-900)] * 5, ago_ms=300)

    found = ask(world)
    assert 4 <= found["counts"]["counted"] < 8
    assert found["truncated"]


def test_previews_of_topics_are_made_elsewhere_once_they_are_found_right(world: World) -> None:
    """In a process that can bear it, see `api.aside`; rows that are given need none."""
    asked: list[str] = []

    def previewer(request: PreviewRequest) -> Preview:
        asked.append(request.sql)
        raise Rejected("it takes more memory than there is: look back fewer seconds")

    services = world.services
    previews = preview.PreviewService(
        services.previews._ports,
        services.compiler,
        services.previews._buckets,
        cluster_of(Settings()),
        previewer,
    )
    with acting(Caller(Role.ADMIN)):
        with pytest.raises(SqlError):
            previews.preview(PreviewRequest(sql="SELECT nothing"))
        assert previews.preview(PreviewRequest(sql=SQL, rows=[flow(0)])).counts.counted == 1
        assert not asked
        with pytest.raises(Rejected, match="fewer seconds"):
            previews.preview(PreviewRequest(sql=SQL))
    assert asked == [SQL]
    assert previews._places.taken == 0
