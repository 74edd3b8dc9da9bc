"""When panes are saved: every so often, and sooner where a loss would make many rows read again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from mars.core.types import Lane
from mars.protocol.ports import Snapshot
from mars.protocol.reducer.snapshots import (
    SOON_MS,
    SOON_ROWS,
    SOON_ROWS_A_PART,
    Snapshots,
)

P0, P1 = Lane("0"), Lane("1")
EVERY_MS = 900_000


def saved_at(
    rows_a_look: int,
    *,
    older: Snapshot | None = None,
    open_rows: int = 10**12,
    look_ms: int = SOON_MS,
    looks: int = 20,
) -> list[int]:
    """At which looks panes are to be saved; each time they are, and rows go on coming.

    Of two lanes, in which so many rows come between two looks. Open panes need the newest
    `open_rows` of each.
    """
    snapshots = Snapshots(EVERY_MS)
    found = []
    for number in range(looks):
        at = (number + 1) * rows_a_look // 2
        now: Mapping[Lane, int] = {P0: at, P1: at}

        def needed(merged: Mapping[Lane, int]) -> dict[Lane, int]:
            return {lane: max(0, at - open_rows) for lane, at in merged.items()}

        if snapshots.is_due(1 + number * look_ms, older, partial(dict, now), needed):
            found.append(number)
            snapshots.committed()
    return found


def of_parts(parts: int) -> Snapshot:
    return Snapshot(merged={}, until_ms=0, parts=parts, checksum=0)


def test_few_rows_are_saved_every_so_often() -> None:
    assert saved_at(1_000) == [EVERY_MS // SOON_MS]


def test_many_rows_are_saved_sooner() -> None:
    assert saved_at(SOON_ROWS, looks=5) == [1, 2, 3, 4]
    assert saved_at(SOON_ROWS // 2, looks=7) == [2, 4, 6]


@pytest.mark.parametrize(("parts", "looks"), [(10, 1), (20, 2), (40, 4)])
def test_what_is_large_is_saved_more_seldom(parts: int, looks: int) -> None:
    rows = 10 * SOON_ROWS_A_PART
    assert saved_at(rows, older=of_parts(parts), looks=9) == list(range(looks, 9, looks))


def test_nothing_is_saved_within_a_minute_however_many_rows_come() -> None:
    assert saved_at(10 * SOON_ROWS, look_ms=SOON_MS // 10, looks=20) == [10]


def test_what_is_closed_by_then_is_not_saved() -> None:
    assert saved_at(2 * SOON_ROWS, open_rows=SOON_ROWS // 2, looks=14) == []


def test_rows_of_a_lane_that_was_not_there_make_nothing_due() -> None:
    snapshots = Snapshots(EVERY_MS)
    nothing = dict[Lane, int]
    assert not snapshots.is_due(1, None, lambda: {P0: 10}, lambda _merged: nothing())
    now = {P0: 10, P1: 10 * SOON_ROWS}
    assert not snapshots.is_due(1 + SOON_MS, None, lambda: now, lambda _merged: {P0: 0})
