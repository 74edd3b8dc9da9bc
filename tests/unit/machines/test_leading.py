"""The leader's decisions, one look at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion, resume_helps
from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Lane,
    LeaderEpoch,
    Mark,
    MemberId,
    Sequence64,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
)
from mars.protocol.balance.steering import Loads
from mars.protocol.leader.machine import LeaderMachine
from mars.protocol.leader.tasks import begin_version
from mars.protocol.leader.view import (
    AddLanes,
    BeginVersion,
    CopyDefinitions,
    CopyStream,
    Decision,
    DropStreamCopy,
    DropTask,
    EndCatchUp,
    FailTask,
    InitialiseTask,
    KnownProgress,
    PublishAssignment,
    SealStore,
    SetActive,
    View,
)
from mars.protocol.ports import (
    Assignment,
    Assisted,
    Begun,
    Claim,
    ControlState,
    Head,
    Ledger,
    MoveKind,
    Owner,
    Progress,
    Snapshot,
    StoreIdentity,
    TaskStart,
)
from tests.unit.machines.loads import reducer, reducers

BUCKETS = 2
TASK = TaskName("by_sip")
STREAM = Stream(
    StreamName("flows"),
    "flows",
    Format.JSON,
    (Field("timestamp", FieldType.TIMESTAMP_MS),),
    "timestamp",
)
REDUCERS = frozenset({MemberId("reducer-1"), MemberId("reducer-2")})
ALIVE = StoreIdentity("run-1", "run-1", StoreEpoch(1))


def lanes(**offsets: int) -> dict[Lane, int]:
    return {Lane(name[1:]): offset for name, offset in offsets.items()}


def version(
    number: int = 1, starts: Mapping[Lane, int] | None = None, **changes: object
) -> TaskVersion:
    made = TaskVersion(
        version=number,
        sql="SELECT count(*) FROM flows WINDOWING 60 s",
        options={},
        stream=STREAM,
        topic_id="topic-id",
        created_ms=0,
        starts=starts,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def task(*versions: TaskVersion, state: TaskState = TaskState.RUNNING) -> TaskDefinition:
    return TaskDefinition(TASK, state, versions or (version(starts=lanes(p0=10, p1=20)),))


def head(**changes: object) -> Head:
    made = Head(
        epoch=StoreEpoch(1),
        version=1,
        active=True,
        offsets=lanes(p0=10, p1=20),
        marks_ms={},
        idle=frozenset(),
        seq=Sequence64(0),
        now_ms=0,
        log_bytes=0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def assignment(store_epoch: int = 1, epoch: int = 1, leader: int = 1) -> Assignment:
    owners = {
        Bucket(0): Owner(MemberId("reducer-1"), AssignmentEpoch(epoch)),
        Bucket(1): Owner(MemberId("reducer-2"), AssignmentEpoch(epoch)),
    }
    return Assignment(LeaderEpoch(leader), StoreEpoch(store_epoch), owners)


def claims(store_epoch: int, epoch: int) -> list[Claim]:
    return [
        Claim(
            Bucket(number),
            AssignmentEpoch(epoch),
            StoreEpoch(store_epoch),
            "nonce",
            MemberId(f"reducer-{number + 1}"),
        )
        for number in range(BUCKETS)
    ]


def progress(
    bucket: int,
    merged: Mapping[Lane, int],
    needed: Mapping[Lane, int],
    number: int = 1,
    counted: int = 0,
) -> Progress:
    return Progress(
        task=TASK,
        version=number,
        bucket=Bucket(bucket),
        assignment_epoch=AssignmentEpoch(1),
        store_epoch=StoreEpoch(1),
        emit=1,
        closed_ms=60_000,
        merged=merged,
        needed=needed,
        ledger=Ledger(read=counted, counted=counted),
    )


def view(**changes: object) -> View:
    definition = task()
    made = View(
        leader_epoch=LeaderEpoch(1),
        buckets=BUCKETS,
        reducers=REDUCERS,
        assignment=assignment(),
        floor=ControlState(),
        identity=ALIVE,
        heads={TASK: head()},
        tasks={TASK: definition},
        copied={TASK: definition},
        progress=KnownProgress(),
        partitions={Topic("flows"): 2},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_nothing_is_changed_when_everything_is_in_order() -> None:
    assert LeaderMachine().decide(view()) == []


def test_the_first_assignment_raises_the_epochs_above_those_in_control() -> None:
    floor = ControlState(
        store_epoch=StoreEpoch(4), assignment_epoch=AssignmentEpoch(9), leader_epoch=LeaderEpoch(3)
    )

    (decision,) = LeaderMachine().decide(
        view(assignment=None, floor=floor, identity=None, heads={})
    )

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.store_epoch == 5
    assert {owner.epoch for owner in decision.assignment.owners.values()} == {10}
    assert {owner.member for owner in decision.assignment.owners.values()} == set(REDUCERS)


def test_epochs_go_on_above_those_of_claims_that_only_kafka_knows() -> None:
    """ZooKeeper came back from a backup, and mars.control is gone: reducers have claimed since."""
    known = KnownProgress().with_records(claims(5, 9))

    (moved,) = LeaderMachine().decide(
        view(progress=known, leaving=frozenset({MemberId("reducer-2")}))
    )
    (first,) = LeaderMachine().decide(view(progress=known, assignment=None, heads={}))

    assert isinstance(moved, PublishAssignment)
    assert moved.assignment.owners[Bucket(1)].epoch == 10
    assert isinstance(first, PublishAssignment)
    assert {owner.epoch for owner in first.assignment.owners.values()} == {10}
    assert first.assignment.store_epoch == 6


def test_the_store_epoch_goes_on_above_the_one_of_a_seal_that_nobody_else_knows() -> None:
    """A store outlived ZooKeeper and Kafka: what mappers sent it in that epoch may still come."""
    outlived = StoreIdentity("run-1", "run-1", StoreEpoch(7))

    (decision,) = LeaderMachine().decide(view(assignment=None, identity=outlived, heads={}))

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.store_epoch == 8


def test_an_assignment_older_than_control_is_a_loss_though_the_store_is_of_its_epoch() -> None:
    """ZooKeeper and Redis went back together, one from a backup, one to an earlier primary."""
    floor = ControlState(store_epoch=StoreEpoch(4), assignment_epoch=AssignmentEpoch(9))

    decisions = LeaderMachine().decide(view(floor=floor))

    published = [each for each in decisions if isinstance(each, PublishAssignment)]
    assert [each.assignment.store_epoch for each in published] == [5]


def test_without_a_reducer_the_leader_only_copies_definitions() -> None:
    decisions = LeaderMachine().decide(view(reducers=frozenset(), copied={}))

    assert decisions == [CopyDefinitions((task(),))]


def test_a_dead_reducers_buckets_move_with_a_higher_epoch_and_the_others_stay() -> None:
    (decision,) = LeaderMachine().decide(view(reducers=frozenset({MemberId("reducer-1")})))

    assert isinstance(decision, PublishAssignment)
    owners = decision.assignment.owners
    assert owners[Bucket(0)] == Owner(MemberId("reducer-1"), AssignmentEpoch(1))
    assert owners[Bucket(1)] == Owner(MemberId("reducer-1"), AssignmentEpoch(2))
    assert decision.assignment.store_epoch == 1


def test_a_leaving_reducers_buckets_move_to_those_who_stay() -> None:
    (decision,) = LeaderMachine().decide(view(leaving=frozenset({MemberId("reducer-2")})))

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.owners[Bucket(1)] == Owner(MemberId("reducer-1"), AssignmentEpoch(2))
    (move,) = decision.moves
    assert (move.bucket, move.reason) == (1, "reducer-2 is leaving")


def test_where_all_leave_nothing_moves() -> None:
    assert LeaderMachine().decide(view(leaving=REDUCERS)) == []


def test_buckets_move_because_of_load_with_a_higher_epoch_and_a_reason() -> None:
    owners = {
        Bucket(number): Owner(MemberId(f"reducer-{1 + (number > 2)}"), AssignmentEpoch(1))
        for number in range(4)
    }
    uneven = reducers(**{"reducer-1": {0: 0.5, 1: 0.25, 2: 0.05}, "reducer-2": {3: 0.1}})
    look = view(
        buckets=4,
        assignment=Assignment(LeaderEpoch(1), StoreEpoch(1), owners),
        loads=Loads(100.0, uneven),
    )
    leading = LeaderMachine()

    assert leading.decide(look) == []
    (decision,) = leading.decide(replace(look, loads=Loads(131.0, uneven)))

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.owners == owners | {
        Bucket(1): Owner(MemberId("reducer-2"), AssignmentEpoch(2))
    }
    assert decision.moves[0].reason.startswith("use is uneven")
    assert decision.reason == decision.moves[0].reason


def test_moves_are_told_and_counted_once_the_assignment_has_them_and_rest_at_any_rate() -> None:
    uneven = reducers(**{"reducer-1": {0: 0.5, 1: 0.25, 2: 0.05}, "reducer-2": {3: 0.1}})
    look = view(
        buckets=4,
        assignment=Assignment(LeaderEpoch(1), StoreEpoch(1), owned(3, 1)),
        loads=Loads(0.0, uneven),
    )
    leading = LeaderMachine()

    def decided(now_s: float) -> list[Decision]:
        return leading.decide(replace(look, loads=Loads(now_s, uneven)))

    decided(0.0)
    (refused,) = decided(30.0)
    assert isinstance(refused, PublishAssignment)
    leading.publishing(refused, 30.0, 4_000)
    assert decided(30.25) == []
    assert leading.balance(look).moves == ()
    assert leading.balance(look).moves_total == 0

    (taken,) = decided(90.0)
    assert isinstance(taken, PublishAssignment)
    leading.publishing(taken, 90.0, 5_000)
    then = replace(look, assignment=taken.assignment, loads=Loads(90.25, uneven))
    leading.decide(then)
    leading.decide(then)
    assert leading.balance(then).moves == (replace(taken.moves[0], at_ms=5_000),)
    assert leading.balance(then).moves_by_kind[MoveKind.USE] == 1
    assert leading.balance(then).moves_total == 1


def helped() -> View:
    """Bucket 0 keeps its reducer busy; two others could help."""
    owners = {
        Bucket(number): Owner(MemberId(f"reducer-{number + 1}"), AssignmentEpoch(1))
        for number in range(3)
    }
    hot = reducers(**{"reducer-1": {0: 0.95}, "reducer-2": {1: 0.2}, "reducer-3": {2: 0.1}})
    return view(
        buckets=3,
        reducers=frozenset(hot),
        assignment=Assignment(LeaderEpoch(1), StoreEpoch(1), owners),
        loads=Loads(100.0, hot),
    )


def test_a_bucket_that_no_move_would_help_gets_an_assistant() -> None:
    leading, look = LeaderMachine(), helped()

    assert leading.decide(look) == []
    look = replace(look, loads=replace(look.loads, now_s=131.0))
    (decision,) = leading.decide(look)

    assert isinstance(decision, PublishAssignment)
    assert decision.moves == ()
    assert decision.assignment.assistants == {Bucket(0): (MemberId("reducer-3"),)}
    assert look.assignment is not None
    assert decision.assignment.owners == look.assignment.owners
    assert "merges for it" in decision.reason
    (told,) = leading.balance(replace(look, assignment=decision.assignment)).assisted
    assert told.reason == decision.reason


def test_assistants_who_are_gone_or_leaving_are_dropped_at_once() -> None:
    look = helped()
    assert look.assignment is not None
    named = {Bucket(0): (MemberId("reducer-2"), MemberId("reducer-9"))}
    look = replace(look, assignment=replace(look.assignment, assistants=named))

    (gone,) = LeaderMachine().decide(look)
    decisions = LeaderMachine().decide(replace(look, leaving=frozenset({MemberId("reducer-2")})))

    assert isinstance(gone, PublishAssignment)
    assert gone.assignment.assistants == {Bucket(0): (MemberId("reducer-2"),)}
    assert gone.reason == "assistants are gone"
    (leaving,) = decisions
    assert isinstance(leaving, PublishAssignment)
    assert leaving.assignment.assistants == {}
    assert [one.reason for one in gone.assisted] == ["reducer-9 goes"]
    assert [one.assistants for one in leaving.assisted] == [()]


def test_why_assistants_went_is_told_after_they_have_gone() -> None:
    leading, look = LeaderMachine(), helped()
    assert look.assignment is not None
    named = {Bucket(0): (MemberId("reducer-2"),)}
    calm = reducers(**{"reducer-1": {0: 0.2}, "reducer-2": {1: 0.2}, "reducer-3": {2: 0.1}})
    look = replace(look, assignment=replace(look.assignment, assistants=named))

    def decided(now_s: float) -> list[Decision]:
        return leading.decide(replace(look, loads=Loads(now_s, calm)))

    assert [*decided(0.0), *decided(31.0)] == []
    (decision,) = decided(61.0)
    assert isinstance(decision, PublishAssignment)
    leading.publishing(decision, 61.0, 7_000)
    look = replace(look, assignment=decision.assignment)
    decided(61.25)

    said = leading.balance(look)
    assert said.assisted == ()
    reason = "bucket 0 costs 0.20 in all: its owner does that alone"
    assert said.assistant_changes == (Assisted(Bucket(0), (), reason, 7_000),)


def owned(*counts: int) -> dict[Bucket, Owner]:
    """So many buckets of each reducer."""
    names = [f"reducer-{number + 1}" for number, count in enumerate(counts) for _ in range(count)]
    return {
        Bucket(number): Owner(MemberId(name), AssignmentEpoch(1))
        for number, name in enumerate(names)
    }


def test_a_newcomer_gets_its_part_by_quarters_each_when_the_one_before_works() -> None:
    def look(assignment: Assignment) -> View:
        """All buckets work, but those that the newcomer took last."""
        both = reducers(**{"reducer-1": {}, "reducer-2": {}})
        for bucket, owner in assignment.owners.items():
            if bucket not in claimed:
                load = both[owner.member]
                both[owner.member] = replace(load, settled=load.settled | {bucket})
        loads = Loads(1.0, both)
        return view(buckets=16, assignment=assignment, loads=loads)

    leading, claimed = LeaderMachine(), set[Bucket]()
    given = Assignment(LeaderEpoch(1), StoreEpoch(1), owned(16))

    (first,) = leading.decide(look(given))
    assert isinstance(first, PublishAssignment)
    claimed = {move.bucket for move in first.moves}
    assert len(claimed) == 4
    assert leading.decide(look(first.assignment)) == []
    claimed = set()
    (second,) = leading.decide(look(first.assignment))
    assert isinstance(second, PublishAssignment)
    assert len(second.moves) == 4
    assert leading.decide(look(second.assignment)) == []
    assert leading.decide(look(second.assignment)) == []


def test_a_newcomer_leaves_a_hot_bucket_with_its_assistants_where_it_is() -> None:
    hot = reducers(**{"reducer-1": {0: 0.95, 1: 0.02, 2: 0.02}, "reducer-2": {3: 0.1}})
    hot[MemberId("reducer-3")] = reducer({})
    named = {Bucket(0): (MemberId("reducer-2"),)}
    look = view(
        buckets=4,
        reducers=frozenset(hot),
        assignment=Assignment(LeaderEpoch(1), StoreEpoch(1), owned(3, 1), named),
        loads=Loads(1.0, hot),
    )

    (decision,) = LeaderMachine().decide(look)
    unnamed = Assignment(LeaderEpoch(1), StoreEpoch(1), owned(3, 1))
    (alone,) = LeaderMachine().decide(replace(look, assignment=unnamed))

    assert isinstance(decision, PublishAssignment)
    assert isinstance(alone, PublishAssignment)
    assert decision.assignment.assistants == named
    for given in (decision, alone):
        assert {move.target for move in given.moves} == {"reducer-3"}
        assert given.assignment.owners[Bucket(0)].member == "reducer-1"


def test_a_new_leader_keeps_the_assistants_that_are_there() -> None:
    look = helped()
    assert look.assignment is not None
    named = {Bucket(0): (MemberId("reducer-2"),)}
    kept = replace(look.assignment, assistants=named)
    look = replace(look, leader_epoch=LeaderEpoch(2), assignment=kept)

    (decision,) = LeaderMachine().decide(look)

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.assistants == named


def test_a_store_that_is_being_recovered_comes_before_any_load() -> None:
    uneven = reducers(**{"reducer-1": {0: 0.9, 7: 0.3}, "reducer-2": {1: 0.1}})
    leading, look = recovering()
    leading.decide(replace(look, loads=Loads(0.0, uneven)))

    assert leading.decide(replace(look, loads=Loads(100.0, uneven))) == []


def test_a_new_leader_confirms_the_assignment_under_its_own_epoch() -> None:
    (decision,) = LeaderMachine().decide(view(leader_epoch=LeaderEpoch(2)))

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment == replace(assignment(), leader_epoch=LeaderEpoch(2))


def test_a_restarted_store_raises_the_epoch_and_reassigns_every_bucket() -> None:
    restarted = StoreIdentity("run-2", None, None)

    (decision,) = LeaderMachine().decide(view(identity=restarted, heads={TASK: None}))

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.store_epoch == 2
    assert {owner.epoch for owner in decision.assignment.owners.values()} == {2}


def test_a_flushed_store_raises_the_epoch_although_its_run_id_is_the_same() -> None:
    flushed = StoreIdentity("run-1", None, None)

    (decision,) = LeaderMachine().decide(view(identity=flushed, heads={TASK: None}))

    assert isinstance(decision, PublishAssignment)


def test_a_task_on_another_server_than_the_one_it_was_begun_on_is_lost() -> None:
    """A replica that was promoted between the two questions: the seal was asked of the other."""
    (decision,) = LeaderMachine().decide(view(heads={TASK: head(begun_on="run-1", run_id="run-2")}))

    assert isinstance(decision, PublishAssignment)
    assert "by_sip lies on another server" in decision.reason
    assert LeaderMachine().decide(view(heads={TASK: head(begun_on="run-1", run_id="run-1")})) == []


def test_a_task_that_is_still_to_be_begun_anew_is_no_further_loss() -> None:
    leading, look = recovering()
    before = head(begun_on="run-1", run_id="run-2")

    assert leading.decide(replace(look, heads={TASK: before})) == []


def recovering() -> tuple[LeaderMachine, View]:
    """A leader that has just raised the epoch to 2, and what it sees next."""
    leading = LeaderMachine()
    lost = StoreIdentity("run-2", None, None)
    (raised,) = leading.decide(view(identity=lost, heads={TASK: None}))
    assert isinstance(raised, PublishAssignment)
    return leading, view(identity=lost, heads={TASK: None}, assignment=raised.assignment)


def test_recovery_waits_until_every_bucket_is_claimed_in_its_new_epoch() -> None:
    leading, look = recovering()
    one_missing = KnownProgress().with_records(claims(2, 2)[:1] + claims(1, 1)[1:])

    assert leading.decide(replace(look, progress=one_missing)) == []


def restored(*records: tuple[Progress, int], versions: tuple[TaskVersion, ...] = ()) -> Mark | None:
    """The mark with which a task begins anew, by its records and when they were written."""
    leading, look = recovering()
    known = KnownProgress().with_records(
        [record for record, _at in records], [at for _record, at in records]
    )
    tasks = {TASK: task(*versions)}
    seen = replace(look, tasks=tasks, copied=tasks, progress=known.with_records(claims(2, 2)))
    initialise, _seal = leading.decide(seen)
    assert isinstance(initialise, InitialiseTask)
    return initialise.start.restored


def reached(
    bucket: int, watermark_ms: int | None, number: int = 1, closed_ms: int | None = None
) -> Progress:
    """A record whose watermark had come so far."""
    record = progress(bucket, lanes(p0=50, p1=70), lanes(p0=50, p1=70), number)
    return replace(record, closed_ms=closed_ms, watermark_ms=watermark_ms)


def begun(number: int, **options: str) -> TaskVersion:
    return version(number, lanes(p0=10, p1=20), options=options)


def test_recovery_goes_on_from_the_highest_watermark_of_the_records() -> None:
    assert restored() is None
    assert restored((reached(0, None), 500)) is None
    assert restored((reached(0, 61_000), 500), (reached(1, 60_000), 900)) == Mark(61_000, 500)
    assert restored((reached(0, 61_000), 500), (reached(1, 61_000), 400)) == Mark(61_000, 500)


def test_what_is_closed_was_a_watermark_too() -> None:
    paused = reached(0, None, closed_ms=60_000)
    assert restored((paused, 500)) == Mark(60_000, 500)
    behind = reached(0, 10_000, closed_ms=60_000)
    assert restored((behind, 500)) == Mark(60_000, 500)


def test_recovery_adds_what_the_watermarks_of_each_version_lie_behind_the_marks() -> None:
    versions = (begun(1, delay="1s"), begun(2, delay="7s"))
    first, second = (reached(0, 60_000), 500), (reached(0, 55_000, 2), 900)
    assert restored(first, second, versions=versions) == Mark(62_000, 900)
    by_key = (begun(1, delay="1s", watermark="key", key_lag="20s"),)
    assert restored(first, versions=by_key) == Mark(81_000, 500)
    by_bucket = (begun(1, delay="1s", watermark="bucket", key_lag="20s"),)
    assert restored(first, versions=by_bucket) == Mark(61_000, 500)


def test_record_of_which_nothing_is_known_to_go_on_from_is_passed_over() -> None:
    record = reached(0, 60_000)
    assert restored((replace(record, deleted=True), 500)) is None
    refused = (begun(1, delay="1s", unheard_of="1"),)
    assert restored((record, 500), versions=refused) is None
    leading, look = recovering()
    known = KnownProgress().with_records([record, *claims(2, 2)])  # nobody says when
    initialise, _seal = leading.decide(replace(look, progress=known))
    assert isinstance(initialise, InitialiseTask)
    assert initialise.start.restored is None


def test_a_store_that_went_back_is_not_trusted_for_the_seal_of_its_last_epoch() -> None:
    """It has been given up, by this leader or one before: nothing goes on in it before all claims
    are there.
    """
    leading = LeaderMachine()
    (raised,) = leading.decide(view(went_back=frozenset({Bucket(1)})))
    assert isinstance(raised, PublishAssignment)
    look = view(assignment=raised.assignment)

    assert leading.decide(look) == []
    (again,) = LeaderMachine().decide(look)
    assert isinstance(again, PublishAssignment)
    assert again.assignment.store_epoch == 3


def test_recovery_cuts_where_panes_were_saved_too() -> None:
    leading, look = recovering()
    saved = Snapshot(lanes(p0=40, p1=65), 60_000, 1, 0)
    records: list[Progress | Claim] = [
        replace(progress(0, lanes(p0=50, p1=70), lanes(p0=40, p1=65)), snapshot=saved),
        progress(1, lanes(p0=55, p1=60), lanes(p0=30, p1=60)),
        *claims(2, 2),
    ]

    initialise, _seal = leading.decide(
        replace(look, progress=KnownProgress().with_records(records))
    )

    assert isinstance(initialise, InitialiseTask)
    assert initialise.start.offsets == lanes(p0=30, p1=60)
    assert initialise.start.cuts == {Lane("0"): (40, 50, 55), Lane("1"): (65, 70)}


def test_recovery_begins_at_the_lowest_needed_offsets_and_cuts_at_all_merged_ones() -> None:
    leading, look = recovering()
    records: list[Progress | Claim] = [
        progress(0, lanes(p0=50, p1=70), lanes(p0=30, p1=70)),
        progress(1, lanes(p0=55, p1=60), lanes(p0=55, p1=40)),
        *claims(2, 2),
    ]

    decisions = leading.decide(replace(look, progress=KnownProgress().with_records(records)))

    initialise, seal = decisions
    assert isinstance(initialise, InitialiseTask)
    assert initialise.epoch == 2
    assert initialise.start.offsets == lanes(p0=30, p1=40)
    assert initialise.start.cuts == {Lane("0"): (50, 55), Lane("1"): (60, 70)}
    assert initialise.start.active
    assert seal == SealStore(StoreEpoch(2), "run-2")


def test_a_bucket_without_progress_makes_the_task_begin_at_its_start() -> None:
    leading, look = recovering()
    records: list[Progress | Claim] = [
        progress(0, lanes(p0=50, p1=70), lanes(p0=50, p1=70)),
        *claims(2, 2),
    ]

    decisions = leading.decide(replace(look, progress=KnownProgress().with_records(records)))

    assert isinstance(decisions[0], InitialiseTask)
    assert decisions[0].start.offsets == lanes(p0=10, p1=20)


def test_a_store_lost_again_right_after_its_tasks_were_initialised_raises_the_epoch_again() -> None:
    leading, look = recovering()
    claimed = replace(look, progress=KnownProgress().with_records(claims(2, 2)))
    leading.decide(claimed)

    (decision,) = leading.decide(claimed)

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.store_epoch == 3


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (StoreIdentity("run-9", None, None), "started anew or emptied, it has nothing of epoch 1"),
        (StoreIdentity("run-9", "run-1", StoreEpoch(1)), "what it had of epoch 1"),
        (
            StoreIdentity("run-9", "run-0", StoreEpoch(7)),
            "holds epoch 7, not epoch 1; run id",
        ),
    ],
)
def test_people_are_told_what_store_it_is_that_is_not_trusted(
    identity: StoreIdentity, said: str
) -> None:
    (decision,) = LeaderMachine().decide(view(identity=identity))

    assert isinstance(decision, PublishAssignment)
    assert said in decision.reason


def test_a_new_leader_does_not_trust_an_unsealed_store_that_another_one_was_recovering() -> None:
    _old, look = recovering()

    (decision,) = LeaderMachine().decide(
        replace(look, progress=KnownProgress().with_records(claims(2, 2)))
    )

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.store_epoch == 3


def test_a_reducer_that_saw_the_log_go_back_raises_the_epoch() -> None:
    (decision,) = LeaderMachine().decide(view(went_back=frozenset({Bucket(1)})))

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.store_epoch == 2


def test_a_tracker_that_misses_a_partial_raises_the_epoch() -> None:
    (decision,) = LeaderMachine().decide(view(partial_lost=True))

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.store_epoch == 2


def test_a_new_task_is_initialised_at_its_start_offsets() -> None:
    (decision,) = LeaderMachine().decide(view(heads={TASK: None}))

    assert isinstance(decision, InitialiseTask)
    assert decision.start.offsets == lanes(p0=10, p1=20)
    assert decision.epoch == 1


def test_a_task_with_progress_that_is_missing_from_a_sealed_store_raises_the_epoch() -> None:
    known = KnownProgress().with_records([progress(0, lanes(p0=50, p1=70), lanes(p0=50, p1=70))])

    (decision,) = LeaderMachine().decide(view(heads={TASK: None}, progress=known))

    assert isinstance(decision, PublishAssignment)


def test_pausing_and_resuming_is_carried_into_the_store() -> None:
    paused = {TASK: task(state=TaskState.PAUSED)}

    pause = LeaderMachine().decide(view(tasks=paused, copied=paused))
    resume = LeaderMachine().decide(view(heads={TASK: head(active=False)}))

    assert pause == [SetActive(TASK, StoreEpoch(1), active=False)]
    assert resume == [SetActive(TASK, StoreEpoch(1), active=True)]


def test_a_deleted_task_leaves_the_store() -> None:
    deleted = {TASK: task(state=TaskState.DELETED)}

    assert LeaderMachine().decide(view(tasks=deleted, copied=deleted)) == [
        DropTask(TASK, StoreEpoch(1), version=1)
    ]


def test_new_partitions_are_read_from_their_beginning() -> None:
    decisions = LeaderMachine().decide(view(partitions={Topic("flows"): 4}))

    assert decisions == [AddLanes(TASK, StoreEpoch(1), lanes(p2=0, p3=0))]


def test_a_definition_that_control_lacks_is_copied() -> None:
    assert LeaderMachine().decide(view(copied={})) == [CopyDefinitions((task(),))]


def test_copies_of_streams_are_those_in_zookeeper() -> None:
    changed = replace(STREAM, topic="other")
    gone = StreamName("gone")
    look = view(
        streams={STREAM.name: STREAM},
        copied_streams={STREAM.name: changed, gone: replace(STREAM, name=gone)},
    )
    assert LeaderMachine().decide(look) == [CopyStream(STREAM), DropStreamCopy(gone)]


def test_a_new_version_begins_in_the_store_on_the_server_that_was_looked_at() -> None:
    options = {"delay": "1s", "watermark": "key", "key_lag": "40s"}
    begun = version(starts=lanes(p0=10, p1=20), options=options)
    pending = {TASK: task(begun, version(2))}
    heads = {TASK: head(run_id="run-1")}

    decided = LeaderMachine().decide(view(tasks=pending, copied=pending, heads=heads))

    assert decided == [BeginVersion(TASK, StoreEpoch(1), "run-1", 2, after=1, behind_ms=41_000)]


def test_windows_of_a_version_whose_options_are_refused_are_never_complete_from_then_on() -> None:
    begun = version(starts=lanes(p0=10, p1=20), options={"delay": "of another release"})
    pending = {TASK: task(begun, version(2))}

    (decision,) = LeaderMachine().decide(view(tasks=pending, copied=pending))
    assert isinstance(decision, BeginVersion)
    known = Begun(lanes(p0=10, p1=20), lanes(p0=90_000, p1=90_000))
    old, _new = begin_version(pending[TASK], known, decision.behind_ms, None).versions

    assert old.complete_until_ms is not None
    assert old.complete_until_ms < 0


def test_a_version_that_has_begun_in_the_store_alone_begins_once_more() -> None:
    """The leader that let it begin did not come to write the definition."""
    pending = {TASK: task(version(starts=lanes(p0=10, p1=20)), version(2))}
    known = KnownProgress().with_records([progress(0, lanes(p0=95, p1=95), lanes(p0=95, p1=95))])
    heads = {TASK: head(version=2, active=False, offsets=lanes(p0=90, p1=95))}
    look = view(tasks=pending, copied=pending, heads=heads, progress=known)

    (decision,) = LeaderMachine().decide(look)

    assert isinstance(decision, BeginVersion)
    assert (decision.version, decision.after) == (2, 1)


def test_a_version_begins_where_the_store_says_and_cuts_the_windows_there() -> None:
    pending = task(version(starts=lanes(p0=10, p1=20)), version(2))
    begun = Begun(lanes(p0=90, p1=95), lanes(p0=130_000, p1=121_000))

    old, new = begin_version(pending, begun, 1_000, None).versions

    assert new.starts == lanes(p0=90, p1=95)
    assert new.complete_from_ms == 130_001
    assert old.complete_until_ms == 120_000


def test_rows_of_which_records_alone_know_cut_the_windows_of_the_next_version() -> None:
    """A store that was lost has no marks of rows that a snapshot holds, or that were filtered."""
    pending = task(version(starts=lanes(p0=10, p1=20)), version(2))
    at = lanes(p0=90, p1=95)
    records = [
        replace(progress(number, at, at), newest_ms=newest_ms)
        for number, newest_ms in enumerate((150_000, 140_000))
    ]
    look = view(
        tasks={TASK: pending},
        copied={TASK: pending},
        heads={TASK: head(offsets=at)},
        progress=KnownProgress().with_records(records),
    )
    (decision,) = LeaderMachine().decide(look)
    assert isinstance(decision, BeginVersion)

    begun = Begun(lanes(p0=90, p1=95), lanes(p0=130_000, p1=121_000))
    _old, new = begin_version(pending, begun, 1_000, decision.newest_ms).versions

    assert new.complete_from_ms == 150_001


def test_a_version_that_has_begun_is_set_going_in_the_store() -> None:
    begun = {TASK: task(version(starts=lanes(p0=10, p1=20)), version(2, lanes(p0=90, p1=95)))}
    heads = {TASK: head(version=2, active=False)}

    decisions = LeaderMachine().decide(view(tasks=begun, copied=begun, heads=heads))

    assert decisions == [SetActive(TASK, StoreEpoch(1), active=True)]


def test_a_store_that_does_not_know_of_a_version_that_has_begun_is_lost() -> None:
    """It begins there first, so the store went back, or an older release let it begin."""
    begun = {TASK: task(version(starts=lanes(p0=10, p1=20)), version(2, lanes(p0=90, p1=95)))}

    (decision,) = LeaderMachine().decide(view(tasks=begun, copied=begun, heads={TASK: head()}))

    assert isinstance(decision, PublishAssignment)
    assert decision.assignment.store_epoch == 2
    assert "where the newest version of by_sip begins" in decision.reason


def test_an_older_version_that_is_done_does_not_hold_the_offsets_back() -> None:
    leading, look = recovering()
    both = {TASK: task(version(starts=lanes(p0=10, p1=20)), version(2, lanes(p0=90, p1=95)))}
    records: list[Progress | Claim] = [
        *(progress(b, lanes(p0=90, p1=95), lanes(p0=90, p1=95)) for b in range(BUCKETS)),
        *(
            progress(b, lanes(p0=150, p1=160), lanes(p0=140, p1=160), number=2)
            for b in range(BUCKETS)
        ),
        *claims(2, 2),
    ]
    look = replace(look, tasks=both, copied=both)

    decisions = leading.decide(replace(look, progress=KnownProgress().with_records(records)))

    assert isinstance(decisions[0], InitialiseTask)
    assert decisions[0].start.offsets == lanes(p0=140, p1=160)
    assert decisions[0].start.version == 2
    assert decisions[0].start.bounds == {1: lanes(p0=10, p1=20), 2: lanes(p0=90, p1=95)}
    assert decisions[0].start.leader == 1


def test_an_older_version_with_open_rows_is_read_again_from_where_it_needs_them() -> None:
    leading, look = recovering()
    both = {TASK: task(version(starts=lanes(p0=10, p1=20)), version(2, lanes(p0=90, p1=95)))}
    records: list[Progress | Claim] = [
        *(progress(b, lanes(p0=95, p1=95), lanes(p0=80, p1=95), counted=3) for b in range(BUCKETS)),
        *claims(2, 2),
    ]
    look = replace(look, tasks=both, copied=both)

    decisions = leading.decide(replace(look, progress=KnownProgress().with_records(records)))

    assert isinstance(decisions[0], InitialiseTask)
    assert decisions[0].start.offsets == lanes(p0=80, p1=95)
    assert decisions[0].start.cuts[Lane("0")] == (90, 95)


def test_an_older_version_with_nothing_open_is_read_again_up_to_where_it_ends() -> None:
    """No bucket has committed its last rows: they are neither open nor emitted, but not read."""
    start = started_with_two_versions(
        *(progress(b, lanes(p0=70, p1=95), lanes(p0=70, p1=95)) for b in range(BUCKETS))
    )

    assert start.offsets == lanes(p0=70, p1=95)
    assert start.cuts == {Lane("0"): (90,), Lane("1"): ()}


def test_an_older_version_that_owes_revisions_is_read_again_with_their_rows() -> None:
    done = progress(0, lanes(p0=90, p1=95), lanes(p0=90, p1=95))
    owing = replace(progress(1, lanes(p0=90, p1=95), lanes(p0=40, p1=60)), owed=(60_000,))

    assert started_with_two_versions(done, owing).offsets == lanes(p0=40, p1=60)
    assert started_with_two_versions(done, replace(owing, owed=())).offsets == lanes(p0=90, p1=95)


def test_no_batch_may_cross_where_sessions_need_rows_from() -> None:
    """Rows below it may have been late, and other buckets have them read again."""
    merged, low = lanes(p0=80, p1=85), lanes(p0=10, p1=20)
    own = replace(progress(0, merged, lanes(p0=40, p1=60)), anchored=True)
    start = started_with_two_versions(own, progress(1, merged, low))

    assert {40, 80} <= set(start.cuts[Lane("0")])
    assert {60, 85} <= set(start.cuts[Lane("1")])
    plain = started_with_two_versions(replace(own, anchored=False), progress(1, merged, low))
    assert 40 not in plain.cuts[Lane("0")]


def test_no_batch_may_straddle_where_a_version_begins() -> None:
    """Both versions are accounted beyond that by now, the older one with rows that are open."""
    merged = lanes(p0=150, p1=160)
    records = [
        *(progress(b, merged, lanes(p0=80, p1=95), counted=3) for b in range(BUCKETS)),
        *(progress(b, merged, merged, number=2) for b in range(BUCKETS)),
    ]

    assert started_with_two_versions(*records).cuts == {Lane("0"): (90, 150), Lane("1"): (160,)}


def test_lanes_that_only_records_know_are_read_while_the_topic_cannot_be_described() -> None:
    """Partition 2 was added after the only version began; who leads now has not been told of it."""
    leading, look = recovering()
    merged = {**lanes(p0=50, p1=70), Lane("2"): 8}
    records = [progress(b, merged, {**merged, Lane("2"): 5}) for b in range(BUCKETS)]
    known = KnownProgress().with_records([*records, *claims(2, 2)])

    initialise, _seal = leading.decide(replace(look, progress=known, partitions={}))

    assert isinstance(initialise, InitialiseTask)
    assert initialise.start.offsets == {**lanes(p0=50, p1=70), Lane("2"): 5}
    assert initialise.start.cuts[Lane("2")] == (8,)


def started_with_two_versions(*records: Progress) -> TaskStart:
    """How a task whose second version began at 90 and 95 goes on, given what the first one has."""
    leading, look = recovering()
    both = {TASK: task(version(starts=lanes(p0=10, p1=20)), version(2, lanes(p0=90, p1=95)))}
    known = KnownProgress().with_records([*records, *claims(2, 2)])
    initialise = leading.decide(replace(look, tasks=both, copied=both, progress=known))[0]
    assert isinstance(initialise, InitialiseTask)
    return initialise.start


def test_a_task_whose_topic_was_deleted_and_made_again_fails_and_says_what_to_do() -> None:
    there = view(topic_ids={Topic("flows"): "topic-id"})
    again = view(topic_ids={Topic("flows"): "another"})

    assert LeaderMachine().decide(there) == LeaderMachine().decide(view())
    again = replace(again, tasks={TASK: replace(task(), resumes=3)})
    (failed,) = [one for one in LeaderMachine().decide(again) if isinstance(one, FailTask)]
    assert (failed.task, failed.run) == (TASK, (1, 3))
    assert "topic flows was deleted and made again" in failed.detail
    assert not resume_helps(failed.detail)


def test_a_paused_task_is_not_failed_because_of_its_topic() -> None:
    paused = task(state=TaskState.PAUSED)
    again = view(
        tasks={TASK: paused},
        copied={TASK: paused},
        heads={TASK: head(active=False)},
        topic_ids={Topic("flows"): "another"},
    )

    assert LeaderMachine().decide(again) == []


def test_lanes_left_to_spark_are_given_back_when_no_bulk_process_is_alive() -> None:
    left = replace(task(), catch_up=lanes(p0=90))
    waiting = view(tasks={TASK: left}, copied={TASK: left})

    assert LeaderMachine().decide(waiting) == []
    assert LeaderMachine().decide(replace(waiting, bulk_alive=False)) == [
        EndCatchUp(TASK, left.run)
    ]
