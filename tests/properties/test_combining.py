"""Batches that are cut, mapped and combined against the same rows mapped at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.plan import Plan
from mars.core.types import Lane, Mapped, Range, Records, RowCounts
from mars.engine.codec.states import decode_states
from mars.engine.combining import combine
from mars.engine.decode.usable import NAMED_MAX
from mars.engine.kernel import decode, map_batch
from tests.properties.test_kernel import MESSAGES, Sent, counts_of, groups_of, plans
from tests.unit.codec.samples import JSON, NAME, plan_of, records, row

QUICK = settings(max_examples=60)
BUCKETS = 3
LANES = ("0", "1@b1", "f@b2")


def mapped(plan: Plan, batch: Records) -> Mapped:
    return map_batch(plan, BUCKETS, decode(JSON, plan.fields, batch))


def cut(plan: Plan, sent: Sequence[Sent], lane: str, cuts: Sequence[int]) -> list[Mapped]:
    """The batches of a lane, cut at these places."""
    bounds = [0, *sorted(min(at, len(sent)) for at in cuts), len(sent)]
    return [
        mapped(
            plan,
            records(
                [one.value for one in sent[first:after]],
                first,
                lane=lane,
                timestamps_ms=[one.stamp for one in sent[first:after]],
            ),
        )
        for first, after in pairwise(bounds)
        if first < after
    ]


ROWS = st.lists(MESSAGES, max_size=20)
CUTS = st.lists(st.integers(0, 20), max_size=3)


@st.composite
def pieces(draw: st.DrawFn) -> tuple[Plan, list[Mapped], list[Mapped]]:
    """A plan, batches of some lanes, and the same rows in one batch per lane."""
    plan = draw(plans())
    parts: list[Mapped] = []
    whole: list[Mapped] = []
    for lane in draw(st.lists(st.sampled_from(LANES), min_size=1, unique=True)):
        sent = draw(ROWS)
        parts += cut(plan, sent, lane, draw(CUTS))
        whole += cut(plan, sent, lane, ())
    return plan, parts, whole


def canonical(plan: Plan, one: Mapped) -> Mapped:
    """The same with the rows of each partial's states in order."""
    return replace(
        one, partials=tuple(replace(part, states=in_order(part.states)) for part in one.partials)
    )


def in_order(states: bytes) -> bytes:
    frame = decode_states(states)
    ordered = frame.sort(pl.all(), nulls_last=True) if frame.width else frame
    return repr(ordered.rows()).encode()


def pane_rows(results: Sequence[Mapped]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for one in results:
        for part in one.partials:
            for pane in part.panes:
                found[part.bucket, pane.start_ms] += pane.rows
    return found


@QUICK
@given(pieces())
def test_combined_batches_equal_the_whole(case: tuple[Plan, list[Mapped], list[Mapped]]) -> None:
    plan, parts, whole = case
    one = combine(plan, parts)
    assert groups_of(plan, [one]) == groups_of(plan, whole)
    assert counts_of([one]) == counts_of(whole)
    assert pane_rows([one]) == pane_rows(whole)
    assert one.ranges == tuple(sorted((r for w in whole for r in w.ranges), key=lambda r: r.lane))
    assert one.marks_ms == {lane: mark for w in whole for lane, mark in w.marks_ms.items()}
    buckets = [part.bucket for part in one.partials]
    assert buckets == sorted(set(buckets))


@QUICK
@given(pieces())
def test_firsts_are_the_lowest_of_the_batches_that_hold_rows_of_a_pane(
    case: tuple[Plan, list[Mapped], list[Mapped]],
) -> None:
    plan, parts, _whole = case
    lowest: dict[tuple[int, int, Lane], int] = {}
    for one in parts:
        for part in one.partials:
            for pane in part.panes:
                for lane, first in pane.first.items():
                    place = (part.bucket, pane.start_ms, lane)
                    lowest[place] = min(first, lowest.get(place, first))
    found = {
        (part.bucket, pane.start_ms, lane): first
        for part in combine(plan, parts).partials
        for pane in part.panes
        for lane, first in pane.first.items()
    }
    assert found == lowest


@QUICK
@given(pieces(), st.integers(0, 6), st.integers(0, 6))
def test_combining_is_associative(
    case: tuple[Plan, list[Mapped], list[Mapped]], left: int, right: int
) -> None:
    plan, parts, _whole = case
    at_once = canonical(plan, combine(plan, parts))
    from_left = combine(plan, [combine(plan, parts[:left]), *parts[left:]])
    from_right = combine(plan, [*parts[:right], combine(plan, parts[right:])])
    assert canonical(plan, from_left) == at_once
    assert canonical(plan, from_right) == at_once


@QUICK
@given(pieces(), st.randoms(use_true_random=False))
def test_the_order_of_the_batches_makes_no_difference_at_all(
    case: tuple[Plan, list[Mapped], list[Mapped]], chance: random.Random
) -> None:
    plan, parts, _whole = case
    shuffled = list(parts)
    chance.shuffle(shuffled)
    assert combine(plan, shuffled) == combine(plan, parts)


def test_references_stay_few_and_none_is_lost() -> None:
    plan = plan_of(NAME)
    parts = [mapped(plan, records([b"{"] * 80, first, lane="0")) for first in (0, 80, 160)]
    (partial,) = combine(plan, parts).partials
    assert partial.counts == RowCounts(bad=240)
    assert [one.offset for one in partial.rejections.rows] == list(range(NAMED_MAX))
    (rest,) = partial.rejections.ranges
    assert (rest.first, rest.next, rest.rows) == (NAMED_MAX, 240, 140)


def test_a_gap_between_batches_stays_a_gap() -> None:
    plan = plan_of(NAME)
    parts = [mapped(plan, records([row(at=1, name="a")], first)) for first in (4, 0)]
    lane = Lane("0")
    assert combine(plan, parts).ranges == (Range(lane, 0, 1), Range(lane, 4, 5))


def test_the_same_offsets_twice_are_refused() -> None:
    plan = plan_of(NAME)
    one = mapped(plan, records([row(at=1, name="a")] * 3, 5))
    with pytest.raises(ValueError, match="the same offsets"):
        combine(plan, [one, one])


def test_nothing_combined_is_an_empty_batch() -> None:
    assert combine(plan_of(NAME), []) == Mapped((), {}, ())
