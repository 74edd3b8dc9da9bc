"""Load figures: what a process measures, and how others read it."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest

from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    LeaderEpoch,
    MemberId,
    StoreEpoch,
    TaskName,
    Topic,
)
from mars.protocol.balance.load_meter import LOADS_REPORTED_MAX, LoadMeter
from mars.protocol.balance.load_view import STALE_S, Freshness, loads_of
from mars.protocol.balance.scaling import Demand
from mars.protocol.balance.smoothing import SMOOTHING_S, Growth, Smoothed
from mars.protocol.mapper.events import CATCH_UP, LIVE
from mars.protocol.mapper.meter import MapperMeter, ahead
from mars.protocol.ports import (
    Assignment,
    BucketLoad,
    BucketStatus,
    MemberInfo,
    Owner,
    PartitionReading,
)
from tests.unit.machines.loads import bucket_load

TASK, OTHER = TaskName("by_sip"), TaskName("by_type")
LANE, OTHER_LANE = (LIVE, Topic("flows"), 0), (LIVE, Topic("flows"), 1)


def owned(*numbers: int) -> frozenset[Bucket]:
    return frozenset(map(Bucket, numbers))


def info(name: str, **changes: object) -> MemberInfo:
    made = MemberInfo(MemberId(name), "reducer", "host", 1, 0, reported_ms=1)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_mean_begins_with_what_is_measured_and_forgets_it_by_and_by() -> None:
    mean = Smoothed()
    mean.add(4.0, 1.0)
    assert mean.value == pytest.approx(4.0)

    for _ in range(int(SMOOTHING_S)):
        mean.add(0.0, 1.0)

    assert 0 < mean.value < 2.0


def test_growth_is_that_of_the_level_and_not_its_height() -> None:
    growth: Growth[str] = Growth()
    for level in (1_000, 1_010, 1_020):
        growth.add({"a": level}, 2.0)

    assert growth.value == pytest.approx(5.0)


def test_what_comes_or_goes_with_its_level_is_no_growth() -> None:
    growth: Growth[str] = Growth()
    for levels in ({"a": 10}, {"a": 12, "b": 9_000}, {"b": 9_002}, {}, {"a": 70_000}):
        growth.add(levels, 1.0)

    assert 0 < growth.value <= 2.0


def test_each_bucket_is_charged_with_its_own_work_and_rows() -> None:
    meter = LoadMeter()
    meter.worked(Bucket(0), 0.5)
    meter.worked(Bucket(1), 0.1)
    meter.read((TASK, Bucket(0)), 2, 100, 4_000)

    figures = meter.measure(2.0, owned(0, 1))

    assert figures.buckets == (
        BucketLoad(Bucket(0), 0.25, 50.0, 2_000.0, 0),
        BucketLoad(Bucket(1), 0.05, 0.0, 0.0, 0),
    )


def test_the_backlog_is_what_is_unread_at_the_size_of_what_was_read() -> None:
    meter = LoadMeter()
    for task in (TASK, OTHER):
        meter.read((task, Bucket(0)), 10, 0, 5_000)
    meter.look({(TASK, Bucket(0)): 3, (OTHER, Bucket(0)): 1})
    meter.look({(TASK, Bucket(0)): 2})

    figures = meter.measure(1.0, owned(0))

    assert figures.backlog_bytes == 1_500
    assert figures.buckets[0].backlog_bytes == 2_000
    assert meter.measure(1.0, owned(0)).backlog_bytes == 0


def test_a_bucket_that_is_taken_over_with_its_backlog_does_not_count_as_growth() -> None:
    meter = LoadMeter()

    def measured(*numbers: int, unread: int) -> float:
        for number in numbers:
            meter.read((TASK, Bucket(number)), 1, 0, 1_000)
        meter.look({(TASK, Bucket(number)): unread for number in numbers})
        return meter.measure(1.0, owned(*numbers)).backlog_growth_bytes_per_second

    assert measured(0, unread=50) == 0.0
    assert measured(0, 1, unread=50) == 0.0
    assert measured(0, unread=50) == 0.0
    assert measured(0, unread=60) > 0.0


def test_growth_is_that_of_the_task_with_most_unread_also_when_two_take_turns() -> None:
    meter = LoadMeter()
    for second in range(20):
        for task in (TASK, OTHER):
            meter.read((task, Bucket(0)), 1, 0, 1_000)
        meter.look({(TASK, Bucket(0)): 10 * second, (OTHER, Bucket(0)): 10 * second + second % 2})
        figures = meter.measure(1.0, owned(0))

    assert 8_000 < figures.backlog_growth_bytes_per_second < 12_000


def test_a_bucket_that_moved_away_is_forgotten() -> None:
    meter = LoadMeter()
    meter.worked(Bucket(0), 0.5)

    assert meter.measure(1.0, owned(1)).buckets == ()
    assert meter.measure(1.0, owned(0)).buckets == ()


def test_bandwidth_counts_the_time_of_reading_only() -> None:
    meter = LoadMeter()
    meter.took(1_000_000, 0.5)
    meter.took(0, 0.3)

    assert meter.measure(10.0, owned()).read_bytes_per_second == 2_000_000


def test_a_report_of_thousands_of_buckets_stays_small() -> None:
    meter = LoadMeter()
    for number in range(4_096):
        meter.worked(Bucket(number), 0.01 + number / 1e4)
        meter.read((TASK, Bucket(number)), 1, 12_345, 1_234_567)

    loads = meter.measure(1.0, owned(*range(4_096))).buckets

    assert [load.bucket for load in loads] == list(range(4_095, 4_095 - LOADS_REPORTED_MAX, -1))
    assert len(msgspec.json.encode(loads)) < 8_000


def test_a_mapper_tells_its_rate_and_how_its_lag_grows() -> None:
    meter = MapperMeter()
    meter.measure(1.0, 0, {LANE: 1_000})

    figures = meter.measure(1.0, 500, {LANE: 1_200})

    assert figures["lag_messages"] == figures["lag_read_messages"] == 1_200
    assert figures["lag_growth_messages_per_second"] == 200
    assert 250 < figures["messages_per_second"] < 300
    assert figures["held_back"] == 0


def test_the_lag_of_a_lane_that_is_held_back_stays_and_its_return_is_no_growth() -> None:
    meter = MapperMeter()
    meter.measure(1.0, 0, {LANE: 1_000, OTHER_LANE: 10})

    for _second in range(60):
        held = meter.measure(1.0, 0, {LANE: 1_000, OTHER_LANE: 10}, {LANE}, held_back=True)
    back = [meter.measure(1.0, 0, {LANE: 90_000, OTHER_LANE: 10}) for _second in range(3)]

    assert (held["lag_messages"], held["lag_read_messages"]) == (1_010, 10)
    assert held["held_back"] > 0.99
    assert back[0]["lag_read_messages"] == 90_010
    assert [figures["lag_growth_messages_per_second"] for figures in back] == [0, 0, 0]
    assert 0.5 < back[2]["held_back"] < held["held_back"]


def test_what_the_reader_that_catches_up_has_ahead_counts_up_to_where_the_other_began() -> None:
    topic = Topic("flows")
    lags = {LIVE: {(topic, 0): 100, (topic, 1): 7}, CATCH_UP: {(topic, 0): 5_100, (topic, 1): 0}}

    assert ahead(lags) == {
        LANE: 100,
        OTHER_LANE: 7,
        (CATCH_UP, topic, 0): 5_000,
        (CATCH_UP, topic, 1): 0,
    }


# --------------------------------------------------------------------------- the leader's view


def test_a_member_is_fresh_while_it_says_something_new_whatever_its_clock_shows() -> None:
    freshness = Freshness()
    assert freshness.fresh([info("a", reported_ms=9_000_000)], 0.0) == {"a"}
    assert freshness.fresh([info("a", reported_ms=9_000_000)], STALE_S) == {"a"}
    assert freshness.fresh([info("a", reported_ms=9_000_000)], STALE_S + 0.1) == frozenset()
    assert freshness.ages_s(STALE_S + 0.1) == {"a": STALE_S + 0.1}
    assert freshness.fresh([info("a", reported_ms=5)], STALE_S + 0.2) == {"a"}
    assert freshness.ages_s(STALE_S + 0.2) == {"a": 0.0}


def test_room_is_shared_and_bandwidth_is_that_of_the_fastest() -> None:
    one = info("a", load={"cpu_use": 0.5, "backlog_bytes": 40.0, "read_bytes_per_second": 10.0})
    two = info("b", load={"cpu_use": 0.2, "read_bytes_per_second": 40.0})
    members = {one.id: one, two.id: two}

    loads = loads_of(members, {}, None, frozenset(members), 100, 7.0)

    assert loads.reducers[one.id].queue == 0.8
    assert loads.reducers[one.id].bandwidth == 0.25
    assert loads.reducers[two.id].bandwidth == 1.0
    assert len(loads.reducer_demands) == 2


def test_only_buckets_that_work_in_the_present_assignment_are_settled() -> None:
    epoch = AssignmentEpoch(4)
    owners = {Bucket(n): Owner(MemberId("a"), epoch) for n in range(3)}
    owners[Bucket(3)] = Owner(MemberId("b"), epoch)
    assignment = Assignment(LeaderEpoch(1), StoreEpoch(1), owners)
    one = info(
        "a",
        buckets=(
            BucketStatus(Bucket(0), epoch, "owning"),
            BucketStatus(Bucket(1), epoch, "claiming"),
            BucketStatus(Bucket(2), AssignmentEpoch(3), "owning"),
            BucketStatus(Bucket(3), epoch, "owning"),
        ),
    )

    loads = loads_of({one.id: one}, {}, assignment, frozenset({one.id}), 1, 0.0)

    assert loads.reducers[one.id].settled == {0}


def test_a_silent_member_makes_its_role_unknown() -> None:
    one, two = info("a", load={"cpu_use": 0.5}), info("b", load={"cpu_use": 0.5})

    loads = loads_of({one.id: one}, {two.id: two}, None, frozenset({one.id}), 1, 0.0)

    assert loads.reducer_demands
    assert loads.mapper_demands == ()


def test_who_is_leaving_is_known_but_not_among_those_that_buckets_move_between() -> None:
    epoch = AssignmentEpoch(1)
    owners = {Bucket(0): Owner(MemberId("a"), epoch)}
    assignment = Assignment(LeaderEpoch(1), StoreEpoch(1), owners)
    one = info(
        "a",
        load={"cpu_use": 0.5},
        loads=(bucket_load(0, 0.4),),
        buckets=(BucketStatus(Bucket(0), epoch, "owning"),),
        leaving=True,
    )
    two = info("b", load={"cpu_use": 0.1})
    members = {one.id: one, two.id: two}

    loads = loads_of(members, {}, assignment, frozenset(members), 100, 0.0)

    assert set(loads.reducers) == {"b"}
    assert loads.bucket_use() == {0: 0.4}
    assert loads.working() == frozenset()
    assert len(loads.reducer_demands) == 2


def test_how_far_a_reducer_is_behind_is_told_in_seconds_of_its_reading() -> None:
    def behind(*loads: BucketLoad) -> float:
        one = info("a", loads=loads)
        return loads_of({one.id: one}, {}, None, frozenset(), 1, 0.0).reducers[one.id].behind_s

    assert behind() == 0
    assert behind(bucket_load(0, 0.1, 3_000), bucket_load(1, 0.2, 3_000)) == 2.0
    assert behind(bucket_load(0, 0.0, 1)) == math.inf


@pytest.mark.parametrize(
    ("uses", "parts"), [([0.2, 0.2, 0.2], 3.0), ([0.9, 0.05, 0.04], 1.1), ([], math.inf)]
)
def test_the_work_of_a_reducer_has_parts_as_it_compares_with_its_hottest_bucket(
    uses: list[float], parts: float
) -> None:
    epoch = AssignmentEpoch(1)
    owners = {Bucket(n): Owner(MemberId("a"), epoch) for n in range(len(uses))}
    one = info(
        "a",
        loads=(*(bucket_load(n, use) for n, use in enumerate(uses)), bucket_load(9, 5.0)),
        buckets=tuple(BucketStatus(bucket, epoch, "owning") for bucket in owners),
    )
    assignment = Assignment(LeaderEpoch(1), StoreEpoch(1), owners)

    (demand,) = loads_of({one.id: one}, {}, assignment, frozenset({one.id}), 1, 0.0).reducer_demands

    assert demand.parts == pytest.approx(parts)


def test_a_reducer_tells_of_its_hottest_bucket_and_of_what_merging_for_others_leaves() -> None:
    costs = (bucket_load(0, 0.2), bucket_load(1, 0.5))
    one = info("a", load={"assisted_remaining": 0.9}, loads=costs)
    owner = Owner(one.id, AssignmentEpoch(1))
    statuses = tuple(BucketStatus(Bucket(b), AssignmentEpoch(1), "owning") for b in range(2))
    assignment = Assignment(LeaderEpoch(1), StoreEpoch(1), {Bucket(0): owner, Bucket(1): owner})
    one = replace(one, buckets=statuses)

    loads = loads_of({one.id: one}, {}, assignment, frozenset({one.id}), 1, 0.0)

    assert loads.reducers[one.id].remaining == 0.9
    assert loads.reducer_demands[0].hottest == 1


def test_a_mapper_that_may_use_half_a_core_is_busy_by_that_measure() -> None:
    one = info("m", role="mapper", load={"cpu_use": 0.45, "capacity": 0.5})

    (demand,) = loads_of({}, {one.id: one}, None, frozenset({one.id}), 1, 0.0).mapper_demands

    assert demand.use == 0.9


def test_of_a_mapper_that_was_held_back_neither_lag_nor_growth_counts() -> None:
    def demand(held_back: float) -> Demand:
        load = {
            "cpu_use": 0.3,
            "lag_messages": 9_000.0,
            "lag_read_messages": 8_000.0,
            "lag_growth_messages_per_second": 70.0,
            "held_back": held_back,
        }
        readings = (PartitionReading(Topic("flows"), 0, 5, "reading", 1),)
        one = info("m", role="mapper", load=load, partitions=readings)
        (found,) = loads_of({}, {one.id: one}, None, frozenset({one.id}), 1, 0.0).mapper_demands
        return found

    assert demand(0.01) == Demand(0.3, growth=70.0, backlog=8_000.0, parts=1)
    assert demand(0.2) == Demand(0.3, parts=1, held_back=True)
