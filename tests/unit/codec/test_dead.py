from __future__ import annotations

import base64
import json

import pytest

from mars.core.plan import Field, FieldType, Format, Options, Plan, Stream
from mars.core.types import (
    Bucket,
    Lane,
    Range,
    Reason,
    RejectedRange,
    RejectedRow,
    Rejections,
    StreamName,
    TaskName,
)
from mars.core.windows import Sliding, Window
from mars.engine.codec.dead import (
    DeadRange,
    DeadRow,
    dead_late,
    dead_rejections,
    dead_result,
    decode_dead,
)

WINDOW = Window(120_000, 60_000)
PLAN = Plan(
    task=TaskName("by_sip"),
    version=2,
    stream=Stream(
        name=StreamName("S"),
        topic="flows",
        format=Format.JSON,
        fields=(Field("timestamp", FieldType.TIMESTAMP_MS),),
        event_time="timestamp",
    ),
    window=Sliding(60_000, 60_000),
    keys=(),
    aggregates=(),
    outputs=(),
    options=Options("mars.results.by_sip"),
)


def row(payload: bytes = b"\x00{", lane: str = "3", detail: str = "not JSON") -> RejectedRow:
    return RejectedRow(Lane(lane), 17, Reason.UNREADABLE, detail, payload)


def test_a_named_row_has_the_members_of_the_contract() -> None:
    (raw,) = dead_rejections(PLAN, Rejections(rows=(row(),)))
    assert json.loads(raw) == {
        "task": "by_sip",
        "version": 2,
        "topic": "flows",
        "partition": 3,
        "offset": 17,
        "reason": "unreadable",
        "detail": "not JSON",
        "payload": base64.b64encode(b"\x00{").decode(),
    }


def test_a_payload_is_cut_to_its_first_bytes() -> None:
    (raw,) = dead_rejections(PLAN, Rejections(rows=(row(bytes(range(256)) * 4),)))
    assert base64.b64decode(json.loads(raw)["payload"]) == (bytes(range(256)) * 2)


def test_further_rows_are_ranges() -> None:
    rejected = RejectedRange(Lane("3"), 20, 40, Reason.FUTURE, 7)
    raws = dead_rejections(PLAN, Rejections(rows=(row(),), ranges=(rejected,)))
    assert [type(decode_dead(raw)) for raw in raws] == [DeadRow, DeadRange]
    assert json.loads(raws[1]) == {
        "task": "by_sip",
        "version": 2,
        "topic": "flows",
        "partition": 3,
        "first": 20,
        "next": 40,
        "reason": "future",
        "rows": 7,
    }


def test_late_rows_name_their_batch_and_window() -> None:
    (raw,) = dead_late(PLAN, (Range(Lane("1"), 5, 9),), WINDOW, 3, Bucket(2))
    late = decode_dead(raw)
    assert isinstance(late, DeadRange)
    assert (late.partition, late.first, late.next, late.rows) == (1, 5, 9, 3)
    assert (late.reason, late.window_start, late.bucket) == ("late", 60_000, 2)


def test_late_rows_of_several_ranges_are_counted_once() -> None:
    ranges = (Range(Lane("1"), 5, 9), Range(Lane("2"), 0, 4))
    late = [decode_dead(raw) for raw in dead_late(PLAN, ranges, WINDOW, 3, Bucket(2))]
    assert [part.rows for part in late if isinstance(part, DeadRange)] == [3, 0]


def test_a_withheld_result_is_named_once_a_range_with_its_key() -> None:
    ranges = (Range(Lane("1"), 5, 9), Range(Lane("2@b1"), 0, 4))
    raws = dead_result(PLAN, ranges, WINDOW, '[60000,"a"]', "it is too large")
    assert json.loads(raws[0]) == {
        "task": "by_sip",
        "version": 2,
        "topic": "flows",
        "partition": 1,
        "first": 5,
        "next": 9,
        "reason": "too_large",
        "rows": 0,
        "window_start": 60_000,
        "detail": "it is too large",
        "key": '[60000,"a"]',
        "window_end": 120_000,
    }
    other = decode_dead(raws[1])
    assert isinstance(other, DeadRange)
    assert (other.lane, other.partition, other.rows) == ("2@b1", 2, 0)


@pytest.mark.parametrize(("lane", "partition"), [("3@b1", 3), ("f@b2", None)])
def test_a_lane_that_is_not_live_is_named(lane: str, partition: int | None) -> None:
    (raw,) = dead_rejections(PLAN, Rejections(rows=(row(lane=lane),)))
    record = decode_dead(raw)
    assert (record.lane, record.partition) == (lane, partition)


def test_a_detail_that_is_no_text_is_made_one() -> None:
    (raw,) = dead_rejections(PLAN, Rejections(rows=(row(detail="odd \ud800 text"),)))
    assert json.loads(raw)["detail"] == "odd ? text"
