"""Each guard of the protocol is needed: without it the simulation fails within some seeds.

Every guard is left out by itself, and the seeds are tried in order until one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from mars.adapters.memory import partial_log, sink
from mars.definitions import TaskDefinition
from mars.machines import leading, owning
from mars.machines.bucket_task import BucketTask
from mars.machines.folding import Folding
from mars.machines.leading import Leading, View
from mars.ports import AppendOutcome, Claim, Stale, TaskStart
from mars.types import Range
from tests.simulation.world import World

SEEDS = 60
"""The rarest of these shows in one of twelve seeds."""

Patch = pytest.MonkeyPatch


def offsets_compared_and_set(patch: Patch) -> None:
    """M3: the store takes a batch wherever it begins."""
    real = partial_log.refused_ranges

    def refused(found: object, version: int, ranges: Sequence[Range]) -> AppendOutcome | None:
        outcome = real(found, version, ranges)  # type: ignore[arg-type]
        return None if isinstance(outcome, Stale) and outcome.current >= 0 else outcome

    patch.setattr(partial_log, "refused_ranges", refused)


def accounted_rows_only_rebuild(patch: Patch) -> None:
    """R5: what lies below M is counted again."""
    patch.setattr(Folding, "_accounted", lambda self, entry: False)


def catch_up_barrier(patch: Patch) -> None:
    """R6: windows are emitted as soon as the watermark says so."""
    patch.setattr(BucketTask, "caught_up", property(lambda self: self.head is not None))


def recovery_waits_for_all_claims(patch: Patch) -> None:
    """The leader begins a new life while former owners may still commit."""
    patch.setattr(Leading, "_all_claimed", staticmethod(lambda view, assignment: True))


def claims_read_the_progress(patch: Patch) -> None:
    """R3: an owner begins from nothing."""
    real = sink.MemorySink.claim

    def claim(self: sink.MemorySink, wanted: Claim) -> object:
        return replace(real(self, wanted), records=())

    patch.setattr(sink.MemorySink, "claim", claim)


def owners_are_fenced(patch: Patch) -> None:
    """R2: a former owner's producer goes on writing."""
    patch.setattr(sink.MemoryBroker, "_current", _any_epoch)
    for check in ("refuse_newer", "refuse_foreign", "refuse_strangers"):
        patch.setattr(sink, check, lambda *given: None)


def _any_epoch(self: sink.MemoryBroker, transactional_id: str, epoch: int) -> object:
    return self._ids[transactional_id]


def cuts(patch: Patch) -> None:
    """After a recovery batches may straddle what a bucket has accounted."""
    real = leading.task_start

    def start(definition: TaskDefinition, view: View) -> TaskStart:
        return replace(real(definition, view), cuts={})

    patch.setattr(leading, "task_start", start)


def logs_lost_while_they_are_read(patch: Patch) -> None:
    """R5: the answer of a store that was just emptied is taken for a log without entries."""
    patch.setattr(owning, "_still_there", lambda part, before, after: True)


def versions_begin_behind_what_is_accounted(patch: Patch) -> None:
    """A version begins where a recovery has set the store back to."""
    patch.setattr(leading, "_caught_up", lambda view, definition, head: True)


def heads_are_read_without_rows(patch: Patch) -> None:
    """A mapper at the end of its lanes does not notice that the store was lost."""
    patch.setattr("mars.machines.mapping.HEAD_INTERVAL_MS", 10**12)


GUARDS: Mapping[str, Callable[[Patch], None]] = {
    guard.__name__: guard
    for guard in (
        offsets_compared_and_set,
        accounted_rows_only_rebuild,
        catch_up_barrier,
        recovery_waits_for_all_claims,
        claims_read_the_progress,
        owners_are_fenced,
        cuts,
        logs_lost_while_they_are_read,
        versions_begin_behind_what_is_accounted,
        heads_are_read_without_rows,
    )
}


def fails(seed: int) -> bool:
    """Whether a run breaks an invariant."""
    try:
        World(seed).run()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_the_simulation_fails(guard: str, monkeypatch: Patch) -> None:
    GUARDS[guard](monkeypatch)

    assert any(fails(seed) for seed in range(SEEDS))
