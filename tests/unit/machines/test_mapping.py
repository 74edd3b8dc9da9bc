"""The mapping machine around the store's twin: every row of every lane exactly once in the log."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Unpack

import pytest

from mars.core.definitions import TaskState
from mars.core.errors import StatesTooLarge, TaskLimit
from mars.core.types import Lane, Records, TaskName
from mars.engine import kernel
from mars.engine.aggregates import states
from mars.protocol.mapper.events import (
    CATCH_UP,
    LIVE,
    EndsConfirmed,
    Offer,
    Offered,
    RenewIdle,
    SeekLane,
    Sourced,
    Ticked,
)
from mars.protocol.ports import Fetched, IdleLease, Stale
from mars.protocol.reducer.drafting import DRAFT_MS
from tests.unit.machines.mapping_world import (
    EPOCH,
    LEADER,
    TOPIC,
    World,
    WorldSettings,
    make_task,
    make_version,
    row,
)

P0 = Lane("0")


def world(rows: int = 1_000, partitions: int = 1, **settings: Unpack[WorldSettings]) -> World:
    return World(
        {number: [row(offset) for offset in range(rows)] for number in range(partitions)},
        **settings,
    )


def test_every_row_is_in_the_log_once_when_two_partitions_are_read_to_their_end() -> None:
    here = world(partitions=2)
    here.add(make_task("a"))
    here.assign(0, 1)

    here.run()

    assert here.counts("a") == here.expected()
    assert here.offsets("a") == {Lane("0"): 1_000, Lane("1"): 1_000}


def test_heads_are_read_seldom_while_the_store_takes_rows_and_each_second_without() -> None:
    here = world(rows=100)  # no more than one poll brings
    here.add(make_task("a"))
    here.assign(0)
    here.asked.clear()
    for number in range(100, 200):  # ten seconds with a row at each tick
        here.partitions[0].append(row(number))
        here.run(rounds=1)

    assert len(here.asked) == 2

    here.asked.clear()
    here.run(rounds=50)  # five seconds without

    assert len(here.asked) == 5


def test_a_head_that_is_due_when_a_batch_is_offered_does_not_stop_its_lanes() -> None:
    here = world(rows=100, rest_ms=1_000)
    here.add(make_task("a"))
    here.add(make_task("b"))
    here.assign(0)
    for number in range(100, 200):
        here.partitions[0].append(row(number))
        here.run(rounds=1)

    assert here.paused_ever == set()
    assert here.tiles("a", P0)


def test_lanes_of_backfills_are_left_to_others() -> None:
    here = world()
    here.add(make_task("a"), p0=400)
    here.store.add_lanes(TaskName("a"), EPOCH, LEADER, {Lane("0@b1"): 0, Lane("f@b2"): 0})
    here.assign(0)

    here.run()

    assert here.offsets("a") == {P0: 1_000, Lane("0@b1"): 0, Lane("f@b2"): 0}
    assert {part.lane for _name, _version, ranges in here.appended for part in ranges} == {P0}


def test_a_partition_is_read_from_where_the_store_says_not_from_its_beginning() -> None:
    here = world()
    here.add(make_task("a"), p0=400)
    here.assign(0)

    here.run()

    assert here.counts("a") == here.expected(p0=400)
    assert here.tiles("a", P0, first=400)


def test_a_task_behind_the_others_is_served_by_the_catch_up_reader_and_meets_them() -> None:
    here = world()
    here.add(make_task("ahead"), p0=800)
    here.add(make_task("behind"), p0=100)
    here.assign(0)

    here.run(rounds=2)
    assert here.positions[LIVE, 0] > 800
    assert (CATCH_UP, 0) in here.positions
    here.run()

    assert here.counts("ahead") == here.expected(p0=800)
    assert here.counts("behind") == here.expected(p0=100)
    assert (CATCH_UP, 0) not in here.positions


def test_a_new_task_does_not_make_the_others_read_again() -> None:
    here = world()
    here.add(make_task("first"))
    here.assign(0)
    here.run()

    here.add(make_task("second"), p0=0)
    here.run()

    assert here.counts("second") == here.expected()
    assert here.tiles("first", P0)


def test_an_answer_that_is_lost_after_its_effect_counts_nothing_twice() -> None:
    here = world()
    here.add(make_task("a"))
    here.assign(0)
    here.store.fail_next("append", before=False)
    here.store.fail_next("append", before=True)
    here.store.fail_next("append", before=False)

    here.run()

    assert here.counts("a") == here.expected()


def test_two_mappers_on_the_same_partition_count_every_row_once() -> None:
    here = world()
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=3)
    zombie, here.machine = here.machine, here.new_machine()
    here.change(make_task("a"))
    here.assign(0)

    for _ in range(20):
        here.run(rounds=1)
        here.machine, zombie = zombie, here.machine
    here.run()

    assert here.counts("a") == here.expected()


def test_a_store_that_went_back_is_read_again_from_where_it_stands() -> None:
    here = world()
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=3)
    before = here.store.snapshot()
    here.run()
    here.store.restore(before)
    assert here.offsets("a") == {P0: 100}

    here.run()

    assert here.counts("a") == here.expected()


def fetched(first: int, after: int) -> Sourced:
    """The live reader brings these rows."""
    values = [row(offset) for offset in range(first, after)]
    times = [-1] * len(values)
    return Sourced(
        LIVE, Fetched(TOPIC, Records(P0, first, after, values, range(first, after), times))
    )


def test_from_an_answer_that_the_store_went_back_it_is_read_again_at_once() -> None:
    here = world(rows=100)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=5)
    assert here.offsets("a") == {P0: 100}

    here.machine.handle(fetched(100, 101))
    (offer,) = [
        one
        for one in here.machine.handle(Ticked(here.now_ms + 1, frozenset({LIVE})))
        if isinstance(one, Offer)
    ]

    instructions = here.machine.handle(Offered(offer, Stale(P0, 40)))
    assert instructions == [SeekLane(LIVE, TOPIC, 0, 40)]


def test_rows_that_come_before_it_is_known_where_to_begin_are_let_go() -> None:
    """A consumer begins at the group's offset, which is a hint; the store was not asked yet."""
    here = world()
    here.add(make_task("a"), p0=400)
    here.store.fail_next("head")
    here.assign(0)

    assert here.machine.handle(fetched(0, 5)) == []
    assert here.machine.handle(fetched(500, 505)) == []

    assert here.machine.queue_bytes == 0
    here.run()
    assert here.tiles("a", P0, first=400)


