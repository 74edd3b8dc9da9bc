"""What a leader does together of what it has decided."""

from __future__ import annotations

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.types import StoreEpoch, TaskName
from mars.protocol.leader.view import CopyDefinition, CopyStream, DropTask
from reducer.reign import CopyAll, together
from tests.unit.machines.reducing_rows import STREAM, make_version


def definition(name: str) -> TaskDefinition:
    return TaskDefinition(TaskName(name), TaskState.RUNNING, (make_version(1),))


def test_copies_that_follow_each_other_are_one_act_and_the_order_stays() -> None:
    a, b, c = (definition(name) for name in "abc")
    stream, drop = CopyStream(STREAM), DropTask(a.name, StoreEpoch(1), 1)
    decisions = [CopyDefinition(a), CopyDefinition(b), stream, drop, CopyDefinition(c), drop]
    done = list(together(decisions))
    assert done == [CopyAll((a, b)), stream, drop, CopyAll((c,)), drop]
    assert list(together([])) == []
