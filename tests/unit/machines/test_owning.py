"""One bucket of a reducer, told by hand what came of what it asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.definitions import TaskState
from mars.core.errors import TaskLimit
from mars.core.types import AssignmentEpoch, MemberId, Sequence64, StoreEpoch
from mars.protocol.ports import Claim, Claimed, Committed, Head, LogSlice
from mars.protocol.reducer.events import (
    AuditEmissions,
    BucketClaimed,
    BucketCommitted,
    BucketFailed,
    ClaimBucket,
    CommitTransaction,
    EmissionsAudited,
    FailTask,
    LogRead,
    ReadAssignment,
    ReadLog,
    ReleaseBucket,
    Report,
)
from mars.protocol.reducer.owner import RETRY_PAUSE_MS, OwnerState
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from tests.unit.machines.owned_bucket import OTHER, Bucket, names, only, owner
from tests.unit.machines.reducing_rows import (
    A1,
    BUCKET,
    E1,
    NAME,
    P0,
    make_emission,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_task,
    make_version,
)

# ------------------------------------------------------------------------------------- claims


def test_an_assigned_bucket_gives_its_old_producer_back_and_claims() -> None:
    given = Bucket().machine.assigned(owner(3), StoreEpoch(2))

    assert given == [
        ReleaseBucket(BUCKET),
        ClaimBucket(BUCKET, 1, AssignmentEpoch(3), StoreEpoch(2)),
    ]


def test_the_same_assignment_again_changes_nothing() -> None:
    here = Bucket()
    here.own()

    assert here.machine.assigned(owner(), E1) == []


def test_a_higher_assignment_epoch_claims_again_from_any_state() -> None:
    here = Bucket()
    here.own()

    assert here.assign(epoch=2).epoch == 2
    assert here.machine.state is OwnerState.CLAIMING


def test_an_older_assignment_changes_nothing() -> None:
    here = Bucket()
    here.assign(epoch=3)
    here.claim()

    assert here.machine.assigned(owner(2), E1) == []
    assert here.machine.state is OwnerState.OWNING


def test_a_claim_knows_the_records_that_it_finds_and_no_others() -> None:
    here = Bucket()
    here.own(make_progress({P0: 1}, emit=4))
    here.fail()
    here.machine.ticked(RETRY_PAUSE_MS)
    here.own()

    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))
    commit = only(here.machine.ticked(RETRY_PAUSE_MS), CommitTransaction)

    assert [record.emit for record in commit.transaction.progress] == [1]


def test_the_last_emissions_are_audited_before_anything_is_read() -> None:
    here = Bucket()
    here.assign()
    given = here.claim(
        make_progress({P0: 1}, emission=make_emission(emit=1)),
        make_progress({P0: 2}, emit=2, emission=make_emission(emit=2)),
        make_progress({P0: 2}, "gone", emission=make_emission("gone"), deleted=True),
    )

    assert given == [AuditEmissions(BUCKET, here.term, (make_emission(emit=2),))]
    assert here.machine.heads_read({NAME: make_head(1, {P0: 3})}) == []


def test_what_was_restored_at_the_claim_is_reported() -> None:
    here = Bucket()
    here.assign()
    own = Claim(BUCKET, A1, E1, "nonce", MemberId("reducer-1"))
    claimed = Claimed((own,), 1, ("3 rows were hidden",))

    given = here.machine.claimed(BucketClaimed(BUCKET, here.term, claimed))

    assert given == [Report("restored", "bucket 0: 3 rows were hidden", BUCKET)]
    assert here.machine.state is OwnerState.OWNING


def test_an_audit_mismatch_is_reported_and_the_record_stays_the_truth() -> None:
    here = Bucket()
    here.assign()
    here.claim(make_progress({P0: 1}, emission=make_emission()))

    given = here.machine.audited(EmissionsAudited(BUCKET, here.term, ("2 rows, not 1",)))

    assert given == [Report("audit_mismatch", "bucket 0: 2 rows, not 1", BUCKET)]
    assert here.machine.state is OwnerState.OWNING


def test_an_unassigned_bucket_gives_its_producer_back_once() -> None:
    here = Bucket()
    here.own()

    assert here.machine.unassigned() == [ReleaseBucket(BUCKET)]
    assert here.machine.unassigned() == []
    assert here.machine.ticked(60_000) == []


# ----------------------------------------------------------------------------------- failures


def test_after_an_unknown_outcome_the_bucket_goes_through_the_assignment_again() -> None:
    here = Bucket()
    here.own()

    assert here.fail() == [
        ReleaseBucket(BUCKET),
        Report("bucket_interrupted", "bucket 0: why", BUCKET),
    ]
    assert here.machine.ticked(RETRY_PAUSE_MS - 1) == []
    assert here.machine.assigned(owner(), E1) == []
    assert here.machine.ticked(RETRY_PAUSE_MS) == [ReadAssignment()]
    assert here.assign().term > 1


def test_a_fenced_bucket_waits_for_a_higher_epoch() -> None:
    here = Bucket()
    here.own()

    here.fail(fenced=True)

    assert here.machine.ticked(60_000) == []
    assert here.machine.assigned(owner(), E1) == []
    assert here.assign(epoch=2).epoch == 2


def test_outcomes_of_earlier_terms_are_ignored() -> None:
    here = Bucket()
    here.own()
    old = here.term
    here.assign(epoch=2)

    claimed = Claimed((make_progress({P0: 9}),), 1)
    assert here.machine.claimed(BucketClaimed(BUCKET, old, claimed)) == []
    assert here.machine.audited(EmissionsAudited(BUCKET, old, ("x",))) == []
    assert here.machine.committed(BucketCommitted(BUCKET, old, Committed((), 9))) == []
    assert here.machine.failed(BucketFailed(BUCKET, old, True, "late")) == []
    request = ReadLog(BUCKET, old, NAME, Sequence64(0), Sequence64(1), (1, 0))
    late = LogRead(request, LogSlice(None, ()), make_head(1, {P0: 1}))
    assert here.machine.log_read(late) == []
    assert here.machine.state is OwnerState.CLAIMING


def test_a_task_whose_output_is_refused_fails_alone() -> None:
    here = Bucket(make_task(), make_task(name=OTHER))
    here.own()

    here.due()
    assert here.refuse() == [FailTask(NAME, (1, 0), "why")]
    here.machine.ticked(RETRY_PAUSE_MS)
    here.own()
    heads = {NAME: make_head(1, {P0: 1}), OTHER: make_head(1, {P0: 1})}
    asked = here.machine.heads_read(heads)

    assert [each.task for each in asked if isinstance(each, ReadLog)] == [OTHER]


@pytest.mark.parametrize(
    ("problem", "detail"),
    [(TaskLimit("too many keys"), "too many keys"), (ValueError("odd"), "unexpected ValueError")],
)
def test_a_task_that_cannot_be_folded_fails_alone(
    problem: Exception, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Bucket(make_task(), make_task(name=OTHER))
    here.own()
    real = TaskInBucket.absorb

    def absorb(part: TaskInBucket, piece: LogSlice) -> None:
        if part.task.name == NAME:
            raise problem
        real(part, piece)

    monkeypatch.setattr(TaskInBucket, "absorb", absorb)
    failed = only(here.read(make_head(1, {P0: 1}), make_entry(1, 0, [(1, "x")])), FailTask)
    assert failed.task == NAME
    assert failed.detail.startswith(detail)

    entry = make_entry(1, 0, [(1, "x")], plan=make_plan(OTHER))
    assert here.read(make_head(1, {P0: 1}, mark_s=10), entry, name=OTHER) == []
    assert names(only(here.machine.ticked(1), CommitTransaction)) == [OTHER]


def test_a_failed_task_is_read_from_the_start_once_it_is_resumed() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}), make_entry(1, 0, [(1, "x")]))
    here.change(make_task(state=TaskState.FAILED))
    assert here.machine.heads_read({NAME: make_head(2, {P0: 2})}) == []

    here.change(make_task())
    (read,) = here.machine.heads_read({NAME: make_head(2, {P0: 2})})

    assert isinstance(read, ReadLog)
    assert read.after == 0


def test_a_task_whose_failure_was_forgotten_while_the_bucket_was_interrupted_is_tried_again() -> (
    None
):
    here = Bucket()
    here.own()
    here.due()
    here.refuse()
    # ZooKeeper had it as failed, lost everything, and has it back as it was before.
    here.change(make_task(state=TaskState.FAILED))
    here.change(make_task())

    here.machine.ticked(RETRY_PAUSE_MS)
    here.own()

    head = make_head(1, {P0: 1}, mark_s=10)
    assert here.read(head, make_entry(1, 0, [(1, "x")])) == []
    assert names(only(here.machine.ticked(RETRY_PAUSE_MS), CommitTransaction)) == [NAME]


def test_a_failure_that_zookeeper_has_forgotten_before_anybody_saw_it_is_told_again() -> None:
    """A bucket once left such a task out for ever, and it ran in all others."""
    here = Bucket()
    here.own()
    here.due()
    (failed,) = here.refuse()

    assert only(here.machine.tasks_changed({NAME: make_task()}), FailTask) == failed
    assert here.machine.tasks_changed({NAME: make_task(state=TaskState.FAILED)}) == []
    assert here.machine.tasks_changed({NAME: make_task()}) == []


def test_a_task_made_anew_under_the_name_of_one_that_failed_is_read() -> None:
    """The bucket heard neither that the first one failed nor that it was deleted."""
    here = Bucket()
    here.own()
    here.due()
    here.refuse()
    here.change(make_task(make_version(2), first_version=2))

    here.machine.ticked(RETRY_PAUSE_MS)
    here.own()
    (read,) = here.machine.heads_read({NAME: make_head(1, {P0: 1}, version=2)})

    assert isinstance(read, ReadLog)


def test_a_task_that_was_deleted_during_its_commit_does_not_fail() -> None:
    here = Bucket()
    here.own()
    here.due()
    here.change(make_task(state=TaskState.DELETED))

    assert here.refuse() == []


def test_a_task_that_failed_elsewhere_during_its_commit_may_be_resumed() -> None:
    here = Bucket()
    here.own()
    here.due()
    here.change(make_task(state=TaskState.FAILED))

    assert here.refuse() == []
    assert here.machine.tasks_changed({NAME: make_task()}) == []


MADE_ANEW = make_task(make_version(2), first_version=2)


def test_a_task_made_anew_during_a_commit_of_the_one_before_does_not_fail() -> None:
    """It was failed once, by the number of its own version, which the leader had to believe."""
    here = Bucket()
    here.own()
    here.due()
    here.change(MADE_ANEW)

    assert here.refuse() == []
    here.machine.ticked(RETRY_PAUSE_MS)
    here.own()
    here.due(version=2, now_ms=RETRY_PAUSE_MS)
    assert here.refuse() == [FailTask(NAME, (2, 0), "why")]


def test_a_task_that_failed_and_was_resumed_before_anybody_saw_it_is_read() -> None:
    """It was left out for ever, or failed once more for what it had failed for before."""
    here = Bucket()
    here.own()
    here.due()
    here.refuse()

    assert here.machine.tasks_changed({NAME: make_task(resumes=1)}) == []
    here.machine.ticked(RETRY_PAUSE_MS)
    here.own()
    here.due(now_ms=RETRY_PAUSE_MS)
    assert here.refuse() == [FailTask(NAME, (1, 1), "why")]


def test_a_task_resumed_during_a_commit_does_not_fail_for_the_run_before() -> None:
    """Another bucket had failed it."""
    here = Bucket()
    here.own()
    here.due()
    here.change(make_task(resumes=1))

    assert here.refuse() == []
    assert here.machine.tasks_changed({NAME: make_task(resumes=1)}) == []


def test_a_log_is_read_for_the_run_that_the_task_is_in() -> None:
    here = Bucket(make_task(resumes=2))
    here.own()

    (read,) = here.machine.heads_read({NAME: make_head(1, {P0: 1})})

    assert isinstance(read, ReadLog)
    assert read.run == (1, 2)


def test_a_task_made_anew_after_a_commit_of_the_one_before_fails_by_its_own() -> None:
    here = Bucket()
    here.own()
    here.commit(here.due())
    here.change(MADE_ANEW)

    here.due(version=2)
    assert here.refuse() == [FailTask(NAME, (2, 0), "why")]


def test_a_store_that_went_back_is_reported_and_stops_the_bucket() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 3}), make_entry(1, 0, [(1, "x")] * 3))

    given = here.read(make_head(1, {P0: 2}))

    assert given[0] == ReleaseBucket(BUCKET)
    assert only(given, Report).kind == "store_went_back"
    assert here.machine.status == "store_went_back"
    assert here.machine.ticked(60_000) == []
    assert here.machine.assigned(owner(), E1) == []
    assert here.assign(epoch=2, store_epoch=2).store_epoch == 2


# ------------------------------------------------------------------------------------ reading


def test_what_is_new_in_the_log_is_read_up_to_the_head() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(2, {P0: 1}), make_entry(1, 0, [(1, "x")]))

    (read,) = here.machine.heads_read({NAME: make_head(5, {P0: 4})})

    assert read == ReadLog(BUCKET, here.term, NAME, Sequence64(2), Sequence64(5), (1, 0))


def test_a_store_of_another_epoch_is_not_read() -> None:
    here = Bucket()
    here.own()

    assert here.machine.heads_read({NAME: make_head(1, {P0: 1}, epoch=StoreEpoch(2))}) == []
    assert here.machine.heads_read({NAME: None}) == []


def test_a_log_with_a_version_that_is_not_known_yet_waits_for_its_definition() -> None:
    here = Bucket()
    here.own()
    head = make_head(1, {P0: 1}, version=2)
    assert here.machine.heads_read({NAME: head}) == []

    here.change(make_task(make_version(1), make_version(2, {P0: 0})))

    assert [type(each) for each in here.machine.heads_read({NAME: head})] == [ReadLog]


@pytest.mark.parametrize(
    "after",
    [
        None,
        make_head(0, {P0: 0}),
        make_head(9, {P0: 9}, epoch=StoreEpoch(2)),
        replace(make_head(9, {P0: 9}), born="again"),
    ],
    ids=["gone", "begun again", "of another epoch", "another life of the epoch"],
)
def test_what_is_read_of_a_log_that_was_lost_meanwhile_counts_for_nothing(
    after: Head | None,
) -> None:
    here = Bucket()
    here.own()
    head = make_head(1, {P0: 1}, mark_s=10)
    (read,) = here.machine.heads_read({NAME: head})
    assert isinstance(read, ReadLog)

    here.machine.log_read(LogRead(read, LogSlice(None, ()), after))
    assert here.machine.ticked(20_000) == []

    here.read(head, make_entry(1, 0, [(1, "x")]))
    commit = only(here.machine.ticked(20_000), CommitTransaction)
    assert commit.transaction.progress[0].ledger.emitted == 1


def test_a_task_made_again_under_the_name_of_a_deleted_one_is_read_from_the_start() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(5, {P0: 7}), make_entry(5, 0, [(1, "x")] * 7))

    here.change(make_task(make_version(2), first_version=2))
    assert here.machine.heads_read({NAME: make_head(6, {P0: 8})}) == []
    (read,) = here.machine.heads_read({NAME: make_head(6, {P0: 8}, version=2)})

    assert isinstance(read, ReadLog)
    assert read.after == 0


def test_assistants_may_merge_a_log_once_all_that_was_accounted_is_read_again() -> None:
    here = Bucket()
    here.own(make_progress({P0: 2}))
    here.machine.assisted = True
    here.read(make_head(1, {P0: 1}), make_entry(1, 0, [(1, "x")]))
    assert [said.opens for said in here.machine.clearings()] == [False]

    here.read(make_head(2, {P0: 2}), make_entry(2, 1, [(1, "x")]))
    assert [said.opens for said in here.machine.clearings()] == [True]