def test_rows_of_a_paused_task_wait_and_come_after_it_is_resumed() -> None:
    here = world()
    here.add(make_task("a"))
    here.add(make_task("b"))
    here.assign(0)
    here.run(rounds=2)
    here.store.set_active(TaskName("a"), EPOCH, LEADER, active=False)
    here.change(make_task("a", state=TaskState.PAUSED))
    here.run()
    assert here.offsets("a")[P0] < 1_000
    assert here.counts("b") == here.expected()

    here.store.set_active(TaskName("a"), EPOCH, LEADER, active=True)
    here.change(make_task("a"))
    here.run()

    assert here.counts("a") == here.expected()


def test_while_every_task_is_paused_the_partition_is_paused_and_nothing_is_lost() -> None:
    here = world()
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=2)
    here.store.set_active(TaskName("a"), EPOCH, LEADER, active=False)
    here.run(rounds=15)
    assert (LIVE, 0) in here.paused
    assert here.machine.standing == {(LIVE, TOPIC, 0): False}

    here.store.set_active(TaskName("a"), EPOCH, LEADER, active=True)
    here.run()

    assert here.counts("a") == here.expected()
    assert (LIVE, 0) not in here.paused
    assert here.machine.standing == {}


def test_a_lane_that_is_ahead_waits_while_the_log_is_full_and_goes_on_when_it_is_emptied() -> None:
    here = world(rows=2_000, partitions=2, log_bytes_max=12_000)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=60)
    stuck = here.offsets("a")[P0]

    assert stuck < 2_000
    assert (LIVE, 0) in here.paused
    assert here.machine.readings()[0].state == "backpressure"
    assert here.machine.standing == {(LIVE, TOPIC, 0): True}

    here.assign(1)
    here.run(rounds=60)
    assert 0 < here.offsets("a")[Lane("1")] < 2_000

    here.empty_log("a")
    here.run(rounds=60)
    assert here.offsets("a")[P0] > stuck


