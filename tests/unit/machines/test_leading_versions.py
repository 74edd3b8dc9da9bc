"""The leader and versions: after a loss of the store, and of tasks made again under an old name."""

from __future__ import annotations

from dataclasses import replace

from mars.core.definitions import TaskState
from mars.core.types import StoreEpoch
from mars.protocol.leader.machine import LeaderMachine
from mars.protocol.leader.view import (
    BeginVersion,
    DropTask,
    EndCatchUp,
    InitialiseTask,
    KnownProgress,
    SetActive,
    View,
)
from tests.unit.machines.test_leading import (
    TASK,
    claims,
    head,
    lanes,
    progress,
    task,
    version,
    view,
)

PENDING = task(version(starts=lanes(p0=10, p1=20)), version(2))
MERGED = KnownProgress().with_records([progress(0, lanes(p0=50, p1=70), lanes(p0=30, p1=40))])


def look(state: TaskState = TaskState.RUNNING, **changes: object) -> View:
    """A version waits to begin, after a recovery has set the task back to L."""
    tasks = {TASK: replace(PENDING, state=state)}
    made = view(tasks=tasks, copied=tasks, progress=MERGED)
    return replace(made, heads={TASK: head(**changes)})


def test_after_a_recovery_the_version_before_is_first_read_up_to_where_it_was() -> None:
    offsets = lanes(p0=30, p1=40)

    go_on = LeaderMachine().decide(look(active=False, offsets=offsets))
    wait = LeaderMachine().decide(look(active=True, offsets=lanes(p0=50, p1=69)))

    assert go_on == [SetActive(TASK, StoreEpoch(1), active=True)]
    assert wait == []


def test_without_a_bulk_process_lanes_left_to_spark_do_not_keep_a_version_waiting() -> None:
    """Nobody else would read them up to where the version before has been."""
    left = replace(PENDING, catch_up=lanes(p0=900))
    behind = replace(look(offsets=lanes(p0=30, p1=70)), tasks={TASK: left}, copied={TASK: left})

    assert LeaderMachine().decide(behind) == []
    assert LeaderMachine().decide(replace(behind, bulk_alive=False)) == [EndCatchUp(TASK, left.run)]


def test_a_version_begins_once_everything_accounted_has_been_read_again() -> None:
    offsets = lanes(p0=52, p1=70)

    for active in (True, False):
        (begin,) = LeaderMachine().decide(look(active=active, offsets=offsets))
        assert isinstance(begin, BeginVersion)
        assert (begin.version, begin.after) == (2, 1)


def test_a_version_does_not_begin_before_the_one_before_it_though_nothing_is_accounted() -> None:
    tasks = {
        TASK: task(version(starts=lanes(p0=0, p1=0)), version(2, lanes(p0=9, p1=9)), version(3))
    }
    behind = head(version=2, active=False, offsets=lanes(p0=0, p1=0))
    lost = view(tasks=tasks, copied=tasks, heads={TASK: behind})

    assert LeaderMachine().decide(lost) == [SetActive(TASK, StoreEpoch(1), active=True)]


def test_a_paused_task_is_not_set_going_to_let_a_version_begin() -> None:
    behind = look(TaskState.PAUSED, active=False, offsets=lanes(p0=30, p1=40))

    assert LeaderMachine().decide(behind) == []


def test_what_the_store_holds_of_a_deleted_task_does_not_become_that_of_the_next() -> None:
    again = {TASK: replace(task(version(2, lanes(p0=0, p1=0))), first_version=2)}
    leading = LeaderMachine()
    leading.decide(view())

    drop = leading.decide(view(tasks=again, copied=again))
    (initialise,) = leading.decide(view(tasks=again, copied=again, heads={TASK: None}))

    assert drop == [DropTask(TASK, StoreEpoch(1), version=1)]
    assert isinstance(initialise, InitialiseTask)
    assert initialise.start.offsets == lanes(p0=0, p1=0)


def test_a_claim_of_a_former_owner_does_not_hide_the_newer_one_before_it() -> None:
    newer, older = claims(2, 2), claims(1, 1)

    known = KnownProgress().with_records([*newer, *older])

    assert list(known.claims.values()) == newer
