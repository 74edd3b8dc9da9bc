from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.plan import RecordTime, Stream
from mars.core.types import UNDECODABLE, Reason
from mars.engine.decode.limits import NOT_UNPACKED
from mars.engine.decode.messages import decode
from mars.engine.decode.usable import (
    EVENT_TIME_MAX_MS,
    EVENT_TIME_MIN_MS,
    NAMED_MAX,
    OLD_RECORD_TIME,
    Usable,
    usable_rows,
)
from tests.unit.codec.samples import (
    ARROW,
    CSV,
    CSV_HEADER,
    FIELDS,
    JSON,
    NAME,
    NDJSON,
    plan_of,
    records,
    row,
)

NOW_MS = 1_800_000_000_000
LIMIT = plan_of().options.future_limit_ms


def sorted_out(*values: bytes | None, timestamps_ms: list[int] | None = None) -> Usable:
    batch = records(values, 100, timestamps_ms=timestamps_ms)
    return usable_rows(plan_of(), decode(JSON, FIELDS, batch))


def test_all_rows_are_usable_where_nothing_is_wrong() -> None:
    usable = sorted_out(row(at=5), row(at=3))
    assert (usable.rows.height, usable.mark_ms, usable.bad, usable.future) == (2, 5, 0, 0)
    assert usable.rejections.rows == ()


def test_each_bad_row_is_referenced_with_its_reason_in_order_of_rows() -> None:
    usable = sorted_out(
        b"{", row(at="x"), row(size=1), row(at=EVENT_TIME_MAX_MS + 1), row(at=1), None
    )
    assert (usable.rows.height, usable.bad) == (1, 5)
    assert [(bad.offset, bad.reason) for bad in usable.rejections.rows] == [
        (100, Reason.UNREADABLE),
        (101, Reason.WRONG_TYPE),
        (102, Reason.NO_EVENT_TIME),
        (103, Reason.NO_EVENT_TIME),
        (105, Reason.UNREADABLE),
    ]
    assert usable.rejections.rows[1].detail == "`at` is not a valid timestamp_ms"
    assert usable.rejections.rows[1].payload == row(at="x")


def test_row_that_is_wrong_in_several_ways_is_counted_once() -> None:
    usable = sorted_out(row(at="x", size="y", load="z"))
    assert (usable.bad, len(usable.rejections.rows)) == (1, 1)


@pytest.mark.parametrize("at", [EVENT_TIME_MIN_MS, EVENT_TIME_MAX_MS])
def test_event_times_of_the_years_1_to_9999_are_usable(at: int) -> None:
    assert sorted_out(row(at=at)).mark_ms == at


@pytest.mark.parametrize("at", [EVENT_TIME_MIN_MS - 1, EVENT_TIME_MAX_MS + 1, 2**63 - 1, -(2**63)])
def test_event_times_beyond_are_bad_and_move_no_mark(at: int) -> None:
    usable = sorted_out(row(at=at), row(at=7))
    assert (usable.bad, usable.mark_ms) == (1, 7)


def test_row_too_far_after_its_record_is_future_and_moves_no_mark() -> None:
    usable = sorted_out(row(at=1_000 + LIMIT), row(at=1_001 + LIMIT), timestamps_ms=[1_000, 1_000])
    assert (usable.future, usable.bad, usable.mark_ms) == (1, 0, 1_000 + LIMIT)
    (future,) = usable.rejections.rows
    assert (future.offset, future.reason) == (101, Reason.FUTURE)


def test_no_row_is_future_where_the_stream_ignores_record_times() -> None:
    rows = records([row(at=LIMIT * 9)], timestamps_ms=[0])
    ignoring = replace(JSON, record_time=RecordTime.IGNORE)
    for stream, future in ((JSON, 1), (ignoring, 0)):
        plan = plan_of(stream=stream, fields=["at"])
        assert usable_rows(plan, decode(stream, plan.fields, rows)).future == future


@pytest.mark.parametrize(("stamp_ms", "told"), [(NOW_MS // 1000, True), (NOW_MS, False)])
def test_a_record_time_in_seconds_is_told(stamp_ms: int, told: bool) -> None:
    plan = plan_of(fields=["at"])
    rows = records([row(at=NOW_MS + 2 * LIMIT)], timestamps_ms=[stamp_ms])
    (future,) = usable_rows(plan, decode(JSON, plan.fields, rows)).rejections.rows
    assert future.reason == Reason.FUTURE
    assert (OLD_RECORD_TIME in future.detail) is told


def test_record_without_time_stamp_is_never_future() -> None:
    usable = sorted_out(row(at=EVENT_TIME_MAX_MS), row(at=9), timestamps_ms=[-1, 9])
    assert (usable.future, usable.mark_ms) == (0, EVENT_TIME_MAX_MS)


def test_each_row_is_compared_with_the_time_stamp_of_its_own_message() -> None:
    lines = [row(at=LIMIT + 10), row(at=LIMIT + 20)]
    batch = records([b"\n".join(lines), b"\n".join(lines)], timestamps_ms=[10, 20])
    plan = plan_of(stream=NDJSON)
    usable = usable_rows(plan, decode(NDJSON, FIELDS, batch))
    assert [(bad.offset, bad.payload) for bad in usable.rejections.rows] == [(0, lines[1])]
    assert usable.rows.height == 3


def test_fields_of_other_tasks_make_no_row_bad() -> None:
    decoded = decode(JSON, FIELDS, records([row(at=1, size="x"), row(at=2)]))
    assert usable_rows(plan_of(fields=["at", "name"]), decoded).bad == 0
    assert usable_rows(plan_of(fields=["at", "size"]), decoded).bad == 1


def test_rows_beyond_the_named_ones_are_ranges() -> None:
    values = [b"{"] * NAMED_MAX + [b"{", row(at="x"), row(at=1), b"{", row()]
    usable = sorted_out(*values)
    assert len(usable.rejections.rows) == NAMED_MAX
    assert {
        (part.reason, part.first, part.next, part.rows) for part in usable.rejections.ranges
    } == {
        (Reason.UNREADABLE, 200, 204, 2),
        (Reason.WRONG_TYPE, 201, 202, 1),
        (Reason.NO_EVENT_TIME, 204, 205, 1),
    }
    assert usable.bad == NAMED_MAX + 4


def test_future_limit_is_the_tasks_own() -> None:
    decoded = decode(JSON, FIELDS, records([row(at=500)], timestamps_ms=[0]))
    plan = plan_of()
    strict = replace(plan, options=replace(plan.options, future_limit_ms=499))
    assert usable_rows(plan, decoded).future == 0
    assert usable_rows(strict, decoded).future == 1


def test_batch_without_rows_has_no_mark() -> None:
    assert sorted_out().mark_ms is None
    assert sorted_out(b"{").mark_ms is None


@pytest.mark.parametrize(
    "stream", [JSON, NDJSON, CSV, CSV_HEADER, ARROW], ids=lambda one: one.format
)
def test_message_that_cannot_be_unpacked_is_one_bad_row_in_every_format(stream: Stream) -> None:
    batch = records([UNDECODABLE, UNDECODABLE, b""], 100)
    plan = plan_of(NAME, stream=stream, fields=["at", "name"])
    usable = usable_rows(plan, decode(stream, plan.fields, batch))
    assert usable.bad == 3
    assert [(one.offset, one.reason) for one in usable.rejections.rows][:2] == [
        (100, Reason.UNDECODABLE),
        (101, Reason.UNDECODABLE),
    ]
    assert usable.rejections.rows[0].detail == NOT_UNPACKED
    assert usable.rejections.rows[2].reason is Reason.UNREADABLE