def test_a_full_log_of_one_task_does_not_hold_the_others() -> None:
    here = world(rows=2_000, partitions=2, log_bytes_max=3_000)
    here.add(make_task("floods"))
    here.assign(0)
    here.run(rounds=60)
    assert here.offsets("floods")[P0] < 2_000

    here.add(make_task("fresh"))
    here.run(rounds=15)

    assert here.offsets("fresh")[P0] > 0
    assert any(here.machine.standing.values()), "but the mapper is held back by it"


def test_rows_before_a_new_versions_start_go_to_the_old_one_and_no_batch_mixes_them() -> None:
    here = world()
    both = make_task("a", make_version(1, {P0: 0}), make_version(2, {P0: 450}))
    here.add(both)
    here.assign(0)

    here.run()

    versions = {
        version: [part for name, v, parts in here.appended if v == version for part in parts]
        for version in (1, 2)
    }
    assert versions[1][-1].next == 450
    assert versions[2][0].first == 450
    assert here.counts("a") == here.expected()


def test_a_version_that_does_not_compile_here_waits_and_no_other_task_with_it() -> None:
    here = world()
    both = make_task("a", make_version(1, {P0: 0}), make_version(2, {P0: 450}))
    here.add(replace(both, plans={1: both.plans[1]}))
    here.add(make_task("b"))
    here.assign(0)

    here.run()

    assert (here.offsets("a")[P0], here.failed) == (450, {})
    assert here.counts("b") == here.expected()

    here.change(both)
    here.run()

    assert here.counts("a") == here.expected()


def test_a_task_over_a_limit_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    here = world()
    here.add(make_task("sick"))
    here.add(make_task("well"))
    here.assign(0)
    real = states.lift

    def limited(plan, *given):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN202
        if plan.task == "sick":
            raise TaskLimit("too many distinct values in one group")
        return real(plan, *given)

    monkeypatch.setattr(kernel, "lift", limited)
    here.run()

    assert here.failed == {TaskName("sick"): "too many distinct values in one group"}
    assert here.counts("well") == here.expected()


def test_a_task_to_which_a_batch_adds_too_much_takes_fewer_rows_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = world()
    here.add(make_task("wide"))
    here.add(make_task("well"))
    here.assign(0)
    real = kernel._mapped

    def limited(plan, buckets, counted):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        if plan.task == "wide" and counted.columns.height > 10:
            raise StatesTooLarge("too much")
        return real(plan, buckets, counted)

    monkeypatch.setattr(kernel, "_mapped", limited)
    here.run()

    assert here.failed == {}
    assert here.counts("wide") == here.counts("well") == here.expected()
    largest = {
        name: max(part.next - part.first for one, _seq, (part,) in here.appended if one == name)
        for name in ("wide", "well")
    }
    assert largest["wide"] in range(6, 11)
    assert largest["well"] > 10


def test_a_task_to_which_one_message_adds_too_much_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = world()
    here.add(make_task("wide"))
    here.assign(0)
    monkeypatch.setattr(kernel, "BATCH_STATES_BYTES_MAX", 10)
    here.run()

    assert "1 groups of one bucket have states of" in here.failed[TaskName("wide")]


