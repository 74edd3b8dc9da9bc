"""Windows that count rows, while owners change, rows are cut anew, and the store is lost anywhere.

lane 0   a b . c | d x e f | ...      '.' is filtered, 'x' cannot be read: neither counts
         0 1   2 | 3   4 5 |          FLUSHALL between any two rows: the numbers come back
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from mars.core.plan import Call, Column, Function, Literal, ValueType
from mars.core.types import NOT_KNOWN, Lane, LeaderEpoch, Range, Records, Topic
from mars.core.windows import Counting
from mars.engine.kernel import decode, map_batch, map_gone
from mars.protocol.leader.tasks import begin_version
from mars.protocol.ports import Applied, Cut, Head
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.reducing_rows import (
    E1,
    NAME,
    STREAM,
    RowSpec,
    balanced,
    make_task,
    make_version,
    message,
)
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

LANES = (Lane("0"), Lane("1"))
ROWS = 120
SEEDS = 12
SHAPES = (Counting(10, 10), Counting(12, 4), Counting(7, 3), Counting(1, 1))
FILTERED = "skip"
WHERE = Call(
    Function.NOT_EQUAL,
    (Column("k", ValueType.STRING), Literal(FILTERED, ValueType.STRING)),
    ValueType.BOOL,
)

Place = tuple[int, int, int, str]
"""Version, partition, number of the window, key."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is emitted of a group."""

    rows: int
    first_s: int
    last_s: int
    first_offset: int
    last_offset: int
    complete: bool


class Run:
    """One task, fed in batches that are cut anywhere, and read."""

    def __init__(self, chance: random.Random, shape: Counting, *, gaps: bool = False) -> None:
        self.chance = chance
        self.shape = shape
        self.gaps = gaps
        self.task = self._task([make_version()])
        self.world = World(self.task, snapshot_every_ms=chance.choice((300, 900_000)))
        self.rows = {lane: made(chance) for lane in LANES}
        self.gone = dict.fromkeys(LANES, 0)
        self.lost = 0
        self.reducer = self._owned_by("r1")

    def _task(self, versions: Sequence[object]) -> RunnableTask:
        task = make_task(*versions, window=self.shape)  # type: ignore[arg-type]
        plans = {number: replace(plan, filter=WHERE) for number, plan in task.plans.items()}
        return replace(task, plans=plans)

    def _owned_by(self, name: str) -> Reducer:
        self.world.assign(dict.fromkeys(range(BUCKETS), name))
        return Reducer(self.world, name)

    @property
    def head(self) -> Head:
        found = self.world.store.head([NAME])[NAME]
        assert found is not None
        return found

    # ------------------------------------------------------------------------------- events

    def run(self, *, version_after: int | None = None) -> None:
        steps = 0
        while any(self.head.offsets[lane] < ROWS for lane in LANES):
            self._step()
            steps += 1
            if version_after is not None and steps >= version_after and self._may_begin():
                self.new_version()
                version_after = None
        self.reducer.run(12)

    def _step(self) -> None:
        self.feed(self.chance.choice(LANES), self.chance.randrange(1, 9))
        event = self.chance.random()
        if event < 0.06:
            self.lose_store()
        elif event < 0.12:
            self.reducer = self._owned_by(self.chance.choice(("r1", "r2")))
        elif event < 0.7:
            self.reducer.run(self.chance.randrange(1, 3))

    def feed(self, lane: Lane, count: int) -> None:
        """The next rows of a lane, as a mapper would read them."""
        head = self.head
        first = head.offsets[lane]
        after = min(first + count, ROWS)
        definition = self.task.definition
        version, boundary = definition.version_at(lane, first)
        if boundary is not None:
            after = min(after, boundary)
        if first < self.gone[lane]:
            after = self.gone[lane] if boundary is None else min(boundary, self.gone[lane])
        while first < after:
            outcome = self._append(lane, version, first, after, head.rows.get(lane, 0))
            if isinstance(outcome, Applied):
                return
            assert isinstance(outcome, Cut), outcome
            after = outcome.offset

    def _append(self, lane: Lane, version: int, first: int, after: int, number: int) -> object:
        plan = self.task.plans[version]
        if first < self.gone[lane] or number == NOT_KNOWN:
            mapped = map_gone(plan, BUCKETS, Range(lane, first, after), number)
        else:
            values = [message(row) for row in self.rows[lane][first:after]]
            offsets = range(first, after)
            records = Records(lane, first, after, values, offsets, [-1] * len(offsets))
            mapped = map_batch(plan, BUCKETS, decode(STREAM, plan.fields, records), number)
        return self.world.store.append(NAME, self.world.store_epoch, version, mapped)

    def lose_store(self) -> None:
        """FLUSHALL; mappers begin again at the lowest L, and rows may be gone by then."""
        made_anew: list[Reducer] = []
        owners = dict.fromkeys(range(BUCKETS), "r1")
        before = self.head
        self.world.lose_store(owners, also=lambda: made_anew.append(Reducer(self.world, "r1")))
        (self.reducer,) = made_anew
        self.lost += 1
        if self.gaps and self.chance.random() < 0.5:
            lane = self.chance.choice(LANES)
            low, high = self.head.offsets[lane], before.offsets[lane]
            self.gone[lane] = max(self.gone[lane], self.chance.randint(low, high))

    def _may_begin(self) -> bool:
        reached = [record.merged for record in self.world.newest()]
        offsets = self.head.offsets
        return all(offsets[lane] >= at for merged in reached for lane, at in merged.items())

    def new_version(self) -> None:
        """A second version begins where the lanes stand."""
        head = self.head
        begun = self.world.store.begin_version(
            NAME, head.epoch, LeaderEpoch(9), head.run_id, 2, after=1
        )
        assert begun is not None
        both = replace(
            self.task.definition, versions=(make_version(), replace(make_version(2), starts=None))
        )
        definition = begin_version(both, begun, 0, None)
        again = self.world.store.begin_version(
            NAME, head.epoch, LeaderEpoch(9), head.run_id, 2, after=1
        )
        assert again == begun
        self.world.store.set_active(NAME, head.epoch, LeaderEpoch(9), active=True)
        self.task = replace(self._task(definition.versions), output_partitions=self.outputs)
        self.world.tasks = {NAME: self.task}
        self.reducer = self._owned_by("r1")

    @property
    def outputs(self) -> Mapping[str, int]:
        return self.world.tasks[NAME].output_partitions

    # ------------------------------------------------------------------------------ results

    def emitted(self) -> dict[Place, Found]:
        found: dict[Place, Found] = {}
        for partition in self.world.broker.topics[Topic(f"mars.results.{NAME}")].partitions:
            for record in partition.committed(0, partition.stable_end):
                row, headers = json.loads(record.value or b""), dict(record.headers)
                lane, number = row["partition"], row["window_number"]
                assert json.loads(record.key or b"") == [
                    row["window_start"],
                    row["k"],
                    lane,
                    number,
                ]
                place = int(headers["mars-version"]), lane, number, row["k"]
                assert place not in found, f"emitted twice: {place}"
                found[place] = Found(
                    row["n"],
                    row["window_start"] // 1000,
                    row["window_end"] // 1000,
                    row["window_first_offset"],
                    row["window_last_offset"],
                    headers["mars-complete"] == b"1",
                )
        return found

    def check_ledgers(self) -> None:
        for record in self.world.newest():
            assert balanced(record.ledger), record
            assert record.ledger.late == 0


