"""Batches of lanes to one batch: what several calls of the kernel gave, as if it had been one.

    map_batch ──▶ Mapped ─┐
    map_batch ──▶ Mapped ─┼─ combine ──▶ Mapped: contiguous ranges joined, a partial per bucket
    map_batch ──▶ Mapped ─┘

Pure, like the kernel. The result does not depend on the order in which the pieces are given, nor
on the order in which they are combined, but for the rounding of floating-point sums and the order
of rows within a partial's states. The same pieces give the same bytes, in whatever order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mars.core.plan import Plan
from mars.core.types import (
    Bucket,
    Lane,
    Mapped,
    Numbers,
    PaneRows,
    Partial,
    Range,
    Reason,
    RejectedRange,
    RejectedRow,
    Rejections,
    RowCounts,
    RowNumbers,
)
from mars.engine.aggregates import merge
from mars.engine.codec.states import decode_states, encode_states
from mars.engine.decode.usable import NAMED_MAX


@dataclass(frozen=True, slots=True)
class Placed:
    """A partial with the ranges of the batch that it comes from."""

    ranges: tuple[Range, ...]
    partial: Partial


def combine(plan: Plan, pieces: Sequence[Mapped]) -> Mapped:
    """One batch of all ranges of the pieces.

    Raises ValueError where two pieces hold the same offsets, TaskLimit where a state outgrows its
    limit.
    """
    by_bucket: defaultdict[Bucket, list[Placed]] = defaultdict(list)
    for piece in pieces:
        for partial in piece.partials:
            by_bucket[partial.bucket].append(Placed(piece.ranges, partial))
    return Mapped(
        ranges=join_ranges(part for piece in pieces for part in piece.ranges),
        marks_ms=join_marks(piece.marks_ms for piece in pieces),
        partials=tuple(combine_partials(plan, by_bucket[bucket]) for bucket in sorted(by_bucket)),
        numbered=join_numbered(piece.numbered for piece in pieces),
    )


def join_numbered(pieces: Iterable[Mapping[Lane, RowNumbers]]) -> dict[Lane, RowNumbers]:
    """From the first row of a lane to its last."""
    joined: dict[Lane, RowNumbers] = {}
    for piece in pieces:
        for lane, part in piece.items():
            known = joined.get(lane, part)
            joined[lane] = RowNumbers(min(known.first, part.first), max(known.next, part.next))
    return dict(sorted(joined.items()))


def join_numbers(pieces: Iterable[Numbers]) -> dict[Lane, dict[int, int]]:
    """All that they say; of an offset the lowest number, for several may be parts of a message."""
    joined: defaultdict[Lane, dict[int, int]] = defaultdict(dict)
    for piece in pieces:
        for lane, below in piece.items():
            for offset, number in below.items():
                joined[lane][offset] = min(number, joined[lane].get(offset, number))
    return {lane: dict(sorted(joined[lane].items())) for lane in sorted(joined)}


def join_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The ranges in order of lanes and offsets, those that meet joined to one.

    Raises ValueError where two overlap: their rows would be counted twice.
    """
    joined: list[Range] = []
    for part in sorted(ranges, key=_place):
        before = joined[-1] if joined else None
        if before is None or before.lane != part.lane or before.next < part.first:
            joined.append(part)
        elif before.next == part.first:
            joined[-1] = Range(part.lane, before.first, part.next)
        else:
            raise ValueError(f"two batches hold the same offsets: {before} and {part}")
    return tuple(joined)


def join_marks(marks: Iterable[Mapping[Lane, int]]) -> dict[Lane, int]:
    """The highest mark of each lane."""
    highest: dict[Lane, int] = {}
    for one in marks:
        for lane, mark in one.items():
            highest[lane] = max(mark, highest.get(lane, mark))
    return dict(sorted(highest.items()))


def combine_partials(plan: Plan, pieces: Sequence[Placed]) -> Partial:
    """One partial of all those of a bucket; there is at least one.

    Raises TaskLimit where a state outgrows its limit.
    """
    ordered = [placed.partial for placed in sorted(pieces, key=lambda one: _places(one.ranges))]
    if len(ordered) == 1:
        return ordered[0]
    return Partial(
        bucket=ordered[0].bucket,
        counts=sum((one.counts for one in ordered), RowCounts()),
        panes=join_panes(pane for one in ordered for pane in one.panes),
        states=join_states(plan, [one.states for one in ordered if one.states]),
        rejections=_rejections([one.rejections for one in ordered]),
        numbers=join_numbers(one.numbers for one in ordered),
    )


def _place(part: Range) -> tuple[Lane, int, int]:
    return part.lane, part.first, part.next


def _places(ranges: Sequence[Range]) -> list[tuple[Lane, int, int]]:
    return sorted(map(_place, ranges))


def join_states(plan: Plan, pieces: Sequence[bytes]) -> bytes:
    """The states of all pieces, merged; none of them is empty.

    Raises TaskLimit where a state outgrows its limit.
    """
    if len(pieces) < 2:
        return pieces[0] if pieces else b""
    return encode_states(merge(plan, [decode_states(one) for one in pieces]))


def join_panes(panes: Iterable[PaneRows]) -> tuple[PaneRows, ...]:
    """The panes in order of time, those of one start as one."""
    rows: defaultdict[int, int] = defaultdict(int)
    firsts: defaultdict[int, dict[Lane, int]] = defaultdict(dict)
    for pane in panes:
        rows[pane.start_ms] += pane.rows
        lowest = firsts[pane.start_ms]
        for lane, first in pane.first.items():
            lowest[lane] = min(first, lowest.get(lane, first))
    return tuple(
        PaneRows(start, rows[start], dict(sorted(firsts[start].items()))) for start in sorted(rows)
    )


def rejected_for(reason: Reason, partials: Iterable[Partial]) -> tuple[RejectedRange, ...]:
    """The rows that are rejected for a reason, in one range per lane."""
    rejections = [one.rejections for one in partials if one.rejections != Rejections()]
    rows = [_range_of(row) for one in rejections for row in one.rows if row.reason is reason]
    ranges = [part for one in rejections for part in one.ranges if part.reason is reason]
    return _widened([*rows, *ranges])


def _rejections(pieces: Sequence[Rejections]) -> Rejections:
    """The first NAMED_MAX rows by name, all others in one range per lane and reason."""
    rows = sorted((row for one in pieces for row in one.rows), key=_place_of_row)
    unnamed = [_range_of(row) for row in rows[NAMED_MAX:]]
    ranges = _widened([*(part for one in pieces for part in one.ranges), *unnamed])
    return Rejections(tuple(rows[:NAMED_MAX]), ranges)


def _place_of_row(row: RejectedRow) -> tuple[Lane, int]:
    return row.lane, row.offset


def _range_of(row: RejectedRow) -> RejectedRange:
    return RejectedRange(row.lane, row.offset, row.offset + 1, row.reason, 1)


def _widened(ranges: Iterable[RejectedRange]) -> tuple[RejectedRange, ...]:
    widest: dict[tuple[Lane, str], RejectedRange] = {}
    for part in ranges:
        known = widest.get((part.lane, part.reason), part)
        first, after = min(known.first, part.first), max(known.next, part.next)
        rows = part.rows if known is part else known.rows + part.rows
        widest[part.lane, part.reason] = RejectedRange(part.lane, first, after, part.reason, rows)
    return tuple(widest[place] for place in sorted(widest))
