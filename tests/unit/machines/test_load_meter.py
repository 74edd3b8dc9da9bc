"""Load figures: what a process measures, and how others read it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from mars.machines.load_meter import LOADS_REPORTED_MAX, LoadMeter
from mars.machines.load_view import STALE_S, Freshness, loads_of
from mars.machines.mapper_meter import MapperMeter
from mars.machines.smoothing import SMOOTHING_S, Growth, Smoothed
from mars.ports import Assignment, BucketLoad, BucketStatus, MemberInfo, Owner
from mars.types import AssignmentEpoch, Bucket, LeaderEpoch, MemberId, StoreEpoch, TaskName

TASK, OTHER = TaskName("by_sip"), TaskName("by_type")


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
    growth = Growth()
    for level in (1_000, 1_010, 1_020):
        growth.add(level, 2.0)

    assert growth.value == pytest.approx(5.0)


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
    meter.measure(1.0, 0, 1_000)

    figures = meter.measure(1.0, 500, 1_200)

    assert figures["lag_messages"] == 1_200
    assert figures["lag_growth_messages_per_second"] == 200
    assert 250 < figures["messages_per_second"] < 300


# --------------------------------------------------------------------------- the leader's view


def test_a_member_is_fresh_while_it_says_something_new_whatever_its_clock_shows() -> None:
    freshness = Freshness()
    assert freshness.fresh([info("a", reported_ms=9_000_000)], 0.0) == {"a"}
    assert freshness.fresh([info("a", reported_ms=9_000_000)], STALE_S) == {"a"}
    assert freshness.fresh([info("a", reported_ms=9_000_000)], STALE_S + 0.1) == frozenset()
    assert freshness.fresh([info("a", reported_ms=5)], STALE_S + 0.2) == {"a"}


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