def made(chance: random.Random) -> list[RowSpec]:
    """The rows of a lane, in no order of time."""
    keys = ("a", "b", "c", "d", FILTERED, "")
    return [(chance.randrange(1_000), chance.choice(keys)) for _ in range(ROWS)]


def expected(
    shape: Counting,
    version: int,
    partition: int,
    rows: Sequence[RowSpec],
    first: int,
    *,
    ended: bool,
) -> dict[Place, Found]:
    """What the windows of a version hold whose rows begin at an offset, row by row."""
    counted = [
        (offset, at, key) for offset, (at, key) in enumerate(rows, first) if key and key != FILTERED
    ]
    found: dict[Place, Found] = {}
    for number, begin in enumerate(range(0, len(counted), shape.slide)):
        window = counted[begin : begin + shape.size]
        full = len(window) == shape.size
        if not full and not ended:
            break
        for key in {key for _offset, _at, key in window}:
            own = [(offset, at) for offset, at, other in window if other == key]
            times = [at for _offset, at in own]
            place = version, partition, number, key
            found[place] = Found(len(own), min(times), max(times), own[0][0], own[-1][0], full)
    return found


def all_expected(run: Run, expected: Callable[..., dict[Any, Found]]) -> dict[Any, Found]:
    """What `expected` says of the rows of each lane in each version."""
    found: dict[Any, Found] = {}
    versions = run.task.definition.versions
    for lane in LANES:
        starts = [(one.starts or {}).get(lane, 0) for one in versions]
        for version, (first, after) in zip(versions, pairwise([*starts, ROWS]), strict=True):
            rows = run.rows[lane][first:after]
            ended = version is not versions[-1]
            found |= expected(run.shape, version.version, int(lane), rows, first, ended=ended)
    return found


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_window_is_exact_whatever_fails(seed: int, shape: int) -> None:
    run = Run(random.Random(seed), SHAPES[shape])
    run.run()

    assert run.emitted() == all_expected(run, expected)
    run.check_ledgers()


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_new_version_begins_with_number_0_and_the_last_windows_come_as_they_are(
    seed: int, shape: int
) -> None:
    chance = random.Random(seed)
    run = Run(chance, SHAPES[shape])
    run.run(version_after=chance.randrange(5, 30))

    assert len(run.task.definition.versions) == 2
    assert run.emitted() == all_expected(run, expected)
    run.check_ledgers()


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_windows_that_touch_rows_that_are_gone_say_so_and_all_others_are_exact(
    seed: int, shape: int
) -> None:
    run = Run(random.Random(seed), SHAPES[shape], gaps=True)
    run.run()

    wanted, found = all_expected(run, expected), run.emitted()
    for lane in LANES:
        if not run.gone[lane]:
            own = {place: one for place, one in wanted.items() if place[1] == int(lane)}
            assert {place: one for place, one in found.items() if place[1] == int(lane)} == own
    for (_version, partition, _number, key), one in found.items():
        if one.complete:
            check_whole(run, Lane(str(partition)), key, one)
    run.check_ledgers()


def check_whole(run: Run, lane: Lane, key: str, one: Found) -> None:
    """No row of the group is missing between its first and its last, nor is there one too many."""
    span = list(enumerate(run.rows[lane]))[one.first_offset : one.last_offset + 1]
    times = [at for _offset, (at, own) in span if own == key]
    assert (one.rows, one.first_s, one.last_s) == (len(times), min(times), max(times))
    passing = sum(own not in {"", FILTERED} for _offset, (_at, own) in span)
    assert passing <= run.shape.size


def test_stores_are_lost_on_the_way() -> None:
    runs = [Run(random.Random(seed), SHAPES[0]) for seed in range(4)]
    for run in runs:
        run.run()
    assert sum(run.lost for run in runs) > 0
    assert Counter(one.complete for run in runs for one in run.emitted().values())[True] > 0
    assert runs[0].world.store_epoch >= E1
