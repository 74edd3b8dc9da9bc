"""The store forgets, remembers what is past, and runs full; results stay exact.

The numbers are those of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cluster import MarsCluster, wait_for
from tests.support.kafka import group_members
from tests.support.late import apart, assert_late_are_accounted, late_row
from tests.support.load import PARTITIONS, Load
from tests.support.progress import assert_progress_only_goes_forward, saved_through
from tests.support.rows import assert_exactly_once, expected
from tests.support.store import Store

pytestmark = pytest.mark.faults

ROOM_BYTES = 300_000
"""What may still be written when the limit is set: some seconds of the load."""

LONG_S = 30
"""A window that is open while the store is lost, and takes many snapshots."""

LATE_S = 60
"""How far behind the others rows are that are to be late."""

LATE_EVERY = 50
FLUSHES = 2


@pytest.fixture
def store(mars: MarsCluster) -> Iterator[Store]:
    with Store(mars) as found:
        yield found


def test_9_the_store_comes_back_with_what_it_held_some_seconds_ago(
    mars: MarsCluster, store: Store
) -> None:
    def strike(turn: int) -> None:
        if turn % 2 == 0:
            store.save()
        else:
            store.kill()

    try:
        with Load(mars, "f9_old", seconds=20).running() as load:
            load.every(3, strike)
        load.check()
    finally:
        store.forget_file()


def test_10_a_full_store_evicts_nothing_and_mappers_wait_in_their_group(
    mars: MarsCluster, store: Store
) -> None:
    store.forget_refusals()
    with Load(mars, "f10").running() as load:
        wait_for("rows", lambda: mars.client.ledger("f10").read > 0)
        members = group_members(mars)
        with limited(store), mars.stopped("reducer-1", "reducer-2"):
            wait_for("refused writes", lambda: store.refusals() > 0)
            load.every(1, lambda _: None)
            assert group_members(mars) == members

    load.check()
    assert store.info()["evicted_keys"] == 0


@contextmanager
def limited(store: Store) -> Iterator[None]:
    """Hardly any room is left in the store."""
    before = store.memory_max()
    store.limit_memory(store.info()["used_memory"] + ROOM_BYTES)
    try:
        yield
    finally:
        store.limit_memory(before)


def test_8_a_long_window_is_read_again_from_its_last_snapshot_only(
    mars: MarsCluster, store: Store
) -> None:
    load = Load(mars, "f8_long", seconds=20, window_s=LONG_S)
    with load.running():
        saved = wait_for(
            "a snapshot of every bucket", lambda: saved_through(mars.file["kafka"], load.name)
        )
        store.flush()
        offsets = wait_for("the task in the new store", lambda: _begun_at(mars, load.name))

    assert offsets.keys() == saved.keys()
    assert all(offsets[lane] >= saved[lane] > 0 for lane in saved), (offsets, saved)
    load.check()


def _begun_at(mars: MarsCluster, task: str) -> dict[str, int]:
    """Where a leader let a task go on in a new store; nothing if none has."""
    begun = re.compile(rf'task initialised task={task} offsets="(.*)"$', re.MULTILINE)
    for path in (mars.data / "logs").glob("reducer-*.log"):
        for found in begun.finditer(path.read_text()):
            offsets: dict[str, int] = ast.literal_eval(found[1])
            if any(offsets.values()):
                return offsets
    return {}


def test_18_late_rows_across_a_loss_are_counted_or_named_and_never_both(
    mars: MarsCluster, store: Store
) -> None:
    """Rows of `sip` "late" come a minute after their time; all others come in time."""
    load = Load(mars, "f18", window_s=1)
    with load.running():
        late = [late_row(row, LATE_S * 1000) for row in load.rows[::LATE_EVERY]]
        wait_for("rows", lambda: mars.client.ledger("f18").read > 0)
        flushed = load.every(4, lambda turn: _late_rows(load, late, turn, store))
    load.send(late[flushed * len(late) // (FLUSHES + 2) :])

    rows = len(load.rows) + PARTITIONS + len(late)
    wait_for("all rows", lambda: mars.client.ledger("f18").read >= rows, seconds=120)
    wait_for("no open row", lambda: mars.client.ledger("f18").open == 0, seconds=120)
    in_time, too_late = apart(mars.read("mars.results.f18"))
    assert_exactly_once(in_time, expected(load.rows, 1000))
    ledger = assert_late_are_accounted(mars, "f18", late, too_late, 1000)
    assert (ledger.bad, ledger.future, ledger.filtered) == (0, 0, PARTITIONS)
    assert_progress_only_goes_forward(mars.file["kafka"])


def _late_rows(load: Load, late: list[dict[str, Any]], turn: int, store: Store) -> None:
    """A share of the late rows, then a loss in the middle of them."""
    share = len(late) // (FLUSHES + 2)
    part = late[turn * share : (turn + 1) * share]
    load.send(part[: share // 2])
    store.flush()
    load.send(part[share // 2 :])
