"""Windows that cumulate, while owners change and the store is lost in the middle of a cycle.

cycle   |=====|                         five steps of 10 s; what lies behind is one pane,
        |===========|                   and comes back from the log, from a snapshot,
        |=================|  FLUSHALL   or row by row
        |=======================|
        |=============================|
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Unpack

import pytest

from mars.core.types import Lane, Topic
from mars.core.windows import Cumulating, WindowShape
from tests.unit.machines.reducing_rows import NAME, PlanOptions, RowSpec, make_task
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

CYCLE = Cumulating(50_000, 10_000)
SIZE_S, STEP_S = 50, 10
LANES = (Lane("0"), Lane("1"))
BATCHES = 40
LAST_S = 1_000
SEEDS = 25

Batch = Sequence[RowSpec]
Place = tuple[int, int, str]
"""Start and end of the window in seconds, key."""


class Run:
    """One task, fed and read; batches are cut anew at the same places, as offsets tell them."""

    def __init__(
        self,
        chance: random.Random,
        delay_s: int,
        window: WindowShape = CYCLE,
        scale: int = 1,
        **options: Unpack[PlanOptions],
    ) -> None:
        """Rows come `scale` times as far apart as in `made`, in windows of any shape."""
        self.chance = chance
        self.window = window
        self.last_s = LAST_S * scale
        snapshot_every_ms = chance.choice((300, 900_000))
        options["delay_ms"] = delay_s * scale * 1000
        task = make_task(window=window, **options)
        self.world = World(task, snapshot_every_ms=snapshot_every_ms)
        self.batches = {lane: scaled(made(chance), scale) for lane in LANES}
        self.fed = dict.fromkeys(LANES, 0)
        self.lost = 0
        self.reducer = self._owned_by("r1")

    def _owned_by(self, name: str) -> Reducer:
        self.world.assign(dict.fromkeys(range(BUCKETS), name))
        return Reducer(self.world, name)

    def run(self) -> None:
        while any(self.fed[lane] < len(self.batches[lane]) for lane in LANES):
            self._step()
        for lane in LANES:  # a lost store forgets marks: these rows come once it is lost no more
            self.batches[lane].append([(self.last_s, "last")])
            self.feed(lane)
        self.reducer.run(8)

    def _step(self) -> None:
        lane = min(LANES, key=lambda lane: self.fed[lane] + self.chance.random() * 4)
        self.feed(lane)
        event = self.chance.random()
        if event < 0.04:
            self._lose_store()
        elif event < 0.10:
            self.reducer = self._owned_by(self.chance.choice(("r1", "r2")))
        elif event < 0.6:
            self.reducer.run(self.chance.randrange(1, 3))

    def feed(self, lane: Lane) -> None:
        """The next batch of a lane, if there is one."""
        at = self.fed[lane]
        if at < len(self.batches[lane]):
            first = sum(map(len, self.batches[lane][:at]))
            self.world.append(NAME, lane, first, self.batches[lane][at])
            self.fed[lane] += 1

    def _lose_store(self) -> None:
        """FLUSHALL; mappers begin again at the lowest L."""
        made_anew: list[Reducer] = []
        owners = dict.fromkeys(range(BUCKETS), "r1")
        self.world.lose_store(owners, also=lambda: made_anew.append(Reducer(self.world, "r1")))
        (self.reducer,) = made_anew
        head = self.world.store.head([NAME])[NAME]
        assert head is not None
        for lane in LANES:
            firsts = [sum(map(len, self.batches[lane][:at])) for at in range(self.fed[lane] + 1)]
            self.fed[lane] = firsts.index(head.offsets[lane])
        self.lost += 1

    def emitted(self) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for partition in self.world.broker.topics[Topic(f"mars.results.{NAME}")].partitions:
            for record in partition.committed(0, partition.stable_end):
                row = json.loads(record.value or b"")
                start_ms, end_ms = row["window_start"], row["window_end"]
                ends = [end_ms] if self.window.begin_together else []
                assert json.loads(record.key or b"") == [start_ms, row["k"], *ends]
                place = start_ms // 1000, end_ms // 1000, row["k"]
                assert place not in found, f"emitted twice: {place}"
                found[place] = row["n"]
        return found

    def late_partly(self) -> int:
        return sum(record.ledger.late_partly for record in self.world.newest())


def made(chance: random.Random) -> list[Batch]:
    """One lane: rows up to 15 s behind, but in the cycle of the newest, so that none is late."""
    batches: list[Batch] = []
    newest = chance.randrange(3)
    for _ in range(BATCHES):
        batch: list[RowSpec] = []
        for _ in range(chance.randrange(1, 6)):
            newest += chance.randrange(6)
            behind = chance.choice((0, 0, chance.randrange(16)))
            at = max(newest - behind, newest // SIZE_S * SIZE_S)
            batch.append((at, f"k{chance.randrange(4)}"))
        batches.append(batch)
    return batches


def scaled(batches: list[Batch], scale: int) -> list[Batch]:
    return [[(at * scale, key) for at, key in batch] for batch in batches]


def expected(batches: Mapping[Lane, Sequence[Batch]]) -> Counter[Place]:
    """What the windows hold, row by row."""
    found: Counter[Place] = Counter()
    rows = [row for lane in batches.values() for batch in lane for row in batch]
    for at, key in rows:
        cycle = at // SIZE_S * SIZE_S
        for end in range(at // STEP_S * STEP_S + STEP_S, cycle + SIZE_S + 1, STEP_S):
            if key != "last":
                found[cycle, end, key] += 1
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_step_is_exact_whatever_fails(seed: int) -> None:
    run = Run(random.Random(seed), delay_s=15)
    run.run()

    assert run.emitted() == expected(run.batches)
    assert run.late_partly() == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rows_that_miss_a_step_are_in_the_later_ones_whatever_fails(seed: int) -> None:
    run = Run(random.Random(seed), delay_s=0)
    run.run()

    wanted, found = expected(run.batches), run.emitted()
    whole = {place: n for place, n in wanted.items() if place[1] - place[0] == SIZE_S}
    assert {place: n for place, n in found.items() if place in whole} == whole
    for (start, end, key), count in found.items():
        assert found.get((start, end - STEP_S, key), 0) <= count <= wanted[start, end, key]


def test_stores_are_lost_and_rows_miss_steps() -> None:
    runs = [Run(random.Random(seed), delay_s=0) for seed in range(4)]
    for run in runs:
        run.run()

    assert sum(run.lost for run in runs) > 0
    assert sum(run.late_partly() for run in runs) > 0
