"""A limit on the groups of a window: the task fails, or folds what is over it into one group."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from mars.core.errors import TaskLimit
from mars.core.plan import OverMaxKeys, Plan
from mars.core.types import Entry, Sequence64
from mars.core.windows import Sliding
from mars.engine.codec import result_headers
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.windows import panes as panes_module
from mars.protocol.windows.folding import Folding
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    P1,
    SAVE_MS,
    SLIDING,
    TUMBLING,
    RowSpec,
    balanced,
    counts_of,
    make_entry,
    make_folding,
    make_frontier,
    make_head,
    make_plan,
    make_slice,
    make_task,
)
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

OTHERS = "__other__"
LAST_S = 100


def folding_plan(max_keys: int, window: Sliding = TUMBLING) -> Plan:
    return make_plan(window=window, max_keys=max_keys, over_max_keys=OverMaxKeys.FOLD)


def fold(plan: Plan, *batches: Sequence[RowSpec]) -> Folding:
    """A folding that has read these batches, in this order."""
    folding = make_folding(plan, merged={})
    for entry in entries_of(plan, batches):
        folding.absorb(entry)
    return folding


def entries_of(plan: Plan, batches: Iterable[Sequence[RowSpec]]) -> list[Entry]:
    entries, first = [], 0
    for seq, rows in enumerate(batches, 1):
        entries.append(make_entry(seq, first, rows, plan=plan))
        first += len(rows)
    return entries


def closed(folding: Folding, watermark_s: int = LAST_S) -> dict[tuple[int, str], int]:
    windows = folding.state.close(folding.state.due(watermark_s * 1000))
    return counts_of(value for window in windows for value in window.finished.values)


def keys(text: str) -> list[RowSpec]:
    """One row of each key, in the first window."""
    return [(1, key) for key in text.split()]


# ------------------------------------------------------------------------------------ folding
#
#   max_keys 2, in SEQ order:   a b | c a | d b b     a and b came first
#   window:                     a 2, b 3, others c + d = 2


def test_the_groups_that_came_first_keep_their_rows_and_all_others_become_one() -> None:
    folding = fold(folding_plan(2), keys("a b"), keys("c a"), keys("d b b"))

    assert closed(folding) == {(0, "a"): 2, (0, "b"): 3, (0, OTHERS): 2}


def test_as_many_groups_as_allowed_are_left_alone() -> None:
    assert closed(fold(folding_plan(2), keys("a b a"))) == {(0, "a"): 2, (0, "b"): 1}


def test_each_window_has_a_limit_of_its_own() -> None:
    folding = fold(folding_plan(1), [(1, "a"), (2, "b"), (12, "b"), (13, "a")])

    assert closed(folding) == {(0, "a"): 1, (0, OTHERS): 1, (10, "b"): 1, (10, OTHERS): 1}


def test_it_makes_no_difference_how_often_states_are_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = [keys("a b c"), keys("d a"), keys("c e"), keys("b f a")]
    late = closed(fold(folding_plan(2), *batches))
    monkeypatch.setattr(panes_module, "MERGE_ROWS_MIN", 0)

    assert (
        closed(fold(folding_plan(2), *batches))
        == late
        == {
            (0, "a"): 3,
            (0, "b"): 2,
            (0, OTHERS): 5,
        }
    )


def test_a_group_that_was_folded_stays_folded_in_the_entry_that_stands_for_all() -> None:
    plan = folding_plan(2)
    entries = entries_of(plan, [keys("a b c"), keys("c d"), keys("d c b a")])
    owner = make_folding(plan, merged={})
    for entry in entries[:2]:
        owner.absorb(entry)
    owner.committed(make_frontier({P0: 5}, None), owner.ledger(None))

    successor = make_folding(plan, merged={P0: 5})
    successor.absorb(owner.bases(Sequence64(2), {P0: 5})[0])
    successor.absorb(entries[2])

    assert closed(successor) == {(0, "a"): 2, (0, "b"): 2, (0, OTHERS): 5}


def test_a_successor_that_reads_the_same_log_folds_the_same_groups() -> None:
    chance = random.Random(3)
    batches = [keys(" ".join(chance.choices("abcdefghij", k=7))) for _ in range(9)]

    assert closed(fold(folding_plan(4), *batches)) == closed(fold(folding_plan(4), *batches))


def test_a_key_that_is_spelt_like_the_others_is_a_group_of_its_own() -> None:
    folding = fold(folding_plan(1), [(1, OTHERS), (1, "a"), (1, OTHERS)])

    (window,) = folding.state.close(folding.state.due(LAST_S * 1000))
    rows = [json.loads(value) for value in window.finished.values]
    assert [(row["k"], row["n"]) for row in rows] == [(OTHERS, 2), (OTHERS, 1)]
    assert window.finished.others == 1


#   pane        0          10         20
#   rows        a a b c    c a        a d      max_keys 2
#   own groups  a b        c a        a d
#   others      c 1
#   window 0-20: only pane 0 folds; of a, b and c only c may have rows among its others


def test_a_sliding_window_shows_only_groups_that_have_all_their_rows() -> None:
    rows = [(1, "a"), (1, "a"), (1, "b"), (1, "c"), (11, "c"), (11, "a"), (21, "a"), (21, "d")]

    assert closed(fold(folding_plan(2, SLIDING), rows)) == {
        (-10, "a"): 2,
        (-10, "b"): 1,
        (-10, OTHERS): 1,
        (0, "a"): 3,
        (0, "b"): 1,
        (0, OTHERS): 2,
        (10, "c"): 1,
        (10, "a"): 2,
        (10, OTHERS): 1,
        (20, "a"): 1,
        (20, "d"): 1,
    }


@pytest.mark.parametrize("window", [TUMBLING, SLIDING])
@pytest.mark.parametrize("seed", range(12))
def test_totals_are_exact_and_so_is_each_group_that_keeps_its_row(
    seed: int, window: Sliding
) -> None:
    chance = random.Random(seed)
    batches = [
        [(chance.randrange(60), chance.choice("abcdefgh")) for _ in range(chance.randrange(1, 9))]
        for _ in range(12)
    ]
    max_keys = chance.randrange(1, 8)
    found = closed(fold(folding_plan(max_keys, window), *batches))

    exact: Counter[tuple[int, str]] = Counter()
    for time_s, key in (row for batch in batches for row in batch):
        newest = time_s // 10 * 10
        exact.update((start, key) for start in range(newest, newest - window.size_ms // 1000, -10))
    assert _totals(found) == _totals(exact)
    own = {place: count for place, count in found.items() if place[1] != OTHERS}
    assert own == {place: exact[place] for place in own}
    assert max(Counter(start for start, _key in own).values()) <= max_keys


def _totals(rows: dict[tuple[int, str], int]) -> Counter[int]:
    totals: Counter[int] = Counter()
    for (start, _key), count in rows.items():
        totals[start] += count
    return totals


# ------------------------------------------------------------------------------------ failing


def test_one_group_too_many_fails_the_task_and_says_which_window_and_what_to_do() -> None:
    folding = fold(make_plan(max_keys=2), keys("a b"), [(12, "x"), (12, "y"), (12, "z")])
    assert closed(folding, 10) == {(0, "a"): 1, (0, "b"): 1}

    with pytest.raises(TaskLimit) as caught:
        closed(folding)

    for part in (
        "begins at 1970-01-01 00:00:10Z",
        "3 groups",
        "max_keys is 2",
        "over_max_keys 'fold'",
    ):
        assert part in str(caught.value)


def test_a_window_of_several_panes_fails_though_each_pane_is_within_the_limit() -> None:
    folding = fold(make_plan(window=SLIDING, max_keys=2), [(1, "a"), (1, "b"), (11, "c")])
    assert closed(folding, 10) == {(-10, "a"): 1, (-10, "b"): 1}

    with pytest.raises(TaskLimit, match=r"begins at 1970-01-01 00:00:00Z .* 3 groups"):
        closed(folding)


def test_a_window_far_over_the_limit_fails_before_it_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(panes_module, "MERGE_ROWS_MIN", 4)

    with pytest.raises(TaskLimit, match="5 groups"):
        fold(make_plan(max_keys=2), keys("a b c d e"))


def test_the_task_fails_alone() -> None:
    limited, free = make_task(name="limited", max_keys=2), make_task(name="free")
    world = World(limited, free)
    world.assign(dict.fromkeys(range(BUCKETS), "r1"))
    rows = [*keys("a b c"), (12, "a")]
    for name in ("limited", "free"):
        world.append(name, "0", 0, rows)
        world.append(name, "1", 0, rows)

    reducer = Reducer(world, "r1")
    reducer.run(3)

    assert list(reducer.failed) == ["limited"]
    assert world.emitted("free") == {(0, "a"): 2, (0, "b"): 2, (0, "c"): 2}
    assert world.emitted("limited") == {}


# ------------------------------------------------------------------------- one task of a bucket


def emitting(*batches: Sequence[RowSpec], max_keys: int) -> TaskInBucket:
    """A task that has read these batches and whose first window is due."""
    task = make_task(max_keys=max_keys, over_max_keys=OverMaxKeys.FOLD)
    part = TaskInBucket(task, OWNER, {}, SAVE_MS)
    entries = entries_of(task.plans[1], batches)
    offsets = {P0: sum(map(len, batches)), P1: 0}
    part.absorb(make_slice(*entries))
    part.drained(make_head(len(entries), offsets, mark_s=12))
    return part


def test_the_row_of_the_others_comes_last_with_a_header_that_says_so() -> None:
    prepared = emitting(keys("z b a c"), max_keys=2).prepare()

    own, others = prepared.results
    assert counts_of(own.values) == {(0, "z"): 1, (0, "b"): 1}
    assert counts_of(others.values) == {(0, OTHERS): 2}
    assert others.keys == [b'[0,"__other__"]']
    assert dict(others.headers)[result_headers.FOLDED] == b"1"
    assert result_headers.FOLDED not in dict(own.headers)


def test_folded_rows_are_counted_and_emitted_like_any_other() -> None:
    (record,) = (
        emitting(keys("a b c"), [(1, "c"), (1, ""), (12, "a")], max_keys=1).prepare().progress
    )

    ledger = record.ledger
    assert balanced(ledger)
    assert (ledger.read, ledger.counted, ledger.bad) == (6, 5, 1)
    assert (ledger.emitted, ledger.open) == (4, 1)
    assert record.emission is not None
    assert record.emission.count == 2
