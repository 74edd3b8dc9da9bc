"""Partitions that pause: event time goes on from the highest mark at the pace of the clock.

event time   0 ─────▶ 29 ····(pause of 8 s)····▶ 32        30 ─────▶ 89
             30 rows     W = 29 + 8 - idle_after           60 rows, none of them late
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.plan import WatermarkScope
from mars.core.windows import Sliding
from mars.protocol.ports import Ledger
from tests.unit.machines.reducing_rows import NAME, RowSpec, balanced, make_task, make_version
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World, counted

TO_FIRST = dict.fromkeys(range(BUCKETS), "r1")
AN_HOUR_LATER_S = 3_600
LONG_S = 600
LONG = Sliding(LONG_S * 1000, LONG_S * 1000)
IDLE_AFTER_S = 5
KEYS = 7


def rows(first: int, count: int) -> list[RowSpec]:
    """A row a second, in order."""
    return [(second, f"k{second % KEYS}") for second in range(first, first + count)]


def world(now_s: int = AN_HOUR_LATER_S, **settings: object) -> World:
    """Where it is `now_s` when the first rows come, whose times are from 0 on."""
    here = World(make_task(**settings), snapshot_every_ms=1_000)  # type: ignore[arg-type]
    here.now_ms = now_s * 1000
    here.assign(TO_FIRST)
    return here


def read(here: World, reducer: Reducer, first: int, count: int) -> None:
    """Rows of partition 0; partition 1 never has any, and is idle."""
    here.append(NAME, "0", first, rows(first, count))
    reducer.run()


def pause(here: World, reducer: Reducer, seconds: float) -> None:
    """No row comes, and all lanes are idle."""
    for _ in range(round(seconds * 10)):
        here.lease(NAME)
        reducer.run(elapsed_ms=100)


def close_all(here: World, reducer: Reducer, first: int) -> None:
    """One more row, far enough on to close all that is open."""
    here.append(NAME, "0", first, [(AN_HOUR_LATER_S, "last")])
    pause(here, reducer, IDLE_AFTER_S + 1)


def ledger(here: World) -> Ledger:
    """Of all buckets together."""
    kept = [record.ledger for record in here.newest()]
    assert all(balanced(one) for one in kept)
    return Ledger(
        **{name: sum(getattr(one, name) for one in kept) for name in Ledger.__dataclass_fields__}
    )


def test_old_rows_in_order_are_not_late_after_a_pause() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    read(here, reducer, 0, 30)
    pause(here, reducer, 8)
    read(here, reducer, 30, 60)
    close_all(here, reducer, 90)

    assert here.emitted(NAME) == counted(rows(0, 90), 90)
    assert (ledger(here).late, ledger(here).read) == (0, 91)


def test_a_pause_closes_only_what_ends_so_soon_after_the_highest_mark() -> None:
    # mark 29 ──── 17 s ────▶ 29 + 17 - 5 = 41: the window 30 to 40 has closed, and no other
    here = world()
    reducer = Reducer(here, "r1")
    read(here, reducer, 0, 30)
    pause(here, reducer, 17)
    read(here, reducer, 30, 60)
    close_all(here, reducer, 90)

    assert here.emitted(NAME) == counted([*rows(0, 30), *rows(40, 50)], 90)
    assert ledger(here).late == 10


def test_rows_that_come_at_their_times_close_their_windows_by_the_clock() -> None:
    here = world(now_s=29)
    reducer = Reducer(here, "r1")
    read(here, reducer, 0, 30)
    pause(here, reducer, 30 + IDLE_AFTER_S - 29 - 0.5)
    assert here.emitted(NAME) == counted(rows(0, 30), 20)
    pause(here, reducer, 0.5)
    assert here.emitted(NAME) == counted(rows(0, 30), 30)


def test_rows_that_do_not_raise_the_mark_are_rows_all_the_same() -> None:
    # mark 29 ── 8 s ── row of 25 ── 8 s ──▶ 29 + 8 - 5: not 29 + 16 - 5
    here = world(delay_ms=10_000)
    reducer = Reducer(here, "r1")
    read(here, reducer, 0, 30)
    pause(here, reducer, 14)
    here.append(NAME, "0", 30, [(25, "behind")])
    pause(here, reducer, 14)
    here.append(NAME, "0", 31, rows(30, 60))
    close_all(here, reducer, 91)

    assert here.emitted(NAME) == counted([*rows(0, 90), (25, "behind")], 90)
    assert ledger(here).late == 0


def test_a_task_without_rows_closes_nothing() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    pause(here, reducer, 30)
    assert [record.closed_ms for record in here.newest()] == [None] * len(here.newest())

    read(here, reducer, 0, 30)
    close_all(here, reducer, 30)
    assert here.emitted(NAME) == counted(rows(0, 30), AN_HOUR_LATER_S)
    assert ledger(here).late == 0


# ------------------------------------------------------------------------- after a lost store


def lose_store(here: World, owner: str) -> Reducer:
    """Who goes on in the next life of the store."""
    made: list[Reducer] = []
    owners = dict.fromkeys(range(BUCKETS), owner)
    here.lose_store(owners, also=lambda: made.append(Reducer(here, owner)))
    return made[0]


def saved(now_s: int, **settings: object) -> World:
    """A world with a window of 10 min, all of whose rows are saved and accounted."""
    here = world(now_s, window=LONG, **settings)
    reducer = Reducer(here, "r1")
    for first in range(0, 12, 2):
        read(here, reducer, first, 2)
        pause(here, reducer, 1)
    pause(here, reducer, 15)
    assert here.start_of(here.tasks[next(iter(here.tasks))]).offsets["0"] == 12  # type: ignore[index]
    return here


def skip(here: World, reducer: Reducer, until_ms: int) -> None:
    """A long time in which no row comes."""
    while here.now_ms < until_ms:
        here.lease(NAME)
        reducer.run(elapsed_ms=min(2_000, until_ms - here.now_ms))


@pytest.mark.parametrize("losses", [1, 2])
def test_a_long_window_that_was_restored_closes_though_no_row_comes(losses: int) -> None:
    here = saved(now_s=0)
    for number in range(losses):
        reducer = lose_store(here, f"r{2 + number}")
        reducer.run(120, elapsed_ms=100)  # its lanes are not idle yet, and it has committed
    assert here.store.head([NAME])[NAME].marks_ms == {}  # type: ignore[union-attr]

    # Of what had come by idleness, idle_after may be waited for once more.
    skip(here, reducer, (LONG_S + IDLE_AFTER_S) * 1000 - 100)
    assert here.emitted(NAME) == {}
    skip(here, reducer, (LONG_S + 2 * IDLE_AFTER_S + 20) * 1000)
    assert here.emitted(NAME) == counted(rows(0, 12), LONG_S, LONG_S)


def test_a_restored_window_of_old_rows_closes_as_late_as_without_a_loss() -> None:
    here = saved(now_s=100_000)
    reducer = lose_store(here, "r2")
    skip(here, reducer, (100_000 + LONG_S - 20) * 1000)
    assert here.emitted(NAME) == {}
    here.append(NAME, "0", 12, rows(LONG_S - 60, 60))
    skip(here, reducer, here.now_ms + 20_000)
    assert here.emitted(NAME) == counted([*rows(0, 12), *rows(LONG_S - 60, 60)], LONG_S, LONG_S)
    assert ledger(here).late == 0


def test_what_a_lost_store_had_come_to_is_the_watermark_and_the_delay() -> None:
    here = world(now_s=200, delay_ms=2_000)
    version = make_version(options={"delay": "2s"})
    name, task = next(iter(here.tasks.items()))
    definition = replace(task.definition, versions=(version,))
    here.tasks[name] = replace(task, definition=definition)
    reducer = Reducer(here, "r1")
    read(here, reducer, 0, 30)
    pause(here, reducer, 12)
    found = here.start_of(here.tasks[name]).restored
    written_ms = max(here.progress().written_ms.values())
    assert found is not None
    assert found.taken_ms is not None
    assert found.taken_ms <= written_ms
    # the newest record: 29 + (its time - 200) - idle_after, as long as no row came
    assert found.time_ms == 29_000 + (found.taken_ms - 200_000) - IDLE_AFTER_S * 1000


@pytest.mark.parametrize("scope", [WatermarkScope.BUCKET, WatermarkScope.KEY])
def test_what_was_restored_is_no_higher_than_the_marks_whoever_closes(
    scope: WatermarkScope,
) -> None:
    here = world(watermark=scope, key_lag_ms=3_000)
    options = {"watermark": scope.value, "key_lag": "3s"}
    name, task = next(iter(here.tasks.items()))
    definition = replace(task.definition, versions=(make_version(options=options),))
    here.tasks[name] = replace(task, definition=definition)
    reducer = Reducer(here, "r1")
    here.append(NAME, "0", 0, rows(0, 30))
    here.append(NAME, "1", 0, rows(0, 30))
    reducer.run(150, elapsed_ms=100)
    found = here.start_of(here.tasks[name]).restored
    assert found is not None
    assert found.time_ms <= 29_000
