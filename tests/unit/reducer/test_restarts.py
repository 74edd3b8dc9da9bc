"""Processes that begin again and again are told of."""

from __future__ import annotations

import dataclasses

import pytest

from mars.core.types import MemberId
from mars.core.windows.moments import HOUR_MS
from mars.process.telemetry import incidents
from mars.protocol.ports import IncidentKind, MemberInfo
from reducer.restarts import OFTEN, WITHIN_MS, Restarts

ONE = MemberInfo(MemberId("mapper-1"), "mapper", "host", 1, 0)
OTHER = MemberInfo(MemberId("reducer-1"), "reducer", "host", 2, 0)


class Clock:
    """Seconds that go on when they are told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def life(number: int, member: MemberInfo = ONE) -> MemberInfo:
    return dataclasses.replace(member, started_ms=number)


def begins(restarts: Restarts, clock: Clock, apart_s: float, count: int) -> list[bool]:
    """Whether it is told at each of so many lives, the first one among them."""
    told = []
    for number in range(count):
        told.append(bool(restarts.begun_often([life(number)])))
        assert restarts.begun_often([life(number)]) == [], "one life is seen once"
        clock.now_s += apart_s
    return told


def test_five_begins_within_ten_minutes_are_told_and_each_further_one() -> None:
    clock = Clock()
    assert begins(Restarts(clock), clock, 60, OFTEN + 3) == [False] * OFTEN + [True] * 3


@pytest.mark.parametrize("others", [[], [OTHER]])
def test_begins_that_are_far_apart_are_not_told(others: list[MemberInfo]) -> None:
    clock = Clock()
    restarts = Restarts(clock)
    restarts.begun_often(others)
    assert not any(begins(restarts, clock, WITHIN_MS / 1000 / (OFTEN - 1) + 1, 20))


def test_begins_of_several_members_are_not_put_together() -> None:
    restarts = Restarts(Clock())
    for number in range(OFTEN):
        assert restarts.begun_often([life(number), life(number, OTHER)]) == []


def test_what_is_told_within_an_hour_is_one_incident_of_each() -> None:
    one, same = (incidents.restarting(ONE.id, "host", OFTEN, WITHIN_MS) for _ in range(2))
    assert (one.kind, one.task) == (IncidentKind.RESTARTING, None)
    assert one.id == same.id or one.time_ms // HOUR_MS < same.time_ms // HOUR_MS
    assert one.id != incidents.restarting(OTHER.id, "host", OFTEN, WITHIN_MS).id
    assert one.what == "mapper-1 on host has started 5 times within 10 minutes."
