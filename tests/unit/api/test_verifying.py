"""Finished windows computed again: what agrees, what does not, and what cannot be said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from api.services.inside import rereading, verifying
from mars.core.types import Lane, Range, Records, Topic
from mars.engine.aggregates import merge_panes
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import CommittedRow, TopicInfo
from tests.unit.api.twins import BUCKETS, World, problem

LANE = Lane("0")
START_MS, END_MS = 60_000, 120_000


def rows_of_flows(count: int) -> list[dict[str, object]]:
    """Rows of three windows and a few keys, in turn."""
    return [
        {"timestamp": 60_000 * (n % 3) + n, "sip": f"10.0.0.{n % 7}", "bytes": n, "loss": n / 7}
        for n in range(count)
    ]


def emit(world: World, count: int = 90) -> None:
    """What mappers and reducers would have made of rows: results of one window, and progress."""
    values = [json.dumps(row).encode() for row in rows_of_flows(count)]
    for value in values:
        world.broker.append(Topic("flows"), 0, value)
    plan = world.plan()
    records = Records(LANE, 0, count, values, range(count), [-1] * count)
    mapped = map_batch(plan, BUCKETS, decode(plan.stream, plan.fields, records))
    window = plan.window.window_of_start(START_MS)
    for partial in mapped.partials:
        states = merge_panes(plan, decode_states(partial.states), window)
        finished = finish(plan, states, window)
        for at, (key, value) in enumerate(zip(finished.keys, finished.values, strict=True)):
            world.kafka.rows.append(
                CommittedRow(
                    partition=partial.bucket,
                    offset=at,
                    key=key,
                    value=value,
                    version=1,
                    revision=0,
                    complete=True,
                    bucket=partial.bucket,
                    emit=1,
                    ranges=(Range(LANE, 0, count),),
                    rows=10,
                )
            )
    for bucket in range(BUCKETS):
        world.commit(bucket, closed_ms=END_MS, merged={LANE: count}, counted=9)


@pytest.fixture
def emitted(world: World) -> World:
    sql = "SELECT sip, count(*), sum(loss) AS loss FROM flows GROUP BY sip WINDOWING 60 s"
    assert world.register(sql=sql).status_code == 201
    emit(world)
    return world


def verified(world: World, status: int = 200, **query: Any) -> Any:
    answer = world.http.get("/v1/tasks/by_sip/verify", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def kinds(answer: Any) -> list[str]:
    return [each["kind"] for each in answer["differences"]]


def test_a_window_that_holds_what_its_source_gives_is_equal(emitted: World) -> None:
    answer = verified(emitted, window_start=START_MS)
    assert (answer["equal"], answer["rows"], answer["source_rows"]) == (True, 7, 90)
    assert answer["differences"] == []
    assert "equal: 7 result rows agree with 90 source rows" in answer["summary"]
    assert (answer["window_end"], answer["versions"]) == (END_MS, [1])


def test_the_last_finished_window_is_meant_where_none_is_named(emitted: World) -> None:
    later = [replace(row, key=row.key.replace(b"60000", b"120000")) for row in emitted.kafka.rows]
    emitted.kafka.rows += later  # of a window that no bucket has closed yet
    assert verified(emitted)["window_start"] == START_MS


def changed(**changes: object) -> Callable[[CommittedRow], list[CommittedRow]]:
    return lambda row: [replace(row, **changes)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda row: [], "missing"),
        (lambda row: [row, row], "doubled"),
        (lambda row: [row, replace(row, key=b'[60000,"forged"]')], "extra"),
        (
            lambda row: [replace(row, value=row.value.replace(b'"count":', b'"count":1'))],
            "different",
        ),
    ],
)
def test_one_row_that_is_not_as_it_should_be_is_named(
    emitted: World, change: Callable[[CommittedRow], Sequence[CommittedRow]], kind: str
) -> None:
    first, *others = emitted.kafka.rows
    emitted.kafka.rows = [*change(first), *others]
    answer = verified(emitted, window_start=START_MS)
    assert (answer["equal"], kinds(answer)) == (False, [kind])
    assert f"1 {kind}" in answer["summary"]


def test_floats_may_differ_in_their_last_digits(emitted: World) -> None:
    first, *others = emitted.kafka.rows
    value = json.loads(first.value)
    value["loss"] *= 1 + 1e-12
    emitted.kafka.rows = [replace(first, value=json.dumps(value).encode()), *others]
    assert verified(emitted, window_start=START_MS)["equal"]


def test_rows_behind_the_ranges_are_late_and_not_missed(emitted: World) -> None:
    late = {"timestamp": START_MS, "sip": "10.0.0.1", "bytes": 1, "loss": 1.0}
    emitted.broker.append(Topic("flows"), 0, json.dumps(late).encode())
    assert verified(emitted, window_start=START_MS)["equal"]


def test_buckets_may_have_counted_up_to_different_offsets(emitted: World) -> None:
    own = emitted.kafka.rows[0].bucket
    # Everything of the window that lies behind was read by this bucket alone, and has its rows.
    emitted.kafka.rows = [
        replace(row, ranges=(Range(LANE, 0, 90 if row.bucket == own else 89),))
        for row in emitted.kafka.rows
    ]
    assert verified(emitted, window_start=START_MS)["equal"]
    emitted.kafka.rows = [
        replace(row, ranges=(Range(LANE, 0, 45),)) if row.bucket == own else row
        for row in emitted.kafka.rows
    ]
    assert set(kinds(verified(emitted, window_start=START_MS))) == {"different"}


def test_a_bucket_that_emitted_nothing_is_held_to_what_the_others_counted(emitted: World) -> None:
    own = emitted.kafka.rows[0].bucket
    left = [row for row in emitted.kafka.rows if row.bucket != own]
    lost = len(emitted.kafka.rows) - len(left)
    emitted.kafka.rows = left
    assert kinds(verified(emitted, window_start=START_MS)) == ["missing"] * lost


def test_at_most_twenty_differences_are_named(world: World) -> None:
    assert world.register().status_code == 201
    emit(world)
    first = world.kafka.rows[0]
    world.kafka.rows += [replace(first, key=b'[60000,"f%02d"]' % n) for n in range(30)]
    answer = verified(world, window_start=START_MS)
    assert (len(answer["differences"]), answer["more"]) == (20, 10)


# --------------------------------------------------------------------------- what cannot be said


def test_there_is_nothing_to_verify_before_a_window_is_finished(world: World) -> None:
    assert world.register().status_code == 201
    assert "`mars why by_sip` says" in verified(world, 404)["detail"]
    verified(world, 404, window_start=START_MS)
    verified_nobody = world.http.get("/v1/tasks/nobody/verify")
    assert verified_nobody.status_code == 404


def test_a_window_that_some_bucket_still_holds_can_be_verified_later(emitted: World) -> None:
    emitted.kafka.progress.clear()
    emitted.kafka.times_ms.clear()
    for bucket in range(BUCKETS):
        emitted.commit(bucket, closed_ms=None, merged={LANE: 9}, counted=9)
    assert "ask again" in verified(emitted, 409, window_start=START_MS)["detail"]
    detail = verified(emitted, 404)["detail"]
    assert "4 buckets of 4 may have rows of the window 1970-01-01 00:01:00Z still to emit" in detail


def test_rows_that_kafka_deleted_are_named(emitted: World) -> None:
    emitted.broker.partition(Topic("flows"), 0).truncate(12)
    detail = verified(emitted, 409, window_start=START_MS)["detail"]
    assert "no longer has offsets 0 to 11 of lane 0" in detail


def test_a_topic_that_was_made_again_is_noticed(emitted: World) -> None:
    emitted.kafka.topics["flows"] = TopicInfo("another", 2)
    assert "made again" in verified(emitted, 409, window_start=START_MS)["detail"]


def test_a_version_that_is_not_kept_any_more_cannot_be_verified(emitted: World) -> None:
    emitted.kafka.rows = [replace(row, version=2) for row in emitted.kafka.rows]
    assert "version 2" in verified(emitted, 409, window_start=START_MS)["detail"]


def test_rows_of_a_release_that_named_no_offsets_say_so(emitted: World) -> None:
    emitted.kafka.rows = [replace(row, ranges=()) for row in emitted.kafka.rows]
    assert "older release" in verified(emitted, 409, window_start=START_MS)["detail"]


def test_too_many_offsets_or_rows_are_refused(
    emitted: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "SOURCE_ROWS_MAX", 89)
    assert "more than 89 rows" in verified(emitted, 409, window_start=START_MS)["detail"]
    monkeypatch.setattr(rereading, "SOURCE_OFFSETS_MAX", 89)
    assert "90 offsets" in verified(emitted, 409, window_start=START_MS)["detail"]
    monkeypatch.setattr(verifying, "RESULT_ROWS_MAX", 6)
    assert "more than 6 result rows" in verified(emitted, 409, window_start=START_MS)["detail"]


def test_a_source_that_is_away_is_named(emitted: World) -> None:
    emitted.source_rows.fail_next("read")
    answer = emitted.http.get("/v1/tasks/by_sip/verify", params={"window_start": START_MS})
    assert problem(answer, 503)["service"] == "kafka"


def revise(world: World, *, deleted: bool = False) -> CommittedRow:
    """A late row of one group, and the revision that it made; the row that it replaces."""
    first = world.kafka.rows[0]
    value = json.loads(first.value)
    row = {"timestamp": START_MS + 5, "sip": value["sip"], "bytes": 1, "loss": 0.0}
    world.broker.append(Topic("flows"), 0, json.dumps(row).encode())
    again = {**value, "count": value["count"] + 1}
    world.kafka.rows.append(
        replace(
            first,
            offset=first.offset + 1_000,
            value=json.dumps(again).encode(),
            revision=1,
            deleted=deleted,
            ranges=(Range(LANE, 0, 91),),
        )
    )
    for bucket in range(BUCKETS):
        world.commit(bucket, closed_ms=END_MS, merged={LANE: 91}, counted=9)
    return first


def test_a_revised_window_is_equal_if_the_newest_revisions_are(emitted: World) -> None:
    revise(emitted)
    answer = verified(emitted, window_start=START_MS)
    assert (answer["equal"], answer["rows"], answer["source_rows"]) == (True, 7, 91)


def test_a_revision_that_lacks_its_late_row_differs(emitted: World) -> None:
    first = revise(emitted)
    emitted.kafka.rows[-1] = replace(emitted.kafka.rows[-1], value=first.value)
    assert kinds(verified(emitted, window_start=START_MS)) == ["different"]


def test_a_revision_that_is_there_twice_is_doubled(emitted: World) -> None:
    revise(emitted)
    emitted.kafka.rows.append(emitted.kafka.rows[-1])
    assert kinds(verified(emitted, window_start=START_MS)) == ["doubled"]


def test_a_group_that_is_deleted_but_should_be_there_is_missing(emitted: World) -> None:
    revise(emitted, deleted=True)
    assert kinds(verified(emitted, window_start=START_MS)) == ["missing"]


def test_a_result_that_was_withheld_is_not_missed(
    emitted: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = emitted.kafka.rows
    emitted.kafka.rows = others
    assert kinds(verified(emitted, window_start=START_MS)) == ["missing"]
    size = len(first.key) + len(first.value)
    longer = [row for row in others if len(row.key) + len(row.value) >= size]
    emitted.kafka.rows = [row for row in others if row not in longer]
    monkeypatch.setattr("mars.engine.finishing.RESULT_BYTES_MAX", size - 1)
    answer = verified(emitted, window_start=START_MS)
    assert (answer["equal"], answer["rows"]) == (True, len(emitted.kafka.rows))
