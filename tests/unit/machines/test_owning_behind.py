"""A bucket whose owner before had heard of a change of its task that this one has not heard of."""

from __future__ import annotations

from collections.abc import Iterable

from mars.core.definitions import TaskState
from mars.protocol.ports import Ledger, Progress
from mars.protocol.reducer.events import CommitTransaction
from tests.unit.machines.owned_bucket import Bucket
from tests.unit.machines.reducing_rows import (
    P0,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_task,
    make_version,
)


def commits(instructions: Iterable[object]) -> list[Progress]:
    """The records that are to be committed."""
    asked = [one.transaction for one in instructions if isinstance(one, CommitTransaction)]
    return [record for transaction in asked for record in transaction.progress]


def test_a_version_that_is_newer_than_the_known_definition_goes_on_from_its_record() -> None:
    newer = make_progress({P0: 5}, version=2, ledger=Ledger(read=2, counted=2), emit=4)
    here = Bucket()
    here.own(make_progress({P0: 3}, emit=4), newer)
    assert not [one for one in commits(here.machine.ticked(1)) if one.deleted]

    here.change(make_task(make_version(1), make_version(2, {P0: 3})))
    entry = make_entry(2, 5, [(1, "x")], plan=make_plan(version=2))
    here.read(make_head(2, {P0: 6}, version=2), entry)

    records = {one.version: one for one in commits(here.machine.ticked(60_000))}
    assert (records[2].emit, records[2].merged) == (5, {P0: 6})
    assert records[2].ledger.read == 3


def test_a_deleted_task_does_not_delete_what_was_made_again_under_its_name() -> None:
    here = Bucket()
    here.own(make_progress({P0: 5}, version=2, emit=4))
    here.change(make_task(state=TaskState.DELETED))

    assert not [one for one in commits(here.machine.ticked(60_000)) if one.deleted]
