"""Several lanes in one batch: what is in the way of one of them touches that one only."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Unpack

import pytest

from mars.core.errors import TaskLimit
from mars.core.plan import WatermarkScope
from mars.core.types import Lane, Range, Records, Sequence64, TaskName, live_lane
from mars.engine import kernel
from mars.engine.aggregates import states
from mars.protocol.mapper import side_by_side
from mars.protocol.mapper.events import LIVE, Offer, Offered, Sourced, Ticked
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.offering import APART_MS
from mars.protocol.mapper.side_by_side import SideBySide
from mars.protocol.mapper.task_view import TaskView
from mars.protocol.ports import (
    AppendOutcome,
    Applied,
    Backpressure,
    Cut,
    Fetched,
    Head,
    Stale,
    TaskStart,
    WrongVersion,
)
from tests.unit.machines.mapping_world import (
    BUCKETS,
    EPOCH,
    TOPIC,
    World,
    WorldSettings,
    make_task,
    make_version,
    row,
)

LANES = (Lane("0"), Lane("1"), Lane("2"))
TASK = TaskName("a")


def world(rows: int = 300, partitions: int = 3, **settings: Unpack[WorldSettings]) -> World:
    lanes = {number: [row(offset) for offset in range(rows)] for number in range(partitions)}
    return World(lanes, **settings)


def begun(here: World, *tasks: str, **offsets: int) -> World:
    for name in tasks or ("a",):
        here.add(make_task(name), **offsets)
    here.assign(*here.partitions)
    return here


def batches(here: World, task: str = "a") -> list[tuple[Range, ...]]:
    return [ranges for name, _version, ranges in here.appended if name == task]


def alone(here: World, task: str = "a") -> set[Lane]:
    """The lanes that were in a batch by themselves."""
    return {ranges[0].lane for ranges in batches(here, task) if len(ranges) == 1}


def read(here: World) -> list[Offer]:
    """What is offered of the first rows of all lanes, and not answered yet."""
    here.feed(Ticked(here.now_ms, frozenset()))
    for number in here.partitions:
        for event in here._events(number, 0, 100, 300):
            here.machine.handle(Sourced(LIVE, event))
    told = here.machine.handle(Ticked(here.now_ms + 100, frozenset({LIVE})))
    return [one for one in told if isinstance(one, Offer)]


# --------------------------------------------------------------------------------- together


def test_lanes_of_a_topic_go_into_one_batch_for_each_task() -> None:
    here = begun(world(), "a", "b")

    here.run()

    for task in ("a", "b"):
        assert here.counts(task) == here.expected()
        assert {len(ranges) for ranges in batches(here, task)} == {3}


def test_what_is_in_a_batch_beside_others_is_what_it_is_by_itself() -> None:
    here, apart = begun(world()), begun(world())
    several = apart.machine._offering
    several._side_by_side = Never(BUCKETS)

    here.run()
    apart.run()

    assert here.counts("a") == apart.counts("a")
    assert here.offsets("a") == apart.offsets("a")
    assert alone(apart) == set(LANES)


class Never(SideBySide):
    def make(self, *_given: object) -> list[side_by_side.Beside]:
        return []


def test_rows_that_have_not_rested_go_with_those_that_have() -> None:
    here = begun(world(rows=270, rest_ms=250), "a")
    here.run()  # from now on the marks are known: no window closes until the minute is over
    here.appended.clear()
    for rows in here.partitions.values():
        rows.append(row(271))
        here.run(rounds=1)
    here.run(rounds=2)

    assert [len(ranges) for ranges in batches(here)] == [3]


def test_large_buffers_are_no_batch_together() -> None:
    here = begun(world(rows=20))
    view = TaskView(make_task("a"))
    head = here.store.head([TASK])[TASK]
    view.learn(head)
    sizes = {"0": 15_000, "1": 10, "2": 9_000, "3": 20, "4": 25_000}
    buffers = []
    for lane, size in sizes.items():
        buffer = LaneBuffer(Lane(lane))
        buffer.add(records(lane, size), 0)
        buffers.append(buffer)
        view.offsets[Lane(lane)] = 0

    made = SideBySide(BUCKETS).make([view], buffers, now_ms=0)

    assert [{part.lane for part in one.mapped.ranges} for one in made] == [{"1", "3", "2"}]


def records(lane: str, size: int) -> Records:
    values = [row(offset) for offset in range(size)]
    return Records(Lane(lane), 0, size, values, range(size), [-1] * size)


# --------------------------------------------------------------------- one lane in the way


@pytest.mark.parametrize(
    ("outcome", "middle"),
    [
        (Stale(LANES[1], 60), Range(LANES[1], 60, 100)),
        (Cut(LANES[1], 40), Range(LANES[1], 0, 40)),
        (Backpressure(), Range(LANES[1], 0, 100)),
    ],
    ids=["outcome0", "outcome1", "outcome2"],
)
def test_what_is_in_the_way_of_one_lane_changes_that_one_only(
    outcome: AppendOutcome, middle: Range
) -> None:
    here = begun(world())
    (offer,) = read(here)
    assert len(offer.mapped.ranges) == 3

    told = here.machine.handle(Offered(offer, outcome))

    again = [one for one in told if isinstance(one, Offer)]
    assert [one.mapped.ranges for one in again] == [
        (Range(LANES[0], 0, 100),),
        (middle,),
        (Range(LANES[2], 0, 100),),
    ]


@pytest.mark.parametrize("outcome", [Stale(LANES[1], 60), Cut(LANES[1], 40), Backpressure()])
def test_after_a_refusal_lanes_go_each_by_itself_for_a_while(outcome: AppendOutcome) -> None:
    here = begun(world())
    refused: list[Offer] = []
    real = here._append

    def append(offer: Offer) -> AppendOutcome | None:
        if len(offer.mapped.ranges) > 1 and not refused:
            refused.append(offer)
            return outcome
        return real(offer)

    here._append = append  # type: ignore[method-assign]
    here.run(rounds=APART_MS // 100 - 2)
    assert len(refused) == 1
    assert {len(ranges) for ranges in batches(here)} == {1}

    here.run(rounds=20)
    assert here.counts("a") == here.expected()
    assert len(more_of_all(here)) == 3
    assert here.counts("a") == here.expected()


def test_a_lane_that_the_task_does_not_have_yet_holds_no_other_back() -> None:
    here = begun(world())
    del here.store._store.tasks[TASK].offsets[LANES[2]]
    here.machine._state.views[TASK].learn(here.store.head([TASK])[TASK])

    here.run()

    assert here.offsets("a") == {LANES[0]: 300, LANES[1]: 300}


def test_before_a_cut_lanes_go_each_by_itself_and_behind_it_together() -> None:
    """Else an entry could hold accounted rows of one lane beside those of another that are not."""
    here = world(rows=900)
    begin = TaskStart(
        1, True, dict.fromkeys(LANES, 0), {1: {}}, {LANES[0]: (150,), LANES[1]: (450,)}
    )
    here.store.initialise(TASK, EPOCH, begin)
    here.change(make_task("a"))
    here.assign(*here.partitions)

    here.run()

    cuts = {LANES[0]: 150, LANES[1]: 450}
    assert here.counts("a") == here.expected()
    for ranges in batches(here):
        before = [part for part in ranges if part.first < cuts.get(part.lane, 0)]
        assert not before or len(ranges) == 1
        assert all(part.next <= cuts[part.lane] for part in before)
    assert len(more_of_all(here)) == 3


def more_of_all(here: World) -> tuple[Range, ...]:
    """The last batch of three rows more of each lane."""
    for rows in here.partitions.values():
        rows += [row(len(rows) + number) for number in range(3)]
    here.run()
    return batches(here)[-1]


def test_a_lane_in_which_a_version_begins_goes_by_itself_there() -> None:
    old, new = make_version(1, {}), make_version(2, dict.fromkeys(LANES, 0) | {LANES[0]: 150})
    here = world()
    here.add(make_task("a", old, new))
    here.assign(*here.partitions)

    here.run()

    assert here.counts("a") == here.expected()
    old_ones = [ranges for _name, version, ranges in here.appended if version == 1]
    assert [part.next for (part,) in old_ones] == [100, 150]
    assert len(more_of_all(here)) == 3


def test_a_full_log_takes_the_lane_that_holds_the_watermark_and_lets_the_others_wait() -> None:
    here = world(rows=600, log_bytes_max=6_000)
    for offset in range(600):  # lane 0 lies an hour behind the others
        here.partitions[1][offset] = row(3_600 + offset)
        here.partitions[2][offset] = row(3_600 + offset)
    begun(here)

    here.run(rounds=30)

    at = here.offsets("a")
    assert at[LANES[0]] > max(at[LANES[1]], at[LANES[2]])
    for _ in range(60):
        here.empty_log("a")
        here.run(rounds=2)
    assert here.offsets("a") == dict.fromkeys(LANES, 600)


def test_a_task_that_cannot_be_made_a_batch_of_stops_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = states.lift

    def lift(plan: object, *given: object) -> object:
        if getattr(plan, "task", None) == "b":
            raise TaskLimit("too much")
        return real(plan, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel, "lift", lift)
    here = begun(world(), "a", "b")

    here.run()

    assert here.failed == {"b": "too much"}
    assert here.counts("a") == here.expected()
    assert {len(ranges) for ranges in batches(here, "a")} == {3}


def test_tasks_that_are_elsewhere_in_a_lane_leave_the_others_together() -> None:
    here = world()
    here.add(make_task("a"))
    here.add(make_task("b"), p1=150)
    here.assign(*here.partitions)

    here.run()

    assert here.counts("a") == here.expected()
    assert here.counts("b") == here.expected(p1=150)
    assert max(map(len, batches(here, "b"))) == 3


# ------------------------------------------------------------------------- while it is under way


def test_a_lane_that_is_taken_away_meanwhile_is_let_go_and_the_others_settle() -> None:
    here = begun(world())
    (offer,) = read(here)
    here.revoke(1)

    told = here.machine.handle(Offered(offer, Applied(Sequence64(1))))

    assert told == []
    view = here.machine._state.views[TASK]
    assert (view.offsets[LANES[0]], view.offsets[LANES[2]]) == (100, 100)
    assert [one.partition for one in here.machine.readings()] == [0, 2]
    assert [one.position for one in here.machine.readings()] == [100, 100]


def test_an_answer_to_what_a_lane_held_before_it_was_given_again_is_none_to_what_it_holds() -> None:
    here = begun(world())
    (offer,) = read(here)
    here.revoke(1)
    here.assign(1)
    assert isinstance(here._append(offer), Applied)

    here.machine.handle(Offered(offer, Applied(Sequence64(1))))
    assert here.machine._state.buffers[LIVE][TOPIC, 1].outstanding == 0
    here.run()

    assert here.counts("a") == here.expected()


@pytest.mark.parametrize("before", [True, False])
def test_an_answer_that_is_lost_counts_no_row_of_any_lane_twice(*, before: bool) -> None:
    here = begun(world())
    here.store.fail_next("append", before=before)

    here.run()

    assert here.counts("a") == here.expected()
    assert here.offsets("a") == dict.fromkeys(LANES, 300)


def test_two_mappers_with_the_same_lanes_count_every_row_once() -> None:
    here = begun(world(rows=1_000))
    here.run(rounds=2)
    zombie, here.machine = here.machine, here.new_machine()
    here.change(make_task("a"))
    here.assign(0, 1, 2)

    for _ in range(20):
        here.run(rounds=1)
        here.machine, zombie = zombie, here.machine
    here.run()

    assert here.counts("a") == here.expected()


def test_an_answer_about_the_task_stops_all_of_its_lanes_until_its_head_is_read() -> None:
    here = begun(world())
    (offer,) = read(here)

    told = here.machine.handle(Offered(offer, WrongVersion(2)))

    assert not [one for one in told if isinstance(one, Offer)]
    here.run()
    assert here.counts("a") == here.expected()


# ------------------------------------------------------------------------------ not together


def test_where_buckets_keep_the_marks_of_their_own_rows_each_lane_goes_by_itself() -> None:
    """A bucket must be told the mark of each lane in it; a batch of several tells it of panes."""
    here = world()
    task = make_task("a")
    plans = {
        number: replace(plan, options=replace(plan.options, watermark=WatermarkScope.BUCKET))
        for number, plan in task.plans.items()
    }
    here.add(replace(task, plans=plans))
    here.assign(*here.partitions)

    here.run()

    assert here.counts("a") == here.expected()
    assert alone(here) == set(LANES)
    assert {len(ranges) for ranges in batches(here)} == {1}


def test_a_range_without_rows_is_no_part_of_a_batch_with_rows() -> None:
    """It would end the idleness of its lane."""
    here = begun(world())
    for number in (0, 1):
        for event in here._events(number, 0, 100, 300):
            here.machine.handle(Sourced(LIVE, event))
    marker = Records(live_lane(2), 0, 1, [], [], [])
    here.machine.handle(Sourced(LIVE, Fetched(TOPIC, marker)))

    told = here.machine.handle(Ticked(here.now_ms + 10_000, frozenset({LIVE})))

    offered = [one.mapped.ranges for one in told if isinstance(one, Offer)]
    assert [{part.lane for part in ranges} for ranges in offered] == [{"0", "1"}, {"2"}]


def test_each_lane_has_its_own_mark_and_its_own_rejections() -> None:
    here = world(rows=10)
    here.partitions[1][4] = b"no row"
    here.partitions[2] = [json.dumps({"timestamp": 7_000, "sip": "s"}).encode()] * 10
    begun(here)

    here.run()

    head = here.store.head([TASK])[TASK]
    assert isinstance(head, Head)
    assert head.marks_ms == {LANES[0]: 9_000, LANES[1]: 9_000, LANES[2]: 7_000}
    found: Counter[tuple[Lane, int]] = Counter()
    for stored in here.store._store.tasks[TASK].logs.values():
        for one in stored.values():
            found.update((bad.lane, bad.offset) for bad in one.entry.partial.rejections.rows)
    assert found == {(LANES[1], 4): 1}
