"""How the twins of registry and coordinator are told to fail."""

from __future__ import annotations

import pytest

from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.adapters.memory.registry import MemoryRegistry
from mars.core.errors import Unavailable
from mars.core.types import LeaderEpoch, MemberId, StoreEpoch, TaskName
from mars.protocol.ports import Assignment
from tests.contracts.test_registry import definition

ONE, TWO = MemberId("one"), MemberId("two")


def assignment(epoch: int) -> Assignment:
    return Assignment(LeaderEpoch(epoch), StoreEpoch(1), {})


def test_registry_fails_before_or_after_its_effect() -> None:
    registry = MemoryRegistry()
    registry.fail_next("create_task")
    with pytest.raises(Unavailable):
        registry.create_task(definition())
    assert registry.tasks() == {}
    registry.fail_next("create_task", before=False)
    with pytest.raises(Unavailable):
        registry.create_task(definition())
    assert set(registry.connect().tasks()) == {"by_sip"}
    assert registry.task(TaskName("by_sip")) is not None


def test_coordinator_fails_before_or_after_its_effect() -> None:
    ensemble = MemoryEnsemble()
    coordinator = MemoryCoordinator(ensemble, ONE)
    coordinator.campaign()
    coordinator.fail_next("publish")
    with pytest.raises(Unavailable):
        coordinator.publish(assignment(1))
    assert coordinator.assignment() is None
    coordinator.fail_next("publish", before=False)
    with pytest.raises(Unavailable):
        coordinator.publish(assignment(1))
    assert coordinator.assignment() == assignment(1)


def test_zombie_believes_to_lead_until_it_calls_and_publishes_nothing() -> None:
    ensemble = MemoryEnsemble()
    zombie, heir = MemoryCoordinator(ensemble, ONE), MemoryCoordinator(ensemble, TWO)
    zombie.campaign()
    heir.campaign()
    ensemble.expire(ONE, noticed=False)
    assert (zombie.leading(), heir.leading()) == (1, 2)
    assert zombie.connected()
    assert heir.publish(assignment(2))
    with pytest.raises(Unavailable):
        zombie.publish(assignment(1))
    assert not zombie.connected()
    assert zombie.leading() is None
    assert heir.assignment() == assignment(2)
    ensemble.heal(ONE)
    assert zombie.leading() is None
    assert ensemble.candidates == [TWO, ONE]


def test_suspended_leader_is_followed_only_after_its_session_expired() -> None:
    ensemble = MemoryEnsemble()
    one, two = MemoryCoordinator(ensemble, ONE), MemoryCoordinator(ensemble, TWO)
    one.campaign()
    two.campaign()
    ensemble.suspend(ONE)
    assert (one.leading(), two.leading()) == (None, None)
    ensemble.expire(ONE)
    assert (one.leading(), two.leading()) == (None, 2)
