"""Batches of several lanes that are mapped at once, against each lane mapped alone and combined."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.plan import Plan
from mars.core.types import Lane, Mapped, Records
from mars.engine.combining import combine
from mars.engine.decode.lanes import side_by_side
from mars.engine.kernel import decode, map_batch
from tests.properties.test_combining import BUCKETS
from tests.properties.test_kernel import FILTER, MESSAGES, Sent, counts_of, groups_of, plans
from tests.unit.codec.samples import JSON, NAME, plan_of, records, row

LANES = ("0", "1", "10", "2")

ROWS = st.lists(MESSAGES, min_size=1, max_size=8)


def mapped(plan: Plan, batch: Records) -> Mapped:
    return map_batch(plan, BUCKETS, decode(JSON, plan.fields, batch))


def records_of(lane: str, sent: list[Sent], first: int) -> Records:
    values, stamps = [one.value for one in sent], [one.stamp for one in sent]
    return records(values, first, lane=lane, timestamps_ms=stamps)


@st.composite
def sent_by_lane(draw: st.DrawFn) -> list[Records]:
    """Records of one to four lanes, in any order of lanes."""
    lanes = draw(st.permutations(LANES))[: draw(st.integers(1, len(LANES)))]
    return [records_of(lane, draw(ROWS), draw(st.integers(0, 5))) for lane in lanes]


@settings(max_examples=200)
@given(plans(), sent_by_lane())
def test_lanes_side_by_side_give_what_each_gives_alone(plan: Plan, pieces: list[Records]) -> None:
    at_once = mapped(plan, side_by_side(pieces))
    apart = combine(plan, [mapped(plan, piece) for piece in pieces])
    assert at_once.ranges == apart.ranges
    assert at_once.marks_ms == apart.marks_ms
    assert groups_of(plan, [at_once]) == groups_of(plan, [apart])
    assert counts_of([at_once]) == counts_of([apart])
    for own, other in zip(at_once.partials, apart.partials, strict=True):
        assert (own.bucket, own.counts) == (other.bucket, other.counts)
        assert own.rejections.rows == other.rejections.rows
        assert own.rejections.ranges == other.rejections.ranges
        assert [(one.start_ms, one.rows) for one in own.panes] == [
            (one.start_ms, one.rows) for one in other.panes
        ]
        for pane, alone in zip(own.panes, other.panes, strict=True):
            assert all(pane.first[lane] <= first for lane, first in alone.first.items())
            assert pane.first.keys() <= lanes_of(pane.start_ms, apart)


def lanes_of(start_ms: int, batch: Mapped) -> set[Lane]:
    """The lanes that have rows in a pane, in any bucket."""
    panes = [pane for partial in batch.partials for pane in partial.panes]
    return {lane for pane in panes if pane.start_ms == start_ms for lane in pane.first}


def test_the_rest_of_each_lane_is_in_the_bucket_of_that_lane() -> None:
    plan = plan_of(NAME, fields=["at", "name", "size"], filter_=FILTER)
    left_out = row(at=1, name="a", size=3)
    pieces = [records([left_out], 7, lane="1"), records([left_out, b"no row"], 3, lane="3")]
    found = mapped(plan, side_by_side(pieces))
    rest = {one.bucket: (one.counts.filtered, one.counts.bad) for one in found.partials}
    assert rest == {1 % BUCKETS: (1, 0), 3 % BUCKETS: (1, 1)}
    (bad,) = [one for partial in found.partials for one in partial.rejections.rows]
    assert (bad.lane, bad.offset) == ("3", 4)


def test_one_lane_alone_is_as_it_was() -> None:
    piece = records([row()], lane="1")
    assert side_by_side([piece]) == piece
    assert replace(piece, several=None) == piece
