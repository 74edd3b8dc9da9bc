"""Windows since a landmark in one bucket: what closes, what is carried, what is never late.

time     100       110       120       130       140 s       landmark 100
rows     |--x------|---------|--y------|---------|
windows  |=========|
         |=============================|                    none ends at 120: nothing came
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import pytest

from mars.core.plan import Emit
from mars.core.types import Sequence64
from mars.core.windows import Cumulating, Landmark, Window, WindowShape
from mars.engine.codec.entry import decode_entry, encode_entry
from mars.protocol.ports import Progress, Snapshot
from mars.protocol.windows import changed
from mars.protocol.windows.folding import Folding
from tests.unit.machines import bucket_parts
from tests.unit.machines.reducing_rows import (
    P0,
    P1,
    PlanOptions,
    absorb,
    balanced,
    closed_windows,
    make_entry,
    make_folding,
    make_frontier,
    make_head,
    make_plan,
    make_progress,
    make_task,
    make_version,
    panes_of,
)

SINCE_100 = Landmark(100_000, 10_000)

Counts = dict[tuple[int, str], int]
"""End of the window in seconds, key -> n."""


def begin(**options: Unpack[PlanOptions]) -> Folding:
    return make_folding(make_plan(window=SINCE_100, **options))


def closed(folding: Folding, watermark_s: int) -> Counts:
    """The rows of the windows that are due, all of which begin with the landmark."""
    found = closed_windows(folding, watermark_s)
    assert {start for start, _end, _key in found} <= {100}
    return {(end, key): n for (_start, end, key), n in found.items()}


def commit(folding: Folding, watermark_s: int, through: int) -> None:
    """Close and commit, as an owner does."""
    closed_ms = panes_of(folding).closed_by(watermark_s * 1000)
    ledger = folding.ledger(closed_ms)
    assert balanced(ledger), ledger
    folding.committed(make_frontier({P0: through}, closed_ms), ledger)


def record_of(folding: Folding) -> Progress:
    frontier, rows = folding.state.frontier, folding.input
    return replace(
        make_progress(frontier.merged),
        closed_ms=frontier.closed_ms,
        forgotten_ms=frontier.forgotten_ms,
        ledger=rows.ledger,
        incomplete_before_ms=folding.gaps.before_ms,
    )


def test_a_window_ends_with_each_step_that_has_rows_and_holds_all_groups() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(101, "x"), (125, "y"), (139, "x")])

    assert closed(folding, 119) == {(110, "x"): 1}
    assert closed(folding, 140) == {
        (110, "x"): 1,
        (130, "x"): 1,
        (130, "y"): 1,
        (140, "x"): 2,
        (140, "y"): 1,
    }


def test_rows_before_the_landmark_are_filtered() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(99, "x"), (100, "y"), (-5, "x")])

    assert list(folding.state.panes.open) == [100_000]
    assert (folding.input.ledger.filtered, folding.input.ledger.counted) == (2, 1)


def test_what_lies_behind_is_one_pane_and_a_step_without_rows_is_not_emitted_for_it() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(101, "x"), (112, "y"), (131, "x")])
    commit(folding, 120, through=3)

    assert list(folding.state.panes.open) == [100_000, 130_000]
    assert folding.state.panes.open[100_000].rows == 2
    assert closed(folding, 130) == {}
    assert closed(folding, 200) == {(140, "x"): 2, (140, "y"): 1}


def test_rows_are_emitted_in_the_ledger_once_their_own_step_is() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(101, "x"), (112, "y"), (131, "x")])
    commit(folding, 120, through=3)
    assert (folding.input.ledger.emitted, folding.input.ledger.open) == (2, 1)

    commit(folding, 140, through=3)
    assert folding.input.ledger.open == 0
    assert folding.state.panes.open[100_000].rows == 3


def test_a_row_is_never_late_and_counts_from_the_next_window_on() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(101, "x"), (112, "y")])
    commit(folding, 150, through=2)

    absorb(folding, 2, 2, [(101, "z"), (149, "y")])
    assert list(folding.state.panes.open) == [100_000]
    assert closed(folding, 200) == {}
    ledger = folding.ledger(150_000)
    assert (ledger.late, ledger.late_partly, ledger.open) == (0, 2, 0)

    absorb(folding, 3, 4, [(205, "x")])
    assert closed(folding, 210) == {(210, "x"): 2, (210, "y"): 2, (210, "z"): 1}


def test_the_first_row_of_all_is_needed_for_ever() -> None:
    folding = begin()
    absorb(folding, 1, 5, [(112, "x")])
    absorb(folding, 2, 3, [(101, "x")], lane=P1)
    absorb(folding, 3, 6, [(124, "x")])
    commit(folding, 900, through=7)

    panes = folding.state.panes
    assert panes.needed({P0: 7, P1: 4}, panes.gone(900_000)) == {P0: 5, P1: 3}


def test_a_successor_takes_the_carried_pane_from_the_merged_log_or_row_by_row() -> None:
    rows = [(101, "x"), (112, "y"), (124, "x"), (131, "x")]
    folding = begin()
    absorb(folding, 1, 0, rows)
    commit(folding, 130, through=4)
    record = record_of(folding)

    (base,) = folding.bases(Sequence64(9), {P0: 4})
    header, states = encode_entry(base.version, base.ranges, base.partial)
    merged = Folding(folding.plan, folding.bucket, {}, record)
    merged.absorb_base(decode_entry(base.seq, header, states))
    again = Folding(folding.plan, folding.bucket, {}, record)
    absorb(again, 1, 0, rows)

    for successor in (merged, again):
        assert list(successor.state.panes.open) == [100_000, 130_000]
        assert closed(successor, 140) == closed(folding, 140)
        assert successor.input.ledger == folding.input.ledger


def test_a_lost_snapshot_spoils_all_windows_to_come_for_ever() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(101, "x"), (112, "y")])
    commit(folding, 120, through=2)
    saved = folding.snapshot(make_frontier({P0: 2}, 120_000))
    assert saved is not None
    until_ms = folding.state.panes.ends_ms(saved.partial.panes)

    after = Folding(folding.plan, folding.bucket, {}, record_of(folding))
    after.snapshot_lost(Snapshot({P0: 2}, until_ms, 1, 0))
    absorb(after, 2, 2, [(205, "x")])
    assert [one.complete for one in after.state.close([Window(210_000, 100_000)])] == [False]
    commit(after, 210, through=3)

    later = Folding(folding.plan, folding.bucket, {}, record_of(after))
    absorb(later, 3, 3, [(99_001, "x")])
    window = Window(99_010_000, 100_000)
    assert [one.complete for one in later.state.close([window])] == [False]

    again = Folding(folding.plan, folding.bucket, {}, record_of(later))
    again.snapshot_lost(Snapshot({P0: 2}, until_ms, 1, 0))
    absorb(again, 3, 3, [(99_001, "x")])
    assert [one.complete for one in again.state.close([window])] == [False]


# ----------------------------------------------------------------------------- emit: changed


def test_only_groups_that_rows_came_to_in_the_step_are_emitted_with_all_their_rows() -> None:
    folding = begin(emit=Emit.CHANGED)
    absorb(folding, 1, 0, [(101, "x"), (102, "y"), (112, "x"), (131, "y")])

    assert closed(folding, 140) == {
        (110, "x"): 1,
        (110, "y"): 1,
        (120, "x"): 2,
        (140, "y"): 2,
    }


def test_a_group_whose_rows_missed_their_step_comes_with_the_next_window_once() -> None:
    folding = begin(emit=Emit.CHANGED)
    absorb(folding, 1, 0, [(101, "x"), (102, "y"), (103, "z")])
    commit(folding, 120, through=3)
    absorb(folding, 2, 3, [(104, "y"), (121, "x"), (131, "x")])

    assert closed(folding, 140) == {(130, "x"): 2, (130, "y"): 2, (140, "x"): 3}


def test_what_a_record_owes_a_successor_emits_with_all_groups() -> None:
    folding = begin(emit=Emit.CHANGED)
    absorb(folding, 1, 0, [(101, "x"), (102, "y"), (103, "z")])
    commit(folding, 120, through=3)
    absorb(folding, 2, 3, [(104, "y")])
    (owed,) = panes_of(folding).owed_step(None, 120_000)
    assert owed == Window(130_000, 100_000)
    commit(folding, 120, through=4)

    record = replace(record_of(folding), owed=(folding.plan.window.name_of(owed),))
    successor = Folding(folding.plan, folding.bucket, {}, record)
    absorb(successor, 1, 0, [(101, "x"), (102, "y"), (103, "z")])
    absorb(successor, 2, 3, [(104, "y")])
    assert panes_of(successor).commits.revisable() == []
    absorb(successor, 3, 4, [(121, "x")])
    assert closed(successor, 130) == {(130, "x"): 2, (130, "y"): 2, (130, "z"): 1}


def test_groups_that_wait_for_long_are_kept_once_each() -> None:
    folding = begin(emit=Emit.CHANGED)
    absorb(folding, 1, 0, [(101, "x"), (102, "y"), (103, "z")])
    commit(folding, 120, through=3)
    many = 3 * changed.FRAMES_MAX
    for late in range(many):
        absorb(folding, 2 + late, 3 + late, [(104, "xy"[late % 2])])
    found = panes_of(folding).changed
    assert found is not None
    kept = found._late
    assert kept is not None
    assert sum(frame.height for frame in kept) < changed.FRAMES_MAX + 2
    absorb(folding, 2 + many, 3 + many, [(121, "x")])
    assert closed(folding, 130) == {(130, "x"): 2 + many // 2, (130, "y"): 1 + many // 2}


def test_such_a_task_is_in_all_buckets() -> None:
    assert begin().plan.single_bucket
    assert not begin(emit=Emit.CHANGED).plan.single_bucket


def test_a_version_that_has_ended_owes_nothing() -> None:
    options: dict[str, Any] = {"window": SINCE_100, "emit": Emit.CHANGED}
    part, plan = bucket_parts.begin(**options), make_plan(**options)
    on_time, late = (make_entry(1, 0, [(101, "x")], plan=plan), [(102, "x")])
    bucket_parts.read(part, make_head(1, {P0: 1}, mark_s=120), on_time)
    bucket_parts.commit(part)
    bucket_parts.read(part, make_head(2, {P0: 2}, mark_s=120), make_entry(2, 1, late, plan=plan))
    for _ in range(2):  # one more follows it
        assert [record.owed for record in bucket_parts.commit(part)] == [(130_000,)]
    assert not part.stale()

    part.update(make_task(make_version(1), make_version(2, {P0: 2}), **options))
    part.drained(make_head(2, {P0: 2}, mark_s=120, version=2))
    assert part.stale()
    assert [record.owed for record in bucket_parts.commit(part)] == [(), ()]
    assert [record.version for record in bucket_parts.commit(part)] == [2]


@pytest.mark.parametrize("window", [SINCE_100, Cumulating(100_000, 10_000)])
def test_what_missed_its_step_waits_for_a_window_of_a_version_that_has_ended(
    window: WindowShape,
) -> None:
    options: dict[str, Any] = {"window": window, "emit": Emit.CHANGED}
    part, plan = bucket_parts.begin(**options), make_plan(**options)
    on_time = make_entry(1, 0, [(101, "x"), (102, "y"), (103, "z")], plan=plan)
    late = make_entry(2, 3, [(104, "x"), (121, "y")], plan=plan)
    bucket_parts.read(part, make_head(1, {P0: 3}, mark_s=120), on_time)
    bucket_parts.commit(part)
    bucket_parts.read(part, make_head(2, {P0: 5}, mark_s=121), late)

    part.update(make_task(make_version(1), make_version(2, {P0: 5}), **options))
    part.drained(make_head(2, {P0: 5}, mark_s=121, version=2))
    (record, *_newer) = bucket_parts.commit(part)
    assert (record.version, record.owed) == (1, (130_000,))

    part.drained(make_head(2, {P0: 5}, mark_s=131, version=2))
    assert bucket_parts.emitted(part) == {(100, "x"): 2, (100, "y"): 2}
    assert [record.owed for record in bucket_parts.commit(part)] == [(), ()]
