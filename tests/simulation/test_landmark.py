"""Windows since a landmark, while owners change and the store is lost.

landmark |=====|                    FLUSHALL at any place: the first pane, with all that lies
         |===========|              behind, comes back from the log, from a snapshot, or row by
         |=======================|  row; what is lost with a snapshot spoils all that follows
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Unpack

import pytest

from mars.core.plan import Emit
from mars.core.types import Lane, Topic
from mars.core.windows import Cumulating, Landmark, WindowShape
from tests.simulation.test_cycles import LANES, Batch, Place, Run
from tests.unit.machines.reducing_rows import PlanOptions
from tests.unit.machines.reducing_world import Reducer, World
from tests.unit.machines.test_saving import STATE, recover, replay
from tests.unit.machines.test_saving import run as run_seconds
from tests.unit.machines.test_saving import world as saving

SINCE_S, STEP_S = 20, 10
SINCE = Landmark(SINCE_S * 1000, STEP_S * 1000)
SEEDS = 25


class Restless(Run):
    """Owners change whenever a record has counted rows that have missed their step.

    Some groups have one row, so that nothing else lets them be shown.
    """

    told = 0

    def alone(self) -> Restless:
        """Every third row is of a group of its own."""
        for lane, batches in self.batches.items():
            for number, batch in enumerate(batches):
                self.batches[lane][number] = [
                    (at, f"{key}-{lane}-{number}-{row}" if row % 3 == 1 else key)
                    for row, (at, key) in enumerate(batch)
                ]
        return self

    def _step(self) -> None:
        super()._step()
        self.reducer.run(2, elapsed_ms=5_000)
        if self.late_partly() > self.told:
            self.told = self.late_partly()
            self.reducer = self._owned_by(self.chance.choice(("r1", "r2")))


def run_of(
    seed: int, delay_s: int, window: WindowShape = SINCE, **options: Unpack[PlanOptions]
) -> Run:
    run = Run(random.Random(seed), delay_s, window, **options)
    run.run()
    return run


def finished(run: Run) -> Run:
    """One more step closes, in which a row came: its window has all rows of all groups."""
    run.last_s += 2 * STEP_S
    for lane in LANES:
        run.batches[lane].append([(run.last_s, "last")])
        run.feed(lane)
    run.reducer.run(8)
    return run


def rows_of(batches: Mapping[Lane, Sequence[Batch]]) -> list[tuple[int, str]]:
    rows = [row for lane in batches.values() for batch in lane for row in batch]
    return [(at, key) for at, key in rows if at >= SINCE_S]


def expected(rows: Sequence[tuple[int, str]], upto_s: int) -> Counter[Place]:
    """What the windows hold, row by row, of each step that has rows and ends by then."""
    ends = {at // STEP_S * STEP_S + STEP_S for at, _key in rows}
    return Counter(
        (SINCE_S, end, key) for end in ends if end <= upto_s for at, key in rows if at < end
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_step_with_rows_is_exact_whatever_fails(seed: int) -> None:
    run = run_of(seed, delay_s=15)

    assert run.emitted() == expected(rows_of(run.batches), run.last_s)
    assert run.late_partly() == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_row_is_lost_for_having_missed_its_step_whatever_fails(seed: int) -> None:
    run = finished(run_of(seed, delay_s=0))

    found, wanted = run.emitted(), expected(rows_of(run.batches), run.last_s)
    end = max(end for _start, end, _key in found)
    assert {place: n for place, n in found.items() if place[1] == end} == {
        place: n for place, n in wanted.items() if place[1] == end
    }
    by_key: Counter[str] = Counter()
    for place in sorted(found):
        assert by_key[place[2]] <= found[place] <= wanted[place]
        by_key[place[2]] = found[place]
    assert sum(record.ledger.late for record in run.world.newest()) == 0
    assert all(record.ledger.emitted <= record.ledger.counted for record in run.world.newest())


def test_stores_are_lost_and_rows_miss_steps() -> None:
    runs = [run_of(seed, delay_s=0) for seed in range(4)]
    assert sum(run.lost for run in runs) > 0
    assert sum(run.late_partly() for run in runs) > 0


def test_a_snapshot_that_is_gone_spoils_all_windows_for_ever_also_after_later_losses() -> None:
    here = saving(SINCE)
    fed = run_seconds(here, Reducer(here, "r1"), 24)
    before = complete(here)
    assert before
    assert all(before.values())
    for log in here.broker.topics[STATE].partitions:
        log.truncate(log.end)

    for owner in ("r2", "r1", "r2"):  # what is saved anew comes back, and lacks what was gone
        reducer, offsets = recover(here, owner)
        replay(here, offsets, fed)
        fed = run_seconds(here, reducer, 16, fed)
        assert any(record.snapshot is not None for record in here.newest())

    after = complete(here)
    assert len(after) > len(before) + 5
    assert {end for end, whole in after.items() if whole} == before.keys()


# ----------------------------------------------------------------------------- emit: changed


def changed(rows: Sequence[tuple[int, str]], upto_s: int) -> dict[Place, int]:
    """What the windows hold of the groups that rows came to in their last step."""
    own = {(at // STEP_S * STEP_S + STEP_S, key) for at, key in rows}
    return {place: n for place, n in expected(rows, upto_s).items() if place[1:] in own}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_groups_that_changed_come_alone_and_right_whatever_fails(seed: int) -> None:
    run = run_of(seed, delay_s=15, emit=Emit.CHANGED)

    assert run.emitted() == changed(rows_of(run.batches), run.last_s)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_last_of_each_group_has_all_its_rows_whatever_missed_its_step(seed: int) -> None:
    run = finished(run_of(seed, delay_s=0, emit=Emit.CHANGED))

    found, wanted = run.emitted(), expected(rows_of(run.batches), run.last_s)
    assert all(found[place] <= wanted[place] for place in found)
    last = {key: n for (_start, _end, key), n in sorted(found.items())}
    rows = [row for row in rows_of(run.batches) if row[0] < run.last_s]
    assert last == Counter(key for _at, key in rows)


@pytest.mark.parametrize("seed", range(4))
def test_who_takes_over_shows_groups_whose_rows_have_missed_their_step(seed: int) -> None:
    run = Restless(random.Random(seed), 0, SINCE, emit=Emit.CHANGED).alone()
    run.run()

    assert run.told
    last = {key: n for (_start, _end, key), n in sorted(finished(run).emitted().items())}
    rows = [row for row in rows_of(run.batches) if row[0] < run.last_s]
    assert last == Counter(key for _at, key in rows)


ONE_CYCLE = Cumulating(10_000_000, STEP_S * 1000)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_so_it_is_in_a_cycle(seed: int) -> None:
    run = run_of(seed, delay_s=0, window=ONE_CYCLE, emit=Emit.CHANGED)
    run.last_s += 2 * STEP_S
    finished(run)

    last = {key: n for (_start, _end, key), n in sorted(run.emitted().items())}
    rows = [row for lane in run.batches.values() for batch in lane for row in batch]
    assert last == Counter(key for at, key in rows if at < run.last_s)


def complete(world: World) -> dict[int, bool]:
    """Whether each window that was emitted says so, by its end in seconds."""
    found: dict[int, bool] = {}
    for partition in world.broker.topics[Topic("mars.results.a")].partitions:
        for record in partition.committed(0, partition.stable_end):
            end = int((record.key or b"").rstrip(b"]").rsplit(b",", 1)[1]) // 1000
            found[end] = dict(record.headers)["mars-complete"] == b"1"
    return found
