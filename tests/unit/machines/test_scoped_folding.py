"""Windows that close key by key or bucket by bucket: what is late, what is emitted, what is known.

time      0         10        20        30 s      tumbling windows of 10 s, delay 0, key_lag 30 s
fast       x         x         x                  its windows close as its own rows pass
slow       y                                      waits for its own rows, or for 30 s more
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from mars.core.errors import TaskLimit
from mars.core.plan import Plan, WatermarkScope
from mars.core.types import Entry, Lane, Range, Sequence64
from mars.core.windows import Window
from mars.engine.codec.dead import DeadRange, decode_dead
from mars.engine.kernel import map_gone
from mars.protocol.ports import Ledger
from mars.protocol.windows import turns as limits
from mars.protocol.windows.by_key import marks as key_marks
from mars.protocol.windows.by_key.closer import KeyCloser
from mars.protocol.windows.closers import BucketCloser, PartitionCloser
from mars.protocol.windows.closing import Ahead
from mars.protocol.windows.folding import Folding
from tests.unit.machines.reducing_rows import (
    P0,
    P1,
    RowSpec,
    balanced,
    counts_of,
    make_entry,
    make_folding,
    make_frontier,
    make_head,
    make_plan,
)

KEY_LAG_MS = 30_000


def plan_of(scope: WatermarkScope = WatermarkScope.KEY, delay_ms: int = 0) -> Plan:
    return make_plan(watermark=scope, key_lag_ms=KEY_LAG_MS, delay_ms=delay_ms)


def fold(plan: Plan | None = None, **said: object) -> Folding:
    """A folding that has read again all that was accounted, unless `merged` says otherwise."""
    folding = make_folding(plan or plan_of(), **said)
    if "merged" not in said:
        folding.settle()
    return folding


def take(folding: Folding, seq: int, first: int, rows: Sequence[RowSpec], lane: Lane = P0) -> None:
    folding.absorb(make_entry(seq, first, rows, lane=lane, plan=folding.plan))


def commit(
    folding: Folding, closed_s: int | None = None, **through: int
) -> dict[tuple[int, str], int]:
    """Close what is due and commit, as an owner does; the rows that were emitted."""
    closed_ms = None if closed_s is None else closed_s * 1000
    windows = folding.state.close(folding.state.due(closed_ms))
    ahead = folding.state.closer.close_ahead(closed_ms)
    ledger = folding.ledger(closed_ms, ahead.rows)
    merged = {Lane(name[1:]): offset for name, offset in through.items()}
    folding.committed(make_frontier(merged, closed_ms, closed_ms, ahead.upto_ms), ledger)
    assert balanced(ledger), ledger
    return counts_of(value for one in (*windows, *ahead.windows) for value in one.finished.values)


def successor(folding: Folding, ledger: Ledger | None = None) -> Folding:
    """Who begins where a folding has committed."""
    return fold(
        folding.plan,
        merged=folding.input.merged,
        closed_ms=folding.state.frontier.closed_ms,
        ahead_ms=folding.state.frontier.ahead_ms,
        ledger=ledger or folding.ledger(folding.state.frontier.closed_ms),
    )


# ----------------------------------------------------------------------------------- on time


def test_a_window_closes_for_a_key_once_rows_of_that_key_have_passed_it() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x"), (2, "x"), (3, "y"), (12, "x")])

    assert folding.state.closer.size_ahead().rows == 1
    assert commit(folding, p0=4) == {(0, "x"): 2}
    assert folding.state.closer.size_ahead().rows == 0

    take(folding, 2, 4, [(11, "y"), (25, "x")])
    assert commit(folding, p0=6) == {(0, "y"): 1, (10, "x"): 1}


def test_the_delay_is_that_of_a_key_behind_its_own_newest_row() -> None:
    folding = fold(plan_of(delay_ms=5_000))
    take(folding, 1, 0, [(1, "x"), (14, "x")])
    assert commit(folding, p0=2) == {}

    take(folding, 2, 2, [(15, "x")])
    assert commit(folding, p0=3) == {(0, "x"): 1}


def test_a_faster_key_does_not_shorten_the_delay_of_another() -> None:
    folding = fold(plan_of(delay_ms=5_000))
    take(folding, 1, 0, [(1, "x"), (14, "x"), (20, "fast")])
    assert commit(folding, p0=3) == {}

    take(folding, 2, 3, [(2, "x"), (15, "x")])
    assert commit(folding, p0=5) == {(0, "x"): 2}


def test_the_windows_of_a_silent_key_close_by_the_partitions() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "slow"), (2, "x"), (45, "x")])

    assert commit(folding, p0=3) == {(0, "x"): 1}
    assert commit(folding, closed_s=10, p0=3) == {(0, "slow"): 1}
    assert folding.ledger(10_000).open == 1


def test_a_window_that_the_partitions_close_is_closed_once_though_a_key_has_passed_it() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x"), (2, "slow"), (12, "x"), (25, "x")])
    assert folding.state.closer.size_ahead().rows == 2

    assert [one.window.start_ms for one in folding.state.closer.close_ahead(10_000).windows] == [
        10_000
    ]
    assert commit(folding, closed_s=10, p0=4) == {(0, "x"): 1, (0, "slow"): 1, (10, "x"): 1}


def test_marks_of_a_key_are_the_highest_of_all_entries_and_lanes() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x")])
    take(folding, 2, 0, [(21, "x")], lane=P1)
    take(folding, 3, 1, [(4, "x")])

    assert commit(folding, p0=2, p1=1) == {(0, "x"): 2}


# -------------------------------------------------------------------------------------- late


def test_rows_of_a_group_that_is_closed_are_late_and_named_and_others_are_not() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x"), (3, "y"), (12, "x")])
    commit(folding, p0=3)

    take(folding, 2, 3, [(4, "x"), (5, "x"), (5, "y"), (13, "x")])

    (dead,) = (decode_dead(raw) for raw in folding.input.dead)
    assert isinstance(dead, DeadRange)
    assert (dead.reason, dead.rows, dead.window_start) == ("late", 2, 0)
    ledger = folding.ledger(None)
    assert (ledger.late, ledger.counted, ledger.emitted) == (2, 5, 1)
    assert commit(folding, closed_s=10, p0=7) == {(0, "y"): 2}
    assert folding.state.panes.rows(Window(20_000, 10_000)) == 2


def test_a_row_is_late_by_the_last_commit_and_not_by_rows_that_came_meanwhile() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x")])
    commit(folding, p0=1)
    take(folding, 2, 1, [(12, "x")])
    take(folding, 3, 2, [(2, "x")])

    assert folding.ledger(None).late == 0
    assert commit(folding, p0=3) == {(0, "x"): 2}


def test_the_first_row_of_a_group_is_late_where_its_key_has_passed_a_closed_window() -> None:
    folding = fold()
    take(folding, 1, 0, [(11, "x"), (35, "x")])
    assert commit(folding, p0=2) == {(10, "x"): 1}

    take(folding, 2, 2, [(1, "x"), (22, "x")])

    assert folding.ledger(None).late == 1, "of 0 to 10 s: X is 20 s; what is beyond it is open yet"
    assert commit(folding, p0=4) == {(20, "x"): 1}


# --------------------------------------------------------------------------------- successors


def test_a_successor_knows_what_is_closed_from_the_rows_below_m_alone() -> None:
    entries = [(1, 0, [(1, "x"), (2, "y"), (12, "x")]), (2, 3, [(3, "y"), (25, "x")])]
    folding = fold()
    for seq, first, rows in entries:
        take(folding, seq, first, rows)
        commit(folding, p0=first + len(rows))
    new = successor(folding)
    for seq, first, rows in entries:
        take(new, seq, first, rows)
    new.settle()

    assert new.state.closer.size_ahead().rows == 0
    assert new.ledger(None) == folding.ledger(None)
    take(new, 3, 5, [(4, "x"), (4, "y")])
    assert new.ledger(None).late == 1
    assert commit(new, closed_s=30, p0=7) == {(0, "y"): 3, (20, "x"): 1}


def test_a_successor_needs_no_order_of_entries_and_no_rows_that_were_emitted() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x"), (12, "x"), (13, "y")])
    take(folding, 2, 0, [(14, "x"), (1, "y")], lane=P1)
    commit(folding, p0=3, p1=2)
    base = folding.bases(Sequence64(2), folding.input.merged)[0]
    assert {pane.start_ms: pane.rows for pane in base.partial.panes} == {10_000: 3}
    new = successor(folding)

    new.absorb_base(base)
    new.settle()
    take(new, 3, 3, [(2, "x")])

    assert new.ledger(None).late == 1
    assert commit(new, closed_s=20, p0=4, p1=2) == {(10, "x"): 2, (10, "y"): 1}


def test_a_version_without_accounted_rows_waits_for_none() -> None:
    """Else its log could not be merged before all that others have accounted for is read again."""
    new = fold(merged={P0: 5})

    take(new, 1, 5, [(3, "x")])

    assert new.settled
    assert new.ledger(None).read == 1


def test_rows_above_m_wait_until_all_below_it_are_back() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x")])
    take(folding, 2, 0, [(12, "x")], lane=P1)
    commit(folding, p0=1, p1=1)
    new = successor(folding)

    take(new, 1, 0, [(1, "x")])
    take(new, 2, 1, [(3, "x"), (4, "y")])
    assert not new.settled
    assert new.ledger(None).read == 2, "nothing new is counted yet"
    take(new, 3, 0, [(12, "x")], lane=P1)
    new.settle()

    ledger = new.ledger(None)
    assert (ledger.read, ledger.late, ledger.counted) == (4, 1, 3)
    assert commit(new, closed_s=20, p0=3, p1=1) == {(0, "y"): 1, (10, "x"): 1}


def test_a_log_that_is_merged_meanwhile_keeps_apart_what_waits() -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x")])
    take(folding, 2, 0, [(12, "x")], lane=P1)
    commit(folding, p0=1, p1=1)
    owner = successor(folding)
    take(owner, 1, 0, [(1, "x")])
    take(owner, 2, 1, [(3, "x"), (0, "")])
    take(owner, 3, 3, [(4, "y"), (5, "x")])

    bases = owner.bases(Sequence64(3), {P0: 5, P1: 0})
    new = successor(folding)
    for base in bases:
        new.absorb_base(base)
    take(new, 4, 0, [(12, "x")], lane=P1)
    new.settle()

    accounted, waiting = (base.ranges for base in bases)
    assert (accounted, waiting) == ((Range(P0, 0, 1), Range(P1, 0, 0)), (Range(P0, 1, 5),))
    ledger = new.ledger(None)
    assert (ledger.read, ledger.bad, ledger.late, ledger.counted) == (6, 1, 2, 3)
    assert commit(new, closed_s=20, p0=5, p1=1) == {(0, "y"): 1, (10, "x"): 1}


def test_c_goes_on_where_all_windows_below_it_were_closed_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "WINDOWS_AT_ONCE", 1)
    folding = fold()
    take(folding, 1, 0, [(1, "x"), (11, "x"), (25, "x")])
    commit(folding, p0=3)
    commit(folding, p0=3)
    assert (folding.state.frontier.closed_ms, folding.state.frontier.ahead_ms) == (None, 20_000)

    assert folding.state.behind(10_000)
    commit(folding, closed_s=20, p0=3)
    assert not folding.state.behind(90_000)


def test_one_commit_closes_so_many_windows_and_says_how_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "WINDOWS_AT_ONCE", 1)
    folding = fold()
    take(folding, 1, 0, [(1, "x"), (11, "x"), (21, "x"), (2, "y")])

    assert commit(folding, p0=4) == {(0, "x"): 1}
    assert folding.state.frontier.ahead_ms == 10_000
    new = successor(folding)
    take(new, 1, 0, [(1, "x"), (11, "x"), (21, "x"), (2, "y")])
    new.settle()
    take(new, 2, 4, [(12, "x"), (11, "y")])

    assert new.ledger(None).late == 0, "10 to 20 s is beyond what is closed"
    assert commit(new, p0=6) == {(0, "y"): 1}
    assert commit(new, p0=6) == {(10, "x"): 2}
    assert new.state.closer.close_ahead(None) == Ahead(20_000)


def test_what_a_slow_key_comes_to_below_x_is_closed_whatever_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "x"), (31, "x"), (2, "y"), (12, "y")])
    commit(folding, p0=4)
    take(folding, 2, 4, [(22, "z"), (13, "z"), (32, "y"), (33, "z"), (41, "x")])
    monkeypatch.setattr(limits, "WINDOWS_AT_ONCE", 1)
    folding.state.closer._frontier = make_frontier({P0: 4}, ahead_ms=30_000)  # type: ignore[attr-defined]

    assert commit(folding, p0=9) == {(10, "y"): 1, (10, "z"): 1, (20, "z"): 1}


def test_rows_that_are_gone_below_m_fail_the_task() -> None:
    folding = fold(merged={P0: 5})
    (partial,) = map_gone(folding.plan, 1, Range(P0, 0, 3)).partials

    with pytest.raises(TaskLimit, match="cannot be known"):
        folding.absorb(Entry(Sequence64(1), 1, (Range(P0, 0, 3),), partial))


# ------------------------------------------------------------------------------------ buckets


def test_a_bucket_goes_by_the_slowest_lane_of_its_own_rows() -> None:
    folding = make_folding(plan_of(WatermarkScope.BUCKET), merged={})
    head = make_head(2, {P0: 2, P1: 1}, mark_s=50)
    take(folding, 1, 0, [(1, "x"), (23, "x")])
    assert folding.state.closer.level(head, 20_000) == 20_000, (
        "a lane without rows of the bucket holds it"
    )

    take(folding, 2, 0, [(12, "y")], lane=P1)
    assert folding.state.closer.level(head, None) == 12_000
    assert folding.state.closer.level(head, 20_000) == 20_000
    assert (
        folding.state.closer.level(make_head(2, {P0: 2, P1: 1}, idle=frozenset({P1})), 1_000)
        == 23_000
    )


def test_a_bucket_that_was_taken_over_begins_with_the_starts_of_its_open_panes() -> None:
    folding = make_folding(plan_of(WatermarkScope.BUCKET), merged={})
    take(folding, 1, 0, [(23, "x")])
    take(folding, 2, 0, [(24, "x")], lane=P1)
    folding.committed(make_frontier({P0: 1, P1: 1}, None), folding.ledger(None))
    new = make_folding(folding.plan, merged=folding.input.merged)

    new.absorb_base(folding.bases(Sequence64(2), folding.input.merged)[0])

    assert new.state.closer.level(make_head(2, {P0: 1, P1: 1}, mark_s=50), None) == 20_000


def test_each_kind_of_watermark_has_its_scope() -> None:
    scopes = {kind: type(make_folding(plan_of(kind)).state.closer) for kind in WatermarkScope}

    assert scopes == {
        WatermarkScope.PARTITION: PartitionCloser,
        WatermarkScope.BUCKET: BucketCloser,
        WatermarkScope.KEY: KeyCloser,
    }


# ------------------------------------------------------------------- asked after each entry


@pytest.mark.parametrize("seed", range(8))
def test_it_is_known_after_each_entry_whether_groups_are_due(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However rows come, are asked about and committed: as if all keys were looked at each time."""
    monkeypatch.setattr(key_marks, "WAITING_MAX", 3)
    monkeypatch.setattr(limits, "WINDOWS_AT_ONCE", 1)
    chance = random.Random(seed)
    folding, seen = fold(), set[bool]()

    for seq in range(1, 150):
        rows = [(chance.randrange(seq // 3, seq // 3 + 20), chance.choice("abcdef"))]
        take(folding, seq, seq - 1, rows)
        if chance.random() < 0.7:
            seen.add(folding.state.closer.has_ahead())
            assert folding.state.closer.has_ahead() == (folding.state.closer.size_ahead().rows > 0)
        if chance.random() < 0.2:
            commit(folding, closed_s=max(0, seq // 3 - 30) // 10 * 10 or None, p0=seq)
            assert folding.state.closer.has_ahead() == (folding.state.closer.size_ahead().rows > 0)

    assert seen == {True, False}


def test_an_entry_that_makes_nothing_due_takes_no_look_at_all_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folding = fold()
    take(folding, 1, 0, [(1, "slow"), (2, "x"), (12, "x")])
    commit(folding, p0=3)
    assert not folding.state.closer.has_ahead()
    monkeypatch.setattr(key_marks.KeyMarks, "_seen", None)

    take(folding, 2, 3, [(3, "slow"), (13, "x")])
    assert not folding.state.closer.has_ahead()
    take(folding, 3, 5, [(11, "slow")])
    assert folding.state.closer.has_ahead()
