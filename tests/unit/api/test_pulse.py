"""How long a mapper has said nothing, by this process's clock alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.services.operation.pulse import Pulse
from mars.core.types import MemberId
from mars.protocol.ports import MemberInfo
from tests.unit.api.twins import World

NAME = MemberId("mapper-1")
INFO = MemberInfo(NAME, "mapper", "host", 1, 0, reported_ms=1_000)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pulse(world: World, clock: Clock) -> Pulse:
    return Pulse(world.services.why._ports, clock)


def test_report_that_stays_the_same_grows_old_and_a_new_one_is_young(
    pulse: Pulse, clock: Clock
) -> None:
    assert pulse.unheard_ms({NAME: INFO}) == {NAME: 0}
    clock.now_s += 7
    assert pulse.unheard_ms({NAME: INFO}) == {NAME: 7_000}
    assert pulse.unheard_ms({NAME: replace(INFO, reported_ms=900)}) == {NAME: 0}


def test_member_that_was_away_begins_anew(pulse: Pulse, clock: Clock) -> None:
    pulse.unheard_ms({NAME: INFO})
    assert pulse.unheard_ms({}) == {}
    clock.now_s += 7
    assert pulse.unheard_ms({NAME: INFO}) == {NAME: 0}


def test_looks_at_the_mappers_of_the_cluster(world: World, pulse: Pulse, clock: Clock) -> None:
    world.coordinator(NAME).join(INFO)
    pulse.look()
    clock.now_s += 3
    assert pulse.unheard_ms({NAME: INFO}) == {NAME: 3_000}
