"""Half a day, every minute: what the store holds, and what its loss in the middle costs.

0 h ─────────────────────────── 7 h 20 ─────────────────▶ 12 h
40 rows a minute, and a window that ends each minute; panes saved every 15 min; FLUSHALL
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from mars.core.types import Lane, Topic
from mars.core.windows import Cumulating
from tests.unit.machines.reducing_rows import NAME, SAVE_MS, RowSpec, make_task
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

STEPS = 720
MINUTE_S = 60
SIZE_S = STEPS * MINUTE_S
SHAPE = Cumulating(SIZE_S * 1000, MINUTE_S * 1000)
BATCH_ROWS = 20
GROUPS = 60
LANES = (Lane("0"), Lane("1"))
OWNERS = dict.fromkeys(range(BUCKETS), "r1")
LOST_AT = 440
HOURS_2 = 120
SAVED_STEPS = SAVE_MS // 60_000


@dataclass
class HalfDay:
    """One task over a cycle, fed and read minute by minute on a simulated clock."""

    world: World
    reducer: Reducer
    fed: int = 0
    log_bytes: list[int] = field(default_factory=list)

    def go_on(self) -> None:
        """One more minute."""
        for lane in LANES:
            self.append(lane, self.fed)
        self.fed += 1
        self.reducer.run(1, 60_000)
        head = self.world.store.head([NAME])[NAME]
        assert head is not None
        self.log_bytes.append(head.log_bytes)

    def append(self, lane: Lane, minute: int) -> None:
        self.world.append(NAME, lane, minute * BATCH_ROWS, rows(lane, minute))

    def lose_store(self) -> int:
        """FLUSHALL, and all that follows; the rows that were read again."""
        made: list[Reducer] = []
        self.world.lose_store(OWNERS, also=lambda: made.append(Reducer(self.world, "r1")))
        (self.reducer,) = made
        head = self.world.store.head([NAME])[NAME]
        assert head is not None
        firsts = {lane: head.offsets[lane] // BATCH_ROWS for lane in LANES}
        for lane, first in firsts.items():
            for minute in range(first, self.fed):
                self.append(lane, minute)
        self.reducer.run(1, 1_000)
        return sum(self.fed - first for first in firsts.values()) * BATCH_ROWS

    def emitted(self) -> Iterator[tuple[int, str, int]]:
        """End of the window in minutes, key and n of all rows."""
        for partition in self.world.broker.topics[Topic(f"mars.results.{NAME}")].partitions:
            for record in partition.committed(0, partition.stable_end):
                row = json.loads(record.value or b"")
                yield row["window_end"] // 60_000, row["k"], row["n"]


def rows(lane: Lane, minute: int) -> list[RowSpec]:
    """Those of a lane in a minute, in order."""
    first = (minute * 2 + LANES.index(lane)) * BATCH_ROWS
    return [(minute * MINUTE_S + n, f"k{(first + n) % GROUPS}") for n in range(BATCH_ROWS)]


def test_store_and_recovery_of_a_cycle_are_bounded_by_its_groups_and_not_by_its_steps() -> None:
    world = World(make_task(window=SHAPE), snapshot_every_ms=SAVE_MS)
    world.assign(OWNERS)
    day = HalfDay(world, Reducer(world, "r1"))
    for _ in range(LOST_AT):
        day.go_on()
    read_again = day.lose_store()
    while day.fed < STEPS + 1:  # the first rows of the next cycle close the last window
        day.go_on()
    day.reducer.run(3)

    merged = [now for before, now in pairwise(day.log_bytes) if now < before]
    print(  # noqa: T201 -- for who looks
        f"{day.fed * 2 * BATCH_ROWS} rows: at most {max(day.log_bytes)} bytes in the store, "
        f"{merged[0]} to {max(merged)} once they are merged, {read_again} rows read again"
    )
    assert max(merged) <= 1.2 * merged[0], "panes that lie behind take no more with each step"
    assert max(day.log_bytes) <= 2 * max(day.log_bytes[:HOURS_2])
    assert read_again <= 2 * SAVED_STEPS * len(LANES) * BATCH_ROWS
    wanted: dict[tuple[int, str], int] = {}
    so_far: Counter[str] = Counter()
    for minute in range(STEPS):
        so_far.update(key for lane in LANES for _at, key in rows(lane, minute))
        wanted |= {(minute + 1, key): n for key, n in so_far.items()}
    found = list(day.emitted())
    assert len(found) == len(wanted), "a row is doubled or missing"
    assert {(end, key): n for end, key, n in found} == wanted