def test_tasks_that_take_the_same_rows_are_mapped_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = world()
    here.add(make_task("a"))
    here.add(make_task("b"))
    here.add(make_task("ahead"), p0=450)
    real, together = kernel.map_many, []

    def told(plans, buckets, decoded, numbers):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        together.append(([plan.task for plan in plans], decoded.records.first))
        return real(plans, buckets, decoded, numbers)

    monkeypatch.setattr(kernel, "map_many", told)
    here.assign(0)
    here.run()

    assert (["a", "b"], 0) in together
    assert (["ahead"], 450) in together
    assert ["a"] not in [names for names, _first in together]
    assert here.counts("a") == here.counts("b") == here.expected()


def idle(here: World, task: str) -> frozenset[Lane]:
    head = here.store.head([TaskName(task)])[TaskName(task)]
    assert head is not None
    return head.idle


def check_idle_after_a_silence(here: World, task: str) -> None:
    """Of `idle_after` (5 s), which begins now."""
    here.run(rounds=45)  # 4.5 s
    early = idle(here, task)
    here.run(rounds=15)  # 6 s
    late = idle(here, task)

    assert early == frozenset()
    assert late == frozenset({P0})


def test_a_silent_partition_is_leased_as_idle_after_idle_after_and_not_before() -> None:
    here = world(rows=10)
    here.add(make_task("a"))
    here.assign(0)

    check_idle_after_a_silence(here, "a")


def test_a_partition_is_not_idle_at_once_for_a_task_that_has_seen_no_row_of_it() -> None:
    here = world(rows=10)
    here.add(make_task("first"))
    here.assign(0)
    here.run(rounds=100)

    here.add(make_task("new"), p0=10)
    check_idle_after_a_silence(here, "new")


def test_a_partition_that_gets_rows_again_is_not_idle_any_more() -> None:
    here = world(rows=10)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=70)

    here.partitions[0].append(row(10))
    here.run(rounds=2)

    assert idle(here, "a") == frozenset()


@pytest.mark.parametrize("heads_fail", [0, 1])
def test_a_row_whose_answer_is_lost_ends_the_silence_of_its_lane(heads_fail: int) -> None:
    here = world(rows=10)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=70)
    here.partitions[0].append(row(10))
    here.store.fail_next("append", before=False)
    for _ in range(heads_fail):
        here.store.fail_next("head")

    check_idle_after_a_silence(here, "a")


def test_a_row_that_somebody_else_has_brought_ends_the_silence_of_its_lane() -> None:
    here = world(rows=10)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=70)
    here.partitions[0].append(row(10))
    other = World({0: here.partitions[0]})
    other.store, other.now_ms = here.store, here.now_ms
    other.change(make_task("a"))
    other.assign(0)
    other.run(rounds=1)
    assert here.offsets("a") == {P0: 11}

    check_idle_after_a_silence(here, "a")


def test_lanes_that_fell_silent_one_by_one_are_soon_asked_for_together() -> None:
    here = world(rows=10, partitions=3)
    here.add(make_task("a"))
    here.assign(0, 1, 2)
    here.run(rounds=20)
    here.partitions[1].append(row(10))
    here.run(rounds=4)
    here.partitions[2].append(row(10))
    here.run(rounds=60)
    here.confirmed.clear()

    here.run(rounds=30)  # 3 s

    assert [len(ends) for ends in here.confirmed] == [3, 3, 3]


def test_a_lane_is_idle_and_stays_so_though_the_reader_told_of_no_end() -> None:
    here = world(rows=50, tells_ends=False)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=150)
    for _ in range(100):
        assert idle(here, "a") == {P0}
        here.run(rounds=1)


