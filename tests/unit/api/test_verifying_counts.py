"""Finished windows that count rows computed again, from the offsets that their groups name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from mars.core.types import Lane, Records, Topic
from mars.engine.aggregates import merge_panes
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import CommittedRow
from tests.unit.api.twins import BUCKETS, World, problem

LANE = Lane("0")
COUNT, SIZE, SLIDE = 60, 20, 10
SQL = (
    "SELECT sip, count(*) AS n, sum(bytes) AS bytes FROM flows WHERE bytes >= 2 GROUP BY sip "
    f"WINDOWING {SIZE} ROWS SLIDE {SLIDE} ROWS"
)
WINDOW = {"partition": 0, "window_number": 1}
LAST = 35
"""The offset of its last row, whose group has no other row there."""


def emit(world: World) -> None:
    """What mappers and reducers would have made of rows: full windows, and progress."""
    sips = [f"10.0.0.{n % 7}" for n in range(COUNT)]
    sips[LAST] = "alone"
    values = [
        json.dumps({"timestamp": 10**6 - n, "sip": sip, "bytes": n % 12}).encode()
        for n, sip in enumerate(sips)
    ]
    for value in values:
        world.broker.append(Topic("flows"), 0, value)
    plan = world.plan()
    records = Records(LANE, 0, COUNT, values, range(COUNT), [-1] * COUNT)
    mapped = map_batch(plan, BUCKETS, decode(plan.stream, plan.fields, records), 0)
    for partial in mapped.partials:
        if not partial.states:
            continue
        for start in range(0, mapped.numbered[LANE].next - SIZE + 1, SLIDE):
            window = plan.window.window_of_start(start)
            states = merge_panes(plan, decode_states(partial.states), window)
            finished = finish(plan, states, window)
            for key, value in zip(finished.keys, finished.values, strict=True):
                row = CommittedRow(
                    partition=partial.bucket,
                    offset=len(world.kafka.rows),
                    key=key,
                    value=value,
                    version=1,
                    revision=0,
                    complete=True,
                    bucket=partial.bucket,
                )
                world.kafka.rows.append(row)
    for bucket in range(BUCKETS):
        world.commit(bucket, merged={LANE: COUNT})


@pytest.fixture
def emitted(world: World) -> World:
    assert world.register(sql=SQL).status_code == 201
    emit(world)
    return world


def verified(world: World, **query: Any) -> Any:
    answer = world.http.get("/v1/tasks/by_sip/verify", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def own(world: World) -> list[int]:
    """The places of the rows of the window."""
    rows = world.kafka.rows
    name = WINDOW["window_number"], WINDOW["partition"]
    return [place for place, row in enumerate(rows) if row.numbered == name]


def test_a_window_is_equal_if_its_offsets_hold_its_rows(emitted: World) -> None:
    found = verified(emitted, **WINDOW)
    assert (found["equal"], found["rows"], found["differences"]) == (True, 8, [])
    assert {name: found[name] for name in WINDOW} == WINDOW
    assert (found["window_start"], found["window_end"]) == (None, None)
    assert found["summary"].startswith("Window 1 of partition 0 is equal: 8 result rows agree")


def test_the_last_window_is_meant_where_none_is_named(emitted: World) -> None:
    found = verified(emitted)
    assert (found["window_number"], found["equal"]) == (3, True)


def test_a_row_that_was_changed_is_different(emitted: World) -> None:
    place = own(emitted)[0]
    row = emitted.kafka.rows[place]
    value = json.loads(row.value) | {"n": 77}
    emitted.kafka.rows[place] = replace(row, value=json.dumps(value).encode())
    found = verified(emitted, **WINDOW)
    assert found["equal"] is False
    assert [one["kind"] for one in found["differences"]] == ["different"]


def test_a_window_whose_end_is_missing_has_too_few_rows(emitted: World) -> None:
    rows = emitted.kafka.rows
    (place,) = (one for one in own(emitted) if json.loads(rows[one].value)["sip"] == "alone")
    del rows[place]
    found = verified(emitted, **WINDOW)
    assert (found["equal"], found["differences"]) == (False, [])
    assert f"{SIZE - 1} rows count, and it should have {SIZE}." in found["summary"]


def test_a_window_that_some_bucket_still_holds_is_not_verified_yet(emitted: World) -> None:
    emitted.commit(0, merged={LANE: 3})
    answer = emitted.http.get("/v1/tasks/by_sip/verify", params=WINDOW)
    detail = problem(answer, 409)["detail"]
    assert "1 bucket of 4 may have rows of window 1 of partition 0 still to emit" in detail


def test_what_is_not_complete_is_not_verified(emitted: World) -> None:
    rows = emitted.kafka.rows
    for place in own(emitted):
        rows[place] = replace(rows[place], complete=False)
    answer = emitted.http.get("/v1/tasks/by_sip/verify", params=WINDOW)
    assert "verify one that is complete" in problem(answer, 409)["detail"]


def test_a_task_that_leaves_out_groups_is_refused(world: World) -> None:
    sql = SQL.replace(" WINDOWING", " HAVING count(*) > 2 WINDOWING")
    assert world.register(sql=sql).status_code == 201
    emit(world)
    answer = world.http.get("/v1/tasks/by_sip/verify", params=WINDOW)
    assert "HAVING, LIMIT or max_keys" in problem(answer, 409)["detail"]
