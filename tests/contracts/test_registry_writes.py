"""Many definitions written at once: in order, in steps, each step wholly or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.adapters.zookeeper.nodes import STEP_MEMBERS_MAX
from mars.core.definitions import TaskState
from mars.core.types import TaskName
from mars.protocol.ports import TaskWrite
from tests.contracts.test_registry import definition
from tests.contracts.waiting import Changes, eventually
from tests.contracts.zookeeper_servers import Ensemble

MANY = 2 * STEP_MEMBERS_MAX + 7


def new(count: int, detail: str = "") -> list[TaskWrite]:
    return [
        TaskWrite(replace(definition(f"t{number:04}"), detail=detail), None)
        for number in range(count)
    ]


def test_versions_are_those_that_a_replacement_expects(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    assert ours.versioned_tasks() == {}
    ours.create_task(definition())
    found, version = theirs.versioned_tasks()[TaskName("by_sip")]
    assert found == definition()
    assert ours.replace_task(definition(state=TaskState.PAUSED), version)
    assert not theirs.replace_task(definition(state=TaskState.FAILED), version)
    assert theirs.versioned_tasks()[found.name][1] != version


def test_many_are_made_and_read_back(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    writes = new(MANY)
    assert ours.write_tasks(writes) == MANY
    assert theirs.tasks() == {one.definition.name: one.definition for one in writes}
    assert ours.write_tasks([]) == 0


def test_new_ones_and_changes_go_together(ensemble: Ensemble) -> None:
    registry = ensemble.registry()
    registry.create_task(definition("old"))
    _, version = registry.versioned_tasks()[TaskName("old")]
    paused = definition("old", TaskState.PAUSED)
    writes = [TaskWrite(definition("new"), None), TaskWrite(paused, version)]
    assert registry.write_tasks(writes) == 2
    assert registry.tasks() == {paused.name: paused, TaskName("new"): definition("new")}


@pytest.mark.parametrize("wrong", ["taken", "changed", "gone"])
def test_a_step_with_one_that_is_not_as_expected_is_not_written(
    ensemble: Ensemble, wrong: str
) -> None:
    registry = ensemble.registry()
    registry.create_task(definition("taken"))
    registry.create_task(definition("changed"))
    _, version = registry.versioned_tasks()[TaskName("changed")]
    registry.replace_task(definition("changed", TaskState.PAUSED), version)
    expected = None if wrong == "taken" else version
    before = registry.tasks()
    writes = [TaskWrite(definition("new"), None), TaskWrite(definition(wrong), expected)]
    assert registry.write_tasks(writes) == 0
    assert registry.tasks() == before


def test_what_was_written_before_such_a_step_stays(ensemble: Ensemble) -> None:
    registry = ensemble.registry()
    taken = definition(f"t{MANY - 1:04}", TaskState.PAUSED)
    registry.create_task(taken)
    done = registry.write_tasks(new(MANY))
    assert 0 < done < MANY
    names = {f"t{number:04}" for number in range(done)}
    assert set(registry.tasks()) == {*names, taken.name}
    assert registry.tasks()[taken.name] == taken


def test_long_definitions_are_written_in_as_many_steps_as_they_need(ensemble: Ensemble) -> None:
    registry = ensemble.registry()
    writes = new(5, detail="x" * 400_000)
    assert registry.write_tasks(writes) == 5
    assert len(registry.tasks()) == 5


def test_whoever_watches_is_told(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.registry(), ensemble.registry()
    changes = Changes()
    theirs.watch_tasks(changes)
    eventually(lambda: changes.count > 0)
    before = changes.count
    assert ours.write_tasks(new(3)) == 3
    eventually(lambda: changes.count > before)
