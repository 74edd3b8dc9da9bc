"""Why a window has not come.

The task counts rows per minute, waits 1 s for stragglers, and reads two partitions into two
buckets. Times are in milliseconds after 0.

    lane 0   ───────────────▶ mark 65,000
    lane 1   ───────▶ mark 30,000                 the window [0, 60,000) waits for lane 1
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.plan import (
    RECORD_TIME_FIELD,
    Aggregate,
    AggregateFunction,
    Field,
    FieldType,
    Format,
    LatePolicy,
    Options,
    Plan,
    RecordTime,
    Stream,
    ValueType,
)
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Mark,
    MemberId,
    RowCounts,
    Sequence64,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
    live_lane,
)
from mars.core.windows import Sliding, moment
from mars.engine.decode.limits import NOT_UNPACKED
from mars.engine.decode.usable import OLD_RECORD_TIME, OUTSIDE_CALENDAR
from mars.inspect.evidence import Evidence, HoldReason, KnownOwner, LoggedRows, Reading
from mars.inspect.explaining import OPEN_WINDOWS_MAX, Holder, OpenWindow, explain
from mars.inspect.explaining_rows import OLD_RECORD_HINT
from mars.inspect.explaining_words import summarise
from mars.protocol.ports import DeadLetter, Head, Ledger, Progress

MINUTE = 60_000
TASK = TaskName("by_sip")
STREAM = Stream(
    name=StreamName("flows"),
    topic="flows",
    format=Format.JSON,
    fields=(Field("at", FieldType.TIMESTAMP_MS),),
    event_time="at",
)
PLAN = Plan(
    task=TASK,
    version=1,
    stream=STREAM,
    window=Sliding(MINUTE, MINUTE),
    keys=(),
    aggregates=(Aggregate("a0", AggregateFunction.COUNT_ALL, None, None, ValueType.INT64),),
    outputs=(),
    options=Options(output_topic="mars.results.by_sip", delay_ms=1_000),
)
VERSION = TaskVersion(
    version=1,
    sql="SELECT count(*) FROM flows WINDOWING 60 s",
    options={},
    stream=STREAM,
    topic_id="id",
    created_ms=0,
    starts={live_lane(0): 0, live_lane(1): 0},
)
DEFINITION = TaskDefinition(TASK, TaskState.RUNNING, (VERSION,))
HEAD = Head(
    epoch=StoreEpoch(4),
    version=1,
    active=True,
    offsets={live_lane(0): 100, live_lane(1): 40},
    marks_ms={live_lane(0): 65_000, live_lane(1): 30_000},
    idle=frozenset(),
    seq=Sequence64(7),
    now_ms=66_000,
    log_bytes=1_000,
)
MAPPER = MemberId("mapper-1")
OTHER = Reading(MemberId("mapper-2"), "reading")
REDUCER = MemberId("reducer-1")
WRONG_TYPE = DeadLetter(
    TASK, Topic("flows"), 1, 17, 18, "wrong_type", 1, detail="`bytes` is not a valid int64"
)
OWNED = KnownOwner(REDUCER, "owning")


def evidence_with(**changes: object) -> Evidence:
    whole = Evidence(
        definition=DEFINITION,
        plans={1: PLAN},
        buckets=2,
        now_ms=66_000,
        head=HEAD,
        store_epoch=StoreEpoch(4),
        ends={0: 100, 1: 40},
        readings={0: Reading(MAPPER, "reading"), 1: Reading(MAPPER, "reading")},
        owners={Bucket(0): OWNED, Bucket(1): OWNED},
        mappers=1,
        reducers=1,
        logged=(LoggedRows(1, Bucket(0), {0: 5}), LoggedRows(1, Bucket(1), {0: 2})),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def nothing_open(**changes: object) -> Evidence:
    return evidence_with(**{"logged": (), **changes})


def only_window(evidence: Evidence) -> OpenWindow:
    (window,) = explain(evidence).windows
    return window


def holder(evidence: Evidence) -> Holder:
    return only_window(evidence).held_by


def words(evidence: Evidence) -> str:
    return summarise(evidence, explain(evidence))


def progress_of(bucket: int, *, closed_ms: int | None = None, **rows: int) -> Progress:
    return Progress(
        task=TASK,
        version=1,
        bucket=Bucket(bucket),
        assignment_epoch=AssignmentEpoch(1),
        store_epoch=StoreEpoch(4),
        emit=1,
        closed_ms=closed_ms,
        merged={},
        needed={},
        ledger=Ledger(**rows),
    )


# ------------------------------------------------------------------------- which windows


def test_window_shows_its_rows_of_all_buckets_and_the_watermark() -> None:
    window = only_window(evidence_with())
    assert (window.start_ms, window.end_ms, window.rows) == (0, MINUTE, 7)
    assert window.watermark_ms == 29_000


def test_window_is_left_out_once_all_buckets_have_closed_it() -> None:
    closed = tuple(progress_of(bucket, closed_ms=MINUTE) for bucket in (0, 1))
    assert explain(evidence_with(progress=closed)).windows == ()


def test_window_shows_only_the_buckets_that_have_not_closed_it() -> None:
    assert only_window(evidence_with(progress=(progress_of(0, closed_ms=MINUTE),))).rows == 2


def test_pane_of_a_sliding_task_opens_every_window_that_holds_it() -> None:
    #  pane [60, 120) of size 60 in windows of 120 s that start every 60 s: [0, 120) and [60, 180)
    sliding = replace(PLAN, window=Sliding(2 * MINUTE, MINUTE))
    logged = (LoggedRows(1, Bucket(0), {MINUTE: 3}),)
    windows = explain(evidence_with(plans={1: sliding}, logged=logged)).windows
    assert [(window.start_ms, window.rows) for window in windows] == [(0, 3), (MINUTE, 3)]


def test_windows_come_with_the_soonest_end_first_and_the_rest_is_counted() -> None:
    panes = {MINUTE * number: 1 for number in reversed(range(OPEN_WINDOWS_MAX + 3))}
    explanation = explain(evidence_with(logged=(LoggedRows(1, Bucket(0), panes),)))
    assert [window.start_ms for window in explanation.windows] == [
        MINUTE * number for number in range(OPEN_WINDOWS_MAX)
    ]
    assert explanation.more == 3


# ----------------------------------------------------------------------------- who holds it


def test_lowest_lane_holds_the_window_as_behind_until_it_is_read_to_its_end() -> None:
    held = holder(evidence_with(ends={0: 100, 1: 4_040}))
    assert held == Holder(
        HoldReason.BEHIND,
        lane=live_lane(1),
        partition=1,
        member=MAPPER,
        watermark_ms=29_000,
        lag=4_000,
    )


def test_lane_that_is_read_to_its_end_without_a_lease_is_silent() -> None:
    assert holder(evidence_with()).reason is HoldReason.SILENT


def test_lane_without_a_mark_holds_before_one_with_a_low_mark() -> None:
    head = replace(HEAD, marks_ms={live_lane(0): 65_000})
    held = holder(evidence_with(head=head))
    assert (held.partition, held.watermark_ms) == (1, None)


def test_idle_lane_does_not_hold() -> None:
    head = replace(
        HEAD,
        idle=frozenset({live_lane(1)}),
        marks_ms={live_lane(0): 50_000, live_lane(1): 30_000},
    )
    assert holder(evidence_with(head=head)).partition == 0


def test_lane_with_a_lease_and_rows_to_read_is_behind_and_not_idle() -> None:
    head = replace(HEAD, idle=frozenset({live_lane(1)}))
    lane = only_window(evidence_with(head=head, ends={0: 100, 1: 41})).partitions[1]
    assert (lane.idle, lane.reason) == (False, HoldReason.BEHIND)


IDLE = replace(HEAD, idle=frozenset({live_lane(0), live_lane(1)}))


def all_idle(marks_ms: dict[int, int], taken_ms: dict[int, int], now_ms: int) -> Evidence:
    """Both partitions are read to their ends; the rows of their marks came at these times."""
    marks, taken = ({live_lane(at): of[at] for at in of} for of in (marks_ms, taken_ms))
    head = replace(IDLE, marks_ms=marks, taken_ms=taken, now_ms=now_ms)
    return evidence_with(head=head, now_ms=now_ms)


def test_window_closes_by_the_clock_when_all_lanes_are_idle_and_rows_came_at_their_times() -> None:
    window = only_window(all_idle({0: 55_000, 1: 30_000}, {0: 55_000, 1: 30_000}, 62_000))
    assert window.held_by.reason is HoldReason.IDLE
    assert window.expected_close_ms == MINUTE + 1_000 + 5_000


def test_window_of_old_rows_closes_as_the_clock_goes_on_from_the_highest_mark() -> None:
    window = only_window(all_idle({0: 55_000, 1: 30_000}, {0: 900_000, 1: 909_000}, 910_000))
    assert window.held_by.reason is HoldReason.IDLE
    assert window.watermark_ms == 55_000 + 10_000 - 1_000 - 5_000
    # 5 s to the end of the window, the delay and idle_after, from when the newest row came
    assert window.expected_close_ms == 900_000 + 5_000 + 1_000 + 5_000


def test_nobody_can_say_when_idle_lanes_without_any_mark_go_on() -> None:
    window = only_window(all_idle({}, {}, 62_000))
    assert (window.held_by.reason, window.watermark_ms) == (HoldReason.IDLE, None)
    assert window.expected_close_ms is None


def test_idle_lanes_go_on_from_what_a_lost_store_had_come_to() -> None:
    head = replace(IDLE, marks_ms={}, now_ms=70_000, restored=Mark(50_000, 60_000))
    window = only_window(evidence_with(head=head, now_ms=70_000))
    assert window.watermark_ms == 50_000 + 10_000 - 1_000 - 5_000
    assert window.expected_close_ms == MINUTE + 10_000 + 1_000 + 5_000


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("backpressure", HoldReason.BACKPRESSURE),
        ("paused", HoldReason.PAUSED),
        ("starting", HoldReason.STARTING),
        ("reading", HoldReason.BEHIND),
    ],
)
def test_mapper_says_what_it_does_with_a_partition_that_has_rows(
    state: str, reason: HoldReason
) -> None:
    readings = {0: Reading(MAPPER, "reading"), 1: Reading(MAPPER, state)}
    assert holder(evidence_with(ends={0: 100, 1: 41}, readings=readings)).reason is reason


def test_partition_that_no_mapper_reads_has_no_owner() -> None:
    held = holder(evidence_with(readings={0: Reading(MAPPER, "reading")}))
    assert (held.reason, held.partition, held.member) == (HoldReason.NO_OWNER, 1, None)


def test_partition_that_the_store_does_not_know_is_starting() -> None:
    lanes = only_window(evidence_with(ends={0: 100, 1: 40, 2: 9})).partitions
    assert (lanes[2].partition, lanes[2].reason) == (2, HoldReason.STARTING)


@pytest.mark.parametrize("state", [TaskState.PAUSED, TaskState.FAILED])
def test_task_that_does_not_run_is_paused_whatever_its_lanes_do(state: TaskState) -> None:
    held = holder(evidence_with(definition=replace(DEFINITION, state=state)))
    assert held == Holder(HoldReason.PAUSED)


def test_store_of_another_epoch_is_recovering() -> None:
    assert holder(evidence_with(store_epoch=StoreEpoch(5))) == Holder(HoldReason.RECOVERING)


def test_task_that_is_not_yet_active_in_the_store_is_starting() -> None:
    head = replace(HEAD, active=False)
    assert holder(evidence_with(head=head)) == Holder(HoldReason.STARTING)


def test_bucket_without_a_live_reducer_has_no_owner() -> None:
    held = holder(evidence_with(owners={Bucket(0): OWNED}))
    assert held == Holder(HoldReason.NO_OWNER, bucket=Bucket(1))


PASSED = replace(HEAD, marks_ms={live_lane(0): 65_000, live_lane(1): 61_000})
"""The watermark stands exactly at the end of the window."""


def test_window_that_the_watermark_has_passed_waits_for_its_reducer() -> None:
    window = only_window(evidence_with(head=PASSED))
    assert window.held_by == Holder(HoldReason.BEHIND, bucket=Bucket(0), member=REDUCER)
    assert window.expected_close_ms == 66_000


def test_bucket_that_is_being_taken_over_is_recovering() -> None:
    taken = {Bucket(0): OWNED, Bucket(1): KnownOwner(REDUCER, "catching_up")}
    held = holder(evidence_with(head=PASSED, owners=taken))
    assert held == Holder(HoldReason.RECOVERING, bucket=Bucket(1), member=REDUCER)


# -------------------------------------------------------------------------- when it closes


def test_window_of_a_live_stream_should_close_at_its_end_and_delay() -> None:
    head = replace(HEAD, marks_ms={live_lane(0): 40_000, live_lane(1): 39_900}, now_ms=40_000)
    window = only_window(evidence_with(head=head, now_ms=40_000))
    assert window.expected_close_ms == MINUTE + 1_000


def test_window_behind_a_lane_that_fell_silent_waits_for_its_idleness() -> None:
    assert only_window(evidence_with()).expected_close_ms == 66_000 + 5_000


def test_window_of_old_rows_waits_for_idleness_and_then_for_the_clock() -> None:
    taken = {live_lane(0): 907_000, live_lane(1): 907_000}
    marks = {live_lane(0): 40_000, live_lane(1): 30_000}
    head = replace(HEAD, marks_ms=marks, taken_ms=taken, now_ms=909_000)
    window = only_window(evidence_with(head=head, now_ms=909_000))
    assert window.held_by.reason is HoldReason.SILENT
    assert window.expected_close_ms == 907_000 + 20_000 + 1_000 + 5_000


def test_nobody_can_say_when_lanes_without_any_mark_go_on() -> None:
    assert only_window(evidence_with(head=replace(HEAD, marks_ms={}))).expected_close_ms is None


def test_nobody_can_say_when_a_lane_behind_will_be_done() -> None:
    assert only_window(evidence_with(ends={0: 100, 1: 50})).expected_close_ms is None


# ------------------------------------------------------------------------------ in words


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"ends": {0: 100, 1: 50}},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: mapper-1 has 10 rows "
            "of partition 1 still to read.",
        ),
        (
            {"readings": {}, "mappers": 0},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: no mapper reads "
            "partition 1; start one.",
        ),
        (
            {"readings": {}},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: no mapper reads "
            "partition 1 yet; one of those that run takes it within seconds.",
        ),
        (
            {"ends": {0: 100, 1: 41}},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: mapper-1 has 1 row "
            "of partition 1 still to read.",
        ),
        (
            {"readings": {0: OTHER, 1: Reading(MAPPER, "reading", 9_100)}},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: mapper-1, which reads "
            "partition 1, has said nothing for 9.1 s; it is stopped, cut off or overloaded.",
        ),
        (
            {"readings": {0: OTHER, 1: Reading(MAPPER, "reading", 0, ("redis",))}},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: mapper-1, which reads "
            "partition 1, gets no answer from redis; another mapper that does takes over within a "
            "minute.",
        ),
        (
            {
                "head": PASSED,
                "owners": {
                    Bucket(0): OWNED,
                    Bucket(1): KnownOwner(REDUCER, "owning", ("kafka", "redis")),
                },
            },
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: reducer-1, which owns "
            "bucket 1, gets no answer from kafka and redis; another reducer that does takes over "
            "within a minute.",
        ),
        (
            {},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: the newest row of "
            "partition 1 is of 1970-01-01 00:00:30Z; it no longer holds windows back once it has "
            "been idle for 5 s (idle_after).",
        ),
        (
            {"head": replace(HEAD, marks_ms={live_lane(0): 65_000})},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: partition 1 has had "
            "no row yet; it no longer holds windows back once it has been idle for 5 s "
            "(idle_after).",
        ),
        (
            {"head": replace(HEAD, marks_ms={live_lane(0): 65_000}, restored=Mark(10_000, 20_000))},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: partition 1 has had "
            "no row since Redis lost what it held; it no longer holds windows back once it has "
            "been idle for 5 s (idle_after).",
        ),
        (
            {
                "head": replace(
                    HEAD,
                    marks_ms={live_lane(0): 40_000, live_lane(1): 30_000},
                    taken_ms={live_lane(0): 907_000, live_lane(1): 907_000},
                    now_ms=909_000,
                ),
                "now_ms": 909_000,
            },
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: the newest row of "
            "partition 1 is of 1970-01-01 00:00:30Z; it no longer holds windows back once it has "
            "been idle for 5 s (idle_after); if no row comes, it should close at about 1970-01-01 "
            "00:15:33Z.",
        ),
        (
            {
                "head": replace(
                    IDLE,
                    marks_ms={live_lane(0): 55_000},
                    taken_ms={live_lane(0): 900_000},
                    now_ms=910_000,
                ),
                "now_ms": 910_000,
            },
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: all partitions are "
            "idle, so event time goes on at the pace of the clock from 1970-01-01 00:00:55Z, the "
            "newest that was seen; it should close at about 1970-01-01 00:15:11Z.",
        ),
        (
            {"head": replace(IDLE, marks_ms={})},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: all partitions are "
            "idle, and event time goes on when the next row comes.",
        ),
        (
            {"owners": {}},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: no reducer owns "
            "bucket 0; start one.",
        ),
        (
            {"head": PASSED},
            "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z waits: the watermark has "
            "passed it, and reducer-1 is about to commit it.",
        ),
        (
            {"missing": ("redis is not available: refused",)},
            "Nothing can be said for certain: redis is not available: refused.",
        ),
    ],
)
def test_summary_names_who_holds_the_first_window(
    changes: dict[str, object], sentence: str
) -> None:
    assert words(evidence_with(**changes)) == sentence


def test_summary_of_a_window_that_has_not_ended_says_when_it_should_close() -> None:
    head = replace(HEAD, marks_ms={live_lane(0): 40_000, live_lane(1): 39_900}, now_ms=40_000)
    assert words(evidence_with(head=head, now_ms=40_000)) == (
        "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z has not ended yet; it should "
        "close at about 1970-01-01 00:01:01Z."
    )


def test_summary_of_a_window_that_has_not_ended_does_not_call_a_live_partition_its_trouble() -> (
    None
):
    head = replace(HEAD, marks_ms={live_lane(0): 40_000, live_lane(1): 39_900}, now_ms=40_000)
    assert words(evidence_with(head=head, now_ms=40_000, ends={0: 100, 1: 43})) == (
        "The window 1970-01-01 00:00:00Z to 1970-01-01 00:01:00Z has not ended yet; mapper-1 has 3 "
        "rows of partition 1 still to read."
    )


def test_summary_of_a_task_whose_topic_is_gone_says_so_whatever_is_open() -> None:
    for evidence in (evidence_with(ends={}, readings={}), nothing_open(ends={})):
        assert words(evidence) == (
            "Kafka has no topic flows, so no rows come: create it again, then delete the task and "
            "register it again."
        )


def test_summary_of_a_failed_task_says_why_and_what_to_do() -> None:
    failed = replace(DEFINITION, state=TaskState.FAILED, detail="the log needs 300 MB")
    assert words(evidence_with(definition=failed)) == (
        "The task has failed, and takes no rows until it is resumed: the log needs 300 MB."
    )


def test_summary_of_a_task_that_no_resume_mends_does_not_speak_of_resuming() -> None:
    detail = "topic flows was deleted and made again: delete the task and register it again"
    failed = replace(DEFINITION, state=TaskState.FAILED, detail=detail)
    assert words(evidence_with(definition=failed)) == (
        f"The task has failed, and takes no rows any more: {detail}."
    )


def test_summary_of_a_paused_task_says_to_resume_it() -> None:
    paused = replace(DEFINITION, state=TaskState.PAUSED)
    assert "resume" in words(evidence_with(definition=paused))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"head": None, "reducers": 0}, "No reducer runs"),
        ({"head": None}, "has not started the task"),
        ({"head": None, "progress": (progress_of(0),)}, "being rebuilt from Kafka"),
        (
            {"mappers": 0, "ends": {0: 103, 1: 40}},
            "No mapper runs, so nobody reads topic flows (3 rows wait)",
        ),
        ({"ends": {0: 103, 1: 40}}, "3 rows of topic flows wait to be read."),
        ({"ends": {0: 101, 1: 40}}, "1 row of topic flows waits to be read."),
        (
            {"ends": {0: 101, 1: 40}, "readings": {0: Reading(MAPPER, "reading", 5_000)}},
            "waits to be read, but mapper-1, which reads partition 0, has said nothing for 5 s",
        ),
        (
            {"ends": {0: 101, 1: 40}, "readings": {}},
            "waits to be read, but no mapper reads partition 0 yet",
        ),
        ({}, "No row has come to topic flows"),
    ],
)
def test_summary_says_why_nothing_was_read(changes: dict[str, object], part: str) -> None:
    assert part in words(nothing_open(**changes))


def test_summary_names_the_fates_of_rows_when_none_was_counted() -> None:
    read = (progress_of(0, read=9, filtered=4, bad=3, late=2),)
    assert words(nothing_open(progress=read, dead=(WRONG_TYPE,))) == (
        "No window is open: of 9 rows read, 4 filtered out by WHERE, 3 bad (for example `bytes` "
        "is not a valid int64: partition 1, offset 17), 2 late (their windows had closed: a "
        "longer delay than 1 s keeps windows open for such rows)."
    )


def test_a_withheld_result_is_no_example_of_a_bad_row() -> None:
    read = (progress_of(0, read=9, bad=3),)
    withheld = replace(WRONG_TYPE, rows=0, detail="the result is withheld")
    said = words(nothing_open(progress=read, dead=(withheld, WRONG_TYPE)))
    assert "withheld" not in said
    assert "`bytes` is not a valid int64" in said


def test_messages_that_cannot_be_unpacked_are_named_before_other_bad_rows() -> None:
    read = (progress_of(0, read=9, bad=3),)
    undecodable = replace(
        WRONG_TYPE, reason="undecodable", detail=NOT_UNPACKED, first=40, next=41, partition=0
    )
    said = words(nothing_open(progress=read, dead=(WRONG_TYPE, undecodable)))
    assert f"3 bad (for example {NOT_UNPACKED}: partition 0, offset 40)" in said


def test_summary_names_rows_that_were_not_counted_beside_those_that_were() -> None:
    read = (progress_of(0, read=9, counted=5, bad=3, future=1),)
    future = replace(WRONG_TYPE, reason="future", detail="`at` is 1 h after Kafka got the row")
    assert words(evidence_with(progress=read, dead=(WRONG_TYPE, future))).endswith(
        "(idle_after). Of 9 rows read, some were not counted: 3 bad (for example `bytes` is "
        "not a valid int64: partition 1, offset 17), 1 too far in the future (for example `at` is "
        "1 h after Kafka got the row: partition 1, offset 17)."
    )


def test_summary_names_no_rows_where_all_were_counted_or_filtered() -> None:
    read = (progress_of(0, read=9, counted=5, filtered=4),)
    assert words(evidence_with(progress=read)).endswith("(idle_after).")


def test_record_times_in_seconds_are_told_and_what_to_do() -> None:
    read = (progress_of(0, read=9, counted=0, future=9),)
    future = replace(WRONG_TYPE, reason="future", detail=f"`at` is 53 y after; {OLD_RECORD_TIME}")
    assert words(nothing_open(progress=read, dead=(future,))).endswith(
        f"{OLD_RECORD_TIME}: partition 1, offset 17); {OLD_RECORD_HINT}."
    )


def test_row_far_ahead_is_named_where_the_stream_ignores_record_times() -> None:
    read = (progress_of(0, read=9, counted=2, late=7),)
    head = replace(HEAD, marks_ms={live_lane(0): 186_000, live_lane(1): 30_000})
    version = DEFINITION.current
    stream = replace(version.stream, record_time=RecordTime.IGNORE)
    ignoring = replace(DEFINITION, versions=(replace(version, stream=stream),))
    said = words(evidence_with(progress=read, head=head, definition=ignoring))
    assert "2 min ahead of now: the stream says record_time: ignore, so nothing leaves" in said
    assert "future_limit" not in said


def test_hints_about_the_time_of_the_record_are_about_its_producer() -> None:
    version = DEFINITION.current
    fields = (*version.stream.fields, RECORD_TIME_FIELD)
    stream = replace(version.stream, fields=fields, event_time=RECORD_TIME_FIELD.name)
    of_record = replace(DEFINITION, versions=(replace(version, stream=stream),))
    read = (progress_of(0, read=9, counted=2, late=7),)
    head = replace(HEAD, marks_ms={live_lane(0): 186_000, live_lane(1): 30_000})
    said = words(evidence_with(progress=read, head=head, definition=of_record))
    assert "ahead of now: the event time is that of the record, so nothing leaves" in said
    said = words(evidence_with(now_ms=1_700_000_000_000, definition=of_record))
    assert said.endswith("have the producer write Kafka's record time in milliseconds.")


def test_row_far_ahead_is_named_as_the_reason_why_others_are_late() -> None:
    read = (progress_of(0, read=9, counted=2, late=7),)
    head = replace(HEAD, marks_ms={live_lane(0): 186_000, live_lane(1): 30_000})
    assert words(evidence_with(progress=read, head=head)).endswith(
        "7 late (windows had closed before them, because a row of partition 0 is of 1970-01-01 "
        "00:03:06Z, 2 min ahead of now: a smaller future_limit leaves such rows out)."
    )


def test_rows_that_are_too_late_to_revise_their_windows_suggest_a_longer_lateness() -> None:
    options = replace(PLAN.options, late=LatePolicy.REVISE, lateness_ms=600_000)
    read = (progress_of(0, read=9, counted=2, late=7),)
    said = words(evidence_with(progress=read, plans={1: replace(PLAN, options=options)}))
    assert said.endswith(
        "7 late (their windows had closed too long before to be revised: a longer lateness than "
        "10 min takes such rows)."
    )


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (FieldType.TIMESTAMP_S, "if at counts milliseconds, declare it timestamp_ms"),
        (FieldType.TIMESTAMP_MS, "if at counts microseconds, declare it timestamp_us"),
        (FieldType.TIMESTAMP_US, "if at counts nanoseconds"),
        (FieldType.TIMESTAMP_ISO, ""),
    ],
)
def test_times_beyond_the_calendar_suggest_another_unit(kind: FieldType, hint: str) -> None:
    far = replace(WRONG_TYPE, reason="no_event_time", detail=f"`at` is {OUTSIDE_CALENDAR}")
    read = (progress_of(0, read=3, bad=3),)
    said = words(nothing_open(definition=declared(kind), progress=read, dead=(far,)))
    assert f"partition 1, offset 17){'; ' if hint else '.'}{hint}" in said


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (FieldType.TIMESTAMP_MS, "if at counts seconds, declare it timestamp_s in the stream."),
        (FieldType.TIMESTAMP_US, "if at counts milliseconds, declare it timestamp_ms in the"),
        (FieldType.TIMESTAMP_S, None),
    ],
)
def test_times_in_1970_suggest_another_unit(kind: FieldType, hint: str | None) -> None:
    said = words(nothing_open(definition=declared(kind), now_ms=1_700_000_000_000))
    if hint is None:
        assert "2001" not in said
    else:
        assert "All event times lie before 2001, the newest at 1970-01-01 00:01:05Z: " in said
        assert hint in said


def declared(kind: FieldType) -> TaskDefinition:
    """The task over a stream whose event time is declared so."""
    stream = replace(STREAM, fields=(Field("at", kind),))
    return replace(DEFINITION, versions=(replace(VERSION, stream=stream),))


def test_summary_counts_rows_of_the_log_that_are_not_committed_yet() -> None:
    logged = (LoggedRows(1, Bucket(0), {}, RowCounts(bad=6)),)
    assert "of 6 rows read, 6 bad" in words(evidence_with(logged=logged))


def test_summary_says_up_to_when_windows_are_closed() -> None:
    done = (progress_of(0, closed_ms=MINUTE, read=5, counted=5, emitted=5),)
    assert words(nothing_open(progress=done)) == (
        "No window is open: all windows with rows are closed up to 1970-01-01 00:01:00Z; no newer "
        "row has come."
    )


def test_moment_of_a_time_that_no_calendar_has_is_its_number() -> None:
    assert moment(10**17) == f"{10**17} ms"
