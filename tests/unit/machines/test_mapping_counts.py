"""A mapper and tasks whose windows count rows: numbers go on with the offsets of each lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from mars.core.plan import OFFSET_FIELD, Call, Column, Function, Literal, ValueType
from mars.core.types import Bucket, Lane, Sequence64, TaskName
from mars.core.windows import Counting
from mars.core.windows.counting import first_place
from mars.engine.aggregates import place_aggregates
from mars.protocol.mapper.events import LIVE, Sourced
from mars.protocol.ports import Head, OffsetGone, TaskStart
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.mapping_world import (
    BUCKETS,
    EPOCH,
    TOPIC,
    World,
    make_task,
    make_version,
    row,
)

P0, P1 = Lane("0"), Lane("1")
SHAPE = Counting(10, 4)
FILTERED = "10.0.0.3"
WHERE = Call(
    Function.NOT_EQUAL,
    (Column("sip", ValueType.STRING), Literal(FILTERED, ValueType.STRING)),
    ValueType.BOOL,
)
COUNTS = TaskName("counts")


def counting_task(*versions: object) -> RunnableTask:
    task = make_task(COUNTS, *versions)  # type: ignore[arg-type]
    plans = {
        number: replace(
            plan,
            window=SHAPE,
            filter=WHERE,
            aggregates=(*plan.aggregates, *place_aggregates("timestamp")),
            fields=(*plan.fields, OFFSET_FIELD),
        )
        for number, plan in task.plans.items()
    }
    return replace(task, plans=plans)


def world(rows: int = 300, lanes: int = 1, **changes: object) -> World:
    partitions = {number: [row(at) for at in range(rows)] for number in range(lanes)}
    return World(partitions, **changes)  # type: ignore[arg-type]


def head(here: World) -> Head:
    found = here.store.head([COUNTS])[COUNTS]
    assert found is not None
    return found


def panes(here: World) -> Counter[int]:
    """Rows by pane, of all buckets and versions."""
    found: Counter[int] = Counter()
    for number in range(BUCKETS):
        piece = here.store.read(COUNTS, Bucket(number), Sequence64(0), Sequence64(2**40))
        for entry in piece.entries:
            for pane in entry.partial.panes:
                found[pane.start_ms] += pane.rows
    return found


def passing(offsets: Iterable[int]) -> int:
    return sum(f"10.0.0.{at % 7}" != FILTERED for at in offsets)


def expected(rows: int, partition: int = 0, first: int = 0) -> Counter[int]:
    """The same, row by row."""
    begin = first_place(partition)
    return Counter(begin + at // 2 * 2 for at in range(passing(range(first, rows))))


def test_rows_have_the_numbers_of_their_lane_however_batches_are_cut() -> None:
    for step in (7, 100):
        here = world(lanes=2, step=step)
        here.add(counting_task())
        here.assign(0, 1)
        here.run()

        assert panes(here) == expected(300) + expected(300, 1)
        assert head(here).rows == {P0: passing(range(300)), P1: passing(range(300))}


def test_other_tasks_of_the_topic_are_left_alone() -> None:
    here = world(lanes=2)
    here.add(counting_task())
    here.add(make_task("a"))
    here.assign(0, 1)
    here.run()

    assert panes(here) == expected(300) + expected(300, 1)
    assert here.counts("a") == here.expected()


def test_an_answer_that_is_lost_numbers_nothing_twice() -> None:
    here = world(step=20)
    here.add(counting_task())
    here.assign(0)
    for before in (False, True, False, False):
        here.store.fail_next("append", before=before)
    here.run()

    assert panes(here) == expected(300)


def test_two_mappers_on_the_same_partition_number_every_row_once() -> None:
    here = world(step=20)
    here.add(counting_task())
    here.assign(0)
    here.run(rounds=3)
    zombie, here.machine = here.machine, here.new_machine()
    here.change(counting_task())
    here.assign(0)
    for _ in range(20):
        here.run(rounds=1)
        here.machine, zombie = zombie, here.machine
    here.run()

    assert panes(here) == expected(300)


def test_a_mapper_goes_on_where_the_store_stands() -> None:
    here = world(step=20)
    here.add(counting_task())
    before = here.store.snapshot()
    here.assign(0)
    here.run(rounds=5)
    here.store.restore(before)
    here.run()

    assert panes(here) == expected(300)


def test_a_new_version_counts_from_0_where_it_begins() -> None:
    here = world()
    versions = (make_version(starts={}), make_version(2, starts={P0: 150}))
    here.add(counting_task(*versions))
    here.assign(0)
    here.run()

    assert panes(here) == expected(150) + expected(300, first=150)
    assert head(here).rows == {P0: passing(range(150, 300))}


def test_rows_behind_a_gap_are_gone_until_a_record_knows_their_number() -> None:
    here = world()
    known = passing(range(200))
    start = TaskStart(1, True, {P0: 0}, {}, {P0: (200,)}, numbers={P0: {0: 0, 200: known}})
    here.store.initialise(COUNTS, EPOCH, start)
    here.change(counting_task())
    here.assign(0)
    here.feed(Sourced(LIVE, OffsetGone(TOPIC, 0, 0, 120)))
    here.run()

    begin = known // 2 * 2
    wanted = {pane: rows for pane, rows in expected(300).items() if pane > begin}
    found = panes(here)
    assert {pane: rows for pane, rows in found.items() if pane > begin} == wanted
    assert min(found) == begin
    assert head(here).rows == {P0: passing(range(300))}
