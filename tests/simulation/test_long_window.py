"""A window of a day at 1,000 batches an hour: what the store holds, and what its loss costs.

    0 h ─────────────────────────────────────────────▶ 24 h
    batches of 20 rows, every 3.6 s of a simulated clock; panes saved every 15 min

The figures are in `docs/reports/reliability.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mars.core.types import Lane, Mapped, PaneRows, Range, Records
from mars.core.windows import Sliding
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import Applied
from tests.unit.machines.reducing_rows import NAME, SAVE_MS, STREAM, RowSpec, make_task, message
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

DAY_S = 86_400
DAY = Sliding(DAY_S * 1000, DAY_S * 1000)
BATCHES_AN_HOUR = 1_000
BATCH_ROWS = 20
GROUPS = 60
BATCHES_A_LOOK = 10
LANES = (Lane("0"), Lane("1"))
OWNERS = dict.fromkeys(range(BUCKETS), "r1")

BATCHES_SAVED = BATCHES_AN_HOUR * SAVE_MS // 3_600_000
"""Batches between two snapshots."""


@dataclass
class Day:
    """One task over a window of a day, fed and read on a simulated clock."""

    world: World
    reducer: Reducer
    fed: int = 0
    bytes_max: int = 0

    def feed(self, batches: int) -> None:
        for number in range(batches):
            self.append(LANES[self.fed % 2], self.fed // 2 * BATCH_ROWS)
            self.fed += 1
            if number % BATCHES_A_LOOK == BATCHES_A_LOOK - 1:
                self.look(elapsed_ms=BATCHES_A_LOOK * 3_600_000 // BATCHES_AN_HOUR)

    def look(self, elapsed_ms: int) -> None:
        self.reducer.run(1, elapsed_ms)
        self.bytes_max = max(self.bytes_max, self.log_bytes)

    @property
    def log_bytes(self) -> int:
        head = self.world.store.head([NAME])[NAME]
        assert head is not None
        return head.log_bytes

    def append(self, lane: Lane, first: int) -> None:
        """A batch of a mapper; all are alike but for their place."""
        mapped = moved(_BATCHES[first // BATCH_ROWS % len(_BATCHES)], lane, first)
        outcome = self.world.store.append(NAME, self.world.store_epoch, 1, mapped)
        assert isinstance(outcome, Applied), outcome

    def lose_store(self) -> int:
        """FLUSHALL, and all that follows; the rows that were read again."""
        made: list[Reducer] = []
        self.world.lose_store(OWNERS, also=lambda: made.append(Reducer(self.world, "r1")))
        (self.reducer,) = made
        head = self.world.store.head([NAME])[NAME]
        assert head is not None
        offsets = dict(head.offsets)
        for lane in LANES:
            for first in range(offsets[lane], self.fed // 2 * BATCH_ROWS, BATCH_ROWS):
                self.append(lane, first)
        self.look(elapsed_ms=1_000)
        return sum(self.fed // 2 * BATCH_ROWS - offset for offset in offsets.values())


def rows(number: int) -> list[RowSpec]:
    """Rows of the first second, so that the watermark closes nothing."""
    return [(0, f"k{(number * BATCH_ROWS + each) % GROUPS}") for each in range(BATCH_ROWS)]


def _mapped(number: int) -> Mapped:
    plan = make_task(window=DAY).plans[1]
    values = [message(row) for row in rows(number)]
    offsets = range(BATCH_ROWS)
    records = Records(LANES[0], 0, BATCH_ROWS, values, offsets, [-1] * BATCH_ROWS)
    return map_batch(plan, BUCKETS, decode(STREAM, plan.fields, records))


_BATCHES = [_mapped(number) for number in range(GROUPS // BATCH_ROWS)]


def moved(batch: Mapped, lane: Lane, first: int) -> Mapped:
    """The same rows at another place."""
    partials = tuple(
        replace(
            one,
            panes=tuple(PaneRows(pane.start_ms, pane.rows, {lane: first}) for pane in one.panes),
        )
        for one in batch.partials
    )
    return Mapped((Range(lane, first, first + BATCH_ROWS),), {lane: 0}, partials)


def close(day: Day) -> dict[tuple[int, str], int]:
    """Rows of the next day close the window; what was emitted."""
    for lane in LANES:
        day.world.append(NAME, lane, day.fed // 2 * BATCH_ROWS, [(DAY_S + 1, "next")])
    day.reducer.run(3)
    return day.world.emitted(NAME)


def begin() -> Day:
    world = World(make_task(window=DAY), snapshot_every_ms=SAVE_MS)
    world.assign(OWNERS)
    return Day(world, Reducer(world, "r1"))


def test_store_and_recovery_of_a_day_are_bounded_by_its_groups_and_not_by_its_rows() -> None:
    day = begin()
    day.feed(2 * BATCHES_AN_HOUR)
    first_hours, day.bytes_max = day.bytes_max, 0
    day.feed(22 * BATCHES_AN_HOUR)

    entries = day.reducer.entries_read
    read_again = day.lose_store()

    rows_fed = day.fed * BATCH_ROWS
    print(  # noqa: T201 -- the figures of docs/reports/reliability.md
        f"{day.fed} batches, {rows_fed} rows: at most {day.bytes_max} bytes in the store "
        f"({first_hours} in the first two hours), {read_again} rows read again, "
        f"{entries} entries read before"
    )
    assert day.bytes_max <= 1.1 * first_hours
    assert read_again <= 2 * BATCHES_SAVED * BATCH_ROWS
    assert day.reducer.entries_read <= 2 * BATCHES_SAVED * BUCKETS
    assert close(day) == {(0, f"k{each}"): rows_fed // GROUPS for each in range(GROUPS)}
