"""Puts a bug of the past back, and says how many seeds of the usual mix it takes to see it.

`python -m tests.simulation.put_back NAME [SEEDS] [FIRST] [--processes N]`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cache, partial

import pytest

from mars.adapters.kafka.names import Place
from mars.adapters.memory import registry, sink, store
from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.core.definitions import TaskDefinition, TaskVersion
from mars.core.types import LeaderEpoch, Range, StoreEpoch, TaskName
from mars.protocol.leader import tasks as leading_tasks
from mars.protocol.leader.view import BeginVersion, Decision, SetActive, View
from mars.protocol.ports import Begun, Head
from tests.simulation import users
from tests.simulation.conditions import USUAL
from tests.simulation.hashes import fix_hashes
from tests.simulation.many import processes_of, results_of

Patch = pytest.MonkeyPatch

SEEDS = 1_000
"""Within so many the usual mix is to show each of them."""


def versions_know_the_newest_bound_alone(patch: Patch) -> None:
    """A batch of an older version is taken wherever it lies below the newest one's beginning."""

    def fits(found: store.StoredTask, version: int, part: Range) -> bool:
        bound = found.bounds[found.version].get(part.lane, 0)
        if version == found.version:
            return part.first >= bound
        return version < found.version and part.next <= bound

    patch.setattr(store, "_fits_version", fits)


class _Looked(str):
    """The name of the server that a leader looked at, with what it saw of the task there."""

    head: Head


def former_leaders_are_heeded(patch: Patch) -> None:
    """A version begins at the offsets of an old look, whoever has led since; so does all else that
    a leader decides.
    """
    real = leading_tasks._towards_new_version

    def towards(view: View, definition: TaskDefinition, head: Head) -> list[Decision]:
        decisions = real(view, definition, head)
        if not decisions or not isinstance(decisions[0], BeginVersion):
            return decisions
        if head.active:
            return [SetActive(definition.name, head.epoch, active=False)]
        looked = _Looked(head.run_id)
        looked.head = head
        return [replace(decisions[0], run_id=looked)]

    def begin_version(
        self: MemoryPartialLog,
        task: TaskName,
        epoch: StoreEpoch,
        _leader: LeaderEpoch,
        run_id: _Looked,
        version: int,
        *,
        after: int,
    ) -> Begun | None:
        found = self._store.task(task, epoch)
        if found is None or found.version not in {version, after}:
            return None
        found.bounds[version] = dict(run_id.head.offsets)
        return Begun(dict(run_id.head.offsets), dict(run_id.head.marks_ms))

    patch.setattr(leading_tasks, "_towards_new_version", towards)

    def drop(
        self: MemoryPartialLog,
        task: TaskName,
        _epoch: StoreEpoch,
        _leader: LeaderEpoch,
        _version: int,
    ) -> bool:
        self._store.tasks.pop(task, None)
        return True

    patch.setattr(MemoryPartialLog, "begin_version", begin_version)
    patch.setattr(MemoryPartialLog, "drop", drop)
    patch.setattr(
        store.MemoryStore, "led", lambda self, name, epoch, _leader: self.task(name, epoch)
    )
    patch.setattr(registry, "_holds", lambda lead: True)


def one_abort_settles_a_place(patch: Patch) -> None:
    """The abort that settles a place is taken to have left its marker."""

    def settled(
        self: sink.MemorySink, slot: sink._Slot, places: Iterable[Place], known: int
    ) -> sink._Slot:
        new = set(places) - slot.own.settled
        hung = self._look.unsettled(new)
        slot.own.fronts.update(hung)
        if hung:
            self._refuse(slot, known)
            self._settle(slot.own.bucket, slot.producer, hung)
            slot = self._slot(slot.own, slot.marker, {})
        slot.own.settled.update(new)
        return slot

    patch.setattr(sink.MemorySink, "_settled", settled)


def versions_between_others_are_forgotten(patch: Patch) -> None:
    """A version that is done is left out of the definition although one before it is not."""

    def needed(definition: TaskDefinition, done: Collection[int]) -> tuple[TaskVersion, ...]:
        return tuple(one for one in definition.versions if one.version not in done)

    patch.setattr(users, "needed_versions", needed)


BUGS: dict[str, Callable[[Patch], None]] = {
    bug.__name__: bug
    for bug in (
        versions_know_the_newest_bound_alone,
        former_leaders_are_heeded,
        one_abort_settles_a_place,
        versions_between_others_are_forgotten,
    )
}

USAGE = (
    "usage: python -m tests.simulation.put_back NAME [SEEDS] [FIRST] [--processes N]\n"
    f"NAME is one of {', '.join(BUGS)}\n"
)


@cache
def _put_back(name: str) -> None:
    BUGS[name](Patch())


def problem_with(seed: int, name: str) -> str:
    """What the usual mix makes of a seed with the bug in place; empty if it holds."""
    _put_back(name)
    found = USUAL.problem(seed)
    return "" if found is None else f"seed {seed}: {found[:300]}"


def main(arguments: list[str]) -> int:
    """Exit 0 if a seed shows the bug, 1 if none does, 2 for a wrong call."""
    processes = processes_of(arguments)
    name, *numbers = arguments or [""]
    if name not in BUGS or not processes or len(numbers) > 2 or not all(map(str.isdigit, numbers)):
        sys.stderr.write(USAGE)
        return 2
    with Patch.context() as patch:
        BUGS[name](patch)  # what it leaves out is still there
    count, first = SEEDS, 0
    if numbers:
        count, first = int(numbers[0]), int((numbers[1:] or ["0"])[0])
    run = partial(problem_with, name=name)
    results = results_of(range(first, first + count), run, processes)
    for done, (_seed, problem) in enumerate(results, start=1):
        if problem:
            sys.stdout.write(f"{name}: seen after {done} seeds, by {problem}\n")
            return 0
    sys.stdout.write(f"{name}: none of {count} seeds from {first} on shows it\n")
    return 1


if __name__ == "__main__":
    fix_hashes()
    raise SystemExit(main(sys.argv[1:]))
