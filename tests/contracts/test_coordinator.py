"""Who is alive, who leads and who owns what, also through lost connections and sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from mars.core.errors import Unavailable
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    LeaderEpoch,
    MemberId,
    StoreEpoch,
    Topic,
)
from mars.protocol.ports import (
    Assignment,
    BucketStatus,
    Coordinator,
    MemberInfo,
    Owner,
    PartitionReading,
)
from tests.contracts.waiting import Changes, eventually
from tests.contracts.zookeeper_servers import Ensemble


def info(member: str, role: str = "reducer") -> MemberInfo:
    return MemberInfo(
        id=MemberId(member),
        role=role,
        host="host",
        pid=4711,
        started_ms=1_700_000_000_000,
        load={"rows_per_second": 1.5},
        missing=("redis",),
        partitions=(PartitionReading(Topic("flows"), 3, 2**53, "reading"),),
        buckets=(BucketStatus(Bucket(1), AssignmentEpoch(2), "owning"),),
    )


def assignment(leader_epoch: LeaderEpoch | None, *owners: str) -> Assignment:
    assert leader_epoch is not None
    owned = {
        Bucket(number): Owner(MemberId(owner), AssignmentEpoch(number + 5))
        for number, owner in enumerate(owners)
    }
    return Assignment(leader_epoch, StoreEpoch(3), owned)


def lead(coordinator: Coordinator) -> LeaderEpoch:
    coordinator.campaign()
    return leads(coordinator)


def leads(coordinator: Coordinator) -> LeaderEpoch:
    epoch = eventually(coordinator.leading)
    assert epoch is not None
    return epoch


def present(coordinator: Coordinator, *members: str) -> None:
    eventually(lambda: set(coordinator.members("reducer")) == set(members))


# ------------------------------------------------------------------------------- namespace


def test_number_of_buckets_is_fixed_by_whoever_comes_first(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    assert one.buckets(8) == 8
    assert two.buckets(64) == 8
    assert one.buckets(16) == 8


# --------------------------------------------------------------------------------- members


def test_members_of_a_role_are_seen_with_what_they_say(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    assert one.members("reducer") == {}
    one.join(info("one"))
    two.join(info("two", role="mapper"))
    present(two, "one")
    assert two.members("reducer") == {MemberId("one"): info("one")}
    assert eventually(lambda: one.members("mapper")) == {MemberId("two"): info("two", "mapper")}


def test_roster_has_the_members_of_each_role(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    assert one.roster() == {}
    one.join(info("one"))
    two.join(info("two", role="mapper"))
    said = {
        "mapper": {MemberId("two"): info("two", "mapper")},
        "reducer": {MemberId("one"): info("one")},
        "bulk": {},
    }
    eventually(lambda: one.roster("mapper", "reducer", "bulk") == said)


def test_report_refreshes_what_is_known(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    one.join(info("one"))
    present(two, "one")
    busy = replace(info("one"), load={"rows_per_second": 9.0}, missing=())
    one.report(busy)
    eventually(lambda: two.members("reducer") == {MemberId("one"): busy})


def test_report_before_joining_registers_nobody(ensemble: Ensemble) -> None:
    one = ensemble.coordinator("one")
    one.report(info("one"))
    assert one.members("reducer") == {}


def test_closed_member_vanishes_at_once(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    one.join(info("one"))
    two.join(info("two"))
    present(two, "one", "two")
    one.close()
    present(two, "two")


def test_member_of_an_expired_session_vanishes_and_comes_back_by_itself(
    ensemble: Ensemble,
) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    one.join(info("one"))
    two.join(info("two"))
    present(two, "one", "two")
    ensemble.expire("one")
    present(two, "two")
    newest = replace(info("one"), load={})
    one.report(newest)
    ensemble.heal("one")
    present(two, "one", "two")
    assert two.members("reducer")[MemberId("one")] == newest


def test_suspended_member_stays_until_its_session_expires(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    one.join(info("one"))
    present(two, "one")
    ensemble.suspend("one")
    assert set(two.members("reducer")) == {"one"}
    ensemble.heal("one")
    assert set(one.members("reducer")) == {"one"}


def test_suspended_process_knows_it_and_its_calls_fail(ensemble: Ensemble) -> None:
    one = ensemble.coordinator("one")
    one.buckets(8)
    one.join(info("one"))
    present(one, "one")
    assert one.connected()
    ensemble.suspend("one")
    assert not one.connected()
    for call in (lambda: one.members("reducer"), one.assignment, lambda: one.buckets(8)):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="zookeeper is not available"):
            call()
        assert time.monotonic() - began < 3.0
    one.report(info("one"))
    ensemble.heal("one")
    assert one.connected()
    assert one.buckets(9) == 8


# -------------------------------------------------------------------------------- election


def test_only_candidate_leads_and_others_do_not(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    assert one.leading() is None
    assert lead(one) == 1
    assert two.leading() is None


def test_candidates_lead_in_the_order_in_which_they_stood_with_growing_epochs(
    ensemble: Ensemble,
) -> None:
    one, two, three = (ensemble.coordinator(name) for name in ("one", "two", "three"))
    assert lead(one) == 1
    stand_behind(two, ensemble, "two")
    stand_behind(three, ensemble, "three")
    one.close()
    assert leads(two) == 2
    assert three.leading() is None
    two.close()
    assert leads(three) == 3


def stand_behind(coordinator: Coordinator, ensemble: Ensemble, member: str) -> None:
    """Stand, and wait until it counts, which the order of the next candidates depends on."""
    coordinator.campaign()
    eventually(lambda: ensemble.stands(member))


def test_leader_whose_session_expired_is_followed_by_another(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    first = lead(one)
    stand_behind(two, ensemble, "two")
    ensemble.expire("one")
    assert one.leading() is None
    assert leads(two) > first
    ensemble.heal("one")
    eventually(lambda: ensemble.stands("one"))
    assert one.leading() is None
    assert leads(two) > first


def test_suspended_leader_leads_no_more_and_never_again_in_that_epoch(ensemble: Ensemble) -> None:
    one = ensemble.coordinator("one")
    first = lead(one)
    ensemble.suspend("one")
    assert one.leading() is None
    ensemble.heal("one")
    assert leads(one) > first


def test_leader_that_was_suspended_stands_behind_the_others(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    lead(one)
    stand_behind(two, ensemble, "two")
    ensemble.suspend("one")
    ensemble.heal("one")
    leads(two)
    assert one.leading() is None


def test_epochs_go_on_above_what_zookeeper_has_forgotten(ensemble: Ensemble) -> None:
    leader = ensemble.coordinator("a")
    assert lead(leader) < 70
    leader.outgrow(LeaderEpoch(70))
    assert eventually(lambda: (leader.leading() or 0) > 70)


def test_no_leadership_outlives_what_the_server_held(ensemble: Ensemble) -> None:
    """Though the same process leads again, in an epoch of the same number."""
    leader, registry = ensemble.coordinator("leader"), ensemble.registry()
    epoch, before = lead(leader), leader.leadership()
    assert before is not None
    ensemble.lose_all()
    eventually(lambda: leader.leading() == epoch and leader.leadership() != before)
    assert not registry.make_whole(before)
    assert not registry.whole()
    assert registry.make_whole(leader.leadership())
    assert registry.whole()


def test_epochs_never_go_back_to_a_lower_floor(ensemble: Ensemble) -> None:
    leader = ensemble.coordinator("a")
    lead(leader)
    leader.outgrow(LeaderEpoch(70))
    eventually(lambda: (leader.leading() or 0) > 70)
    leader.outgrow(LeaderEpoch(3))
    assert eventually(lambda: (leader.leading() or 0) > 71)


# ------------------------------------------------------------------------------ assignment


def test_there_is_no_assignment_before_the_first_one(ensemble: Ensemble) -> None:
    one = ensemble.coordinator("one")
    assert one.assignment() is None
    lead(one)
    assert one.assignment() is None


def test_assignment_of_the_leader_is_what_everybody_reads(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    epoch = lead(one)
    for owners in (("one", "two"), ("two", "two", "one"), ()):
        sent = assignment(epoch, *owners)
        assert one.publish(sent)
        assert two.assignment() == sent
        assert one.assignment() == sent


def test_only_the_leader_publishes_and_only_in_its_own_epoch(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    epoch = lead(one)
    sent = assignment(epoch, "one")
    assert one.publish(sent)
    stand_behind(two, ensemble, "two")
    assert not two.publish(assignment(epoch, "two"))
    assert not one.publish(assignment(LeaderEpoch(epoch + 1), "two"))
    assert not one.publish(assignment(LeaderEpoch(epoch - 1), "two"))
    assert one.assignment() == sent


def test_leader_of_before_publishes_nothing(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    old = lead(one)
    stand_behind(two, ensemble, "two")
    ensemble.expire("one")
    sent = assignment(leads(two), "two")
    assert two.publish(sent)
    assert not one.publish(assignment(old, "one"))
    ensemble.heal("one")
    eventually(lambda: ensemble.stands("one"))
    assert not one.publish(assignment(old, "one"))
    assert one.assignment() == sent


def test_assignment_outlives_its_leader(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    sent = assignment(lead(one), "one", "two")
    one.publish(sent)
    one.close()
    assert two.assignment() == sent


# -------------------------------------------------------------------------------- watching


def test_members_assignment_and_leadership_are_told(ensemble: Ensemble) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    changes = Changes()
    one.watch(changes)
    changes.more_than(0)

    with told(changes):
        two.join(info("two"))
    present(one, "two")
    epoch = lead(two)
    for owner in ("two", "one"):
        with told(changes):
            two.publish(assignment(epoch, owner))
    with told(changes):
        two.close()


def test_own_leadership_is_told(ensemble: Ensemble) -> None:
    one = ensemble.coordinator("one")
    told: list[LeaderEpoch | None] = []
    one.watch(lambda: told.append(one.leading()))
    lead(one)
    eventually(lambda: told[-1:] == [LeaderEpoch(1)])
    ensemble.suspend("one")
    eventually(lambda: told[-1:] == [None])


def test_loss_and_return_of_the_connection_are_told(ensemble: Ensemble) -> None:
    one = ensemble.coordinator("one")
    told: list[bool] = []
    one.watch(lambda: told.append(one.connected()))
    eventually(lambda: told[-1:] == [True])
    ensemble.suspend("one")
    eventually(lambda: told[-1:] == [False])
    ensemble.heal("one")
    eventually(lambda: told[-1:] == [True])


@pytest.mark.parametrize("lost", ["connection", "session"])
def test_changes_are_told_again_after_a_reconnect(ensemble: Ensemble, lost: str) -> None:
    one, two = ensemble.coordinator("one"), ensemble.coordinator("two")
    changes = Changes()
    one.watch(changes)
    changes.more_than(0)
    (ensemble.suspend if lost == "connection" else ensemble.expire)("one")
    two.join(info("two"))
    ensemble.heal("one")
    present(one, "two")
    with told(changes):
        two.close()
    present(one)


@contextmanager
def told(changes: Changes) -> Iterator[None]:
    """What is done within is followed by a change, and by none that was under way before."""
    settled(changes)
    seen = changes.seen()
    yield
    changes.more_than(seen)


def settled(changes: Changes) -> None:
    """Wait until two looks in a row see the same number of changes."""
    looks: list[int] = []

    def quiet() -> bool:
        looks.append(changes.seen())
        return len(looks) > 20 and len(set(looks[-20:])) == 1

    eventually(quiet)