def test_an_end_that_was_confirmed_below_what_was_read_since_leases_nothing() -> None:
    here = world(rows=10)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=70)
    here.partitions[0].append(b"not JSON")  # a row without an event time does not end a silence
    here.run(rounds=2)
    assert here.offsets("a") == {P0: 11}

    assert here.machine.handle(EndsConfirmed({(TOPIC, 0): 10})) == []
    lease = IdleLease(TaskName("a"), EPOCH, P0, 11, 1)
    assert here.machine.handle(EndsConfirmed({(TOPIC, 0): 11})) == [RenewIdle((lease,))]


def test_a_lane_whose_rows_the_reader_does_not_deliver_is_not_idle() -> None:
    here = world(rows=50, tells_ends=False)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=10)
    here.paused.add((LIVE, 0))
    here.partitions[0].append(row(50))
    for _ in range(200):
        here.run(rounds=1)
        assert idle(here, "a") == frozenset()


def test_a_revoked_partition_is_forgotten_and_the_next_owner_goes_on_exactly() -> None:
    here = world()
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=3)
    here.revoke(0)
    here.positions.clear()
    here.machine = here.new_machine()
    here.change(make_task("a"))
    here.assign(0)

    here.run()

    assert here.counts("a") == here.expected()
    assert here.tiles("a", P0)


def test_rows_of_a_revoked_partition_that_were_not_offered_yet_are_let_go() -> None:
    here = world(rest_ms=5_000)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=3)
    taken = len(here.appended)
    assert here.machine.queue_bytes > 0

    here.revoke(0)
    here.positions.clear()

    assert here.machine.queue_bytes == 0
    assert here.machine.readings() == ()
    here.run()
    assert len(here.appended) == taken


def feed_slowly(here: World, seconds: int, rows_a_second: int = 10) -> list[int]:
    """Rows come as time goes on, one at a time; the offsets behind each batch."""
    for _ in range(seconds * rows_a_second):
        here.partitions[0].append(
            json.dumps({"timestamp": here.now_ms, "sip": "10.0.0.1"}).encode()
        )
        here.run(rounds=1, elapsed_ms=1000 // rows_a_second)
    return [ranges[0].next for _name, _version, ranges in here.appended]


def test_rows_at_the_end_of_a_topic_rest_until_a_batch_is_worth_it() -> None:
    here = World({0: []}, rest_ms=500, now_ms=1_200_000)
    here.add(make_task("a"))
    here.assign(0)

    behind = feed_slowly(here, seconds=10)

    assert len(behind) < 30
    assert here.counts("a").total() == behind[-1]


def test_rows_that_many_tasks_read_rest_longer() -> None:
    here = World({0: []}, rest_ms=500, now_ms=1_200_000)
    for number in range(100):
        here.add(make_task(f"t{number}"))
    here.assign(0)

    feed_slowly(here, seconds=10)

    assert 8 * 100 <= len(here.appended) <= 11 * 100
    assert here.counts("t0") == here.counts("t99")


def test_rows_that_may_close_a_window_do_not_rest() -> None:
    here = World({0: []}, rest_ms=10_000, now_ms=1_200_000 - 5_050)
    here.add(make_task("a"))
    here.assign(0)

    feed_slowly(here, seconds=6)

    # 51 rows lie before the minute; the next one closes the window, and is sent as it comes.
    assert 52 in [ranges[0].next for _name, _version, ranges in here.appended]


@pytest.mark.parametrize(("tasks", "sent"), [(1, True), (60, False)])
def test_rows_by_which_a_window_is_drafted_do_not_rest_unless_many_tasks_read_them(
    tasks: int, sent: bool
) -> None:
    here = World({0: []}, rest_ms=500, now_ms=1_200_000 - 5_050)
    for number in range(tasks):
        here.add(make_task(f"t{number}", delay_ms=4 * DRAFT_MS))
    here.assign(0)

    feed_slowly(here, seconds=8, rows_a_second=10)

    # The window closes 20 rows after the minute, and is drafted 5 rows before that.
    behind = {ranges[0].next for name, _version, ranges in here.appended if name == "t0"}
    assert (67 in behind) is sent
