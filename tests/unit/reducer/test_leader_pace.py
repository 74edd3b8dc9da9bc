"""How often the leader looks."""

from __future__ import annotations

import pytest

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.types import TaskName
from reducer import leader
from reducer.leader import LOOK_INTERVAL_S, LOOK_S_MAX
from tests.unit.machines.reducing_rows import P0, make_version
from tests.unit.reducer.test_leader_restores import World


def definition(name: str) -> TaskDefinition:
    return TaskDefinition(TaskName(name), TaskState.RUNNING, (make_version(1, {P0: 0}),))


def test_a_leader_of_many_tasks_looks_less_often_while_there_is_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader, "LOOK_S_A_LANE", 0.3)
    world = World()
    assert world.leader.pause_s == LOOK_INTERVAL_S
    world.registry.create_task(definition("a"))
    world.registry.create_task(definition("b"))
    world.look(1)
    assert world.leader.pause_s == LOOK_INTERVAL_S, "there was something to do"

    world.claim({})
    world.look(6)
    assert world.leader.pause_s == 0.6

    world.registry.create_task(definition("c"))
    assert world.leader.pause_s == LOOK_INTERVAL_S, "the tasks have changed"

    for name in "defgh":
        world.registry.create_task(definition(name))
    world.look(6)
    assert world.leader.pause_s == LOOK_S_MAX
