"""Finished sessions computed again: all of a bucket at once, for a row may be of any of them.

    emitted rows ──headers──▶ one range a bucket and lane ──▶ pieces ──read──▶ panes without late
    rows ──▶ sessions ──▶ compared by key; what nobody emitted is missing if it is none of a part

Which rows came too late for a session that was open their offsets do not tell, but `mars.dead`
does: C never goes back, so from the first late row of a pane on all rows of the lane in it are
late, and all those before were in time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from mars.core.plan import Plan
from mars.core.types import Bucket, Lane, Range, live_lane
from mars.engine.aggregates import PANE, Sessions, merge, sessions_of
from mars.engine.finishing import EACH_ITS_OWN, finish
from mars.inspect.verifying import Piece, Recounted, Spans, common_of, pieces_of
from mars.protocol.ports import CommittedRow, DeadLetter, Progress, window_of_row
from mars.protocol.windows.input import LATE_WINDOWS_NAMED_MAX

Place = tuple[int, Bucket]
"""A version and a bucket."""


@dataclass(slots=True)
class LateRows:
    """From which offset of a lane on rows of a bucket in a pane came too late, of one version.

    `named` rows are known so.
    """

    firsts: dict[tuple[Bucket, Lane], dict[int, int]] = field(default_factory=dict)
    named: int = 0

    def cuts(self) -> dict[Lane, set[int]]:
        """The offsets of each lane at which something begins to be late."""
        found: defaultdict[Lane, set[int]] = defaultdict(set)
        for (_bucket, lane), firsts in self.firsts.items():
            found[lane] |= set(firsts.values())
        return found

    def panes(self, bucket: Bucket, part: Range) -> frozenset[int]:
        """Those of which all rows of a bucket in a range were late."""
        firsts = self.firsts.get((bucket, part.lane), {})
        return frozenset(pane for pane, first in firsts.items() if first <= part.first)


def late_rows_of(version: int, letters: Iterable[DeadLetter]) -> LateRows:
    """What references say of the late rows of a version. Where a batch had more late panes than are
    named, its rows do not count as named.
    """
    found = LateRows()
    batches: Counter[tuple[Bucket, Lane, int]] = Counter()
    for letter in letters:
        lane = letter.lane
        if lane is None and letter.partition is not None:
            lane = live_lane(letter.partition)
        pane = letter.window_start_ms
        if letter.version != version or letter.bucket is None or lane is None or pane is None:
            continue
        firsts = found.firsts.setdefault((letter.bucket, lane), {})
        firsts[pane] = min(letter.first, firsts.get(pane, letter.first))
        batches[letter.bucket, lane, letter.first] += 1
        if batches[letter.bucket, lane, letter.first] < LATE_WINDOWS_NAMED_MAX:
            found.named += letter.rows
    return found


def pieces_without(spans: Spans, late: LateRows) -> list[Piece]:
    """What is read again, and which panes of it are left out."""
    return [
        Piece(
            piece.part, piece.buckets, {one: late.panes(one, piece.part) for one in piece.buckets}
        )
        for piece in pieces_of(spans, late.cuts())
    ]


def spans_of_sessions(
    rows: Iterable[CommittedRow], merged: Mapping[Bucket, Mapping[Lane, int]]
) -> dict[Bucket, dict[Lane, Range]]:
    """From the first to the last offset that any of these rows of a bucket was counted from.

    Of a lane that no row names a bucket is held to what the others counted, as far as it is
    `merged`.
    """
    spans: defaultdict[Bucket, dict[Lane, Range]] = defaultdict(dict)
    for row in rows:
        own = spans[row.bucket]
        for part in row.ranges:
            known = own.get(part.lane, part)
            first, after = min(known.first, part.first), max(known.next, part.next)
            own[part.lane] = Range(part.lane, first, after)
    common = common_of(spans)
    for bucket, ends in merged.items():
        for lane, part in common.items():
            after = min(part.next, ends.get(lane, 0))
            if lane not in spans[bucket] and part.first < after:
                spans[bucket][lane] = Range(lane, part.first, after)
    return dict(spans)


class SessionRecount(Recounted):
    """Finishes all sessions of the rows of one version that it was given."""

    def _own(self, bucket: Bucket, states: pl.DataFrame, piece: Piece) -> pl.DataFrame:
        late = piece.late.get(bucket)
        return states.filter(~pl.col(PANE).is_in(list(late))) if late else states

    def _merge(self, bucket: Bucket, states: pl.DataFrame) -> pl.DataFrame:
        del bucket
        return merge(self._plan, [states])

    def rows(self) -> dict[bytes, tuple[Bucket, bytes]]:
        """Bucket and value of each session that is not withheld, by the key of its row."""
        return {
            key: (bucket, value)
            for bucket in self._states
            for key, value in session_rows(
                self._plan, sessions_of(self._plan, [self._merged(bucket)])
            )
        }


def session_rows(plan: Plan, found: Sessions) -> Iterable[tuple[bytes, bytes]]:
    """Keys and values of sessions."""
    finished = finish(plan, found.merged(plan), EACH_ITS_OWN).sendable()
    return zip(finished.keys, finished.values, strict=True)


@dataclass(frozen=True, slots=True)
class EndsKnown:
    """Of which sessions all results are at hand: those of a bucket that end in a span.

    Where a bucket is not named that is known of none.
    """

    after_ms: Mapping[Place, float]
    upto_ms: Mapping[Place, int]

    def hold(self, place: Place, end_ms: int) -> bool:
        """Whether results of all sessions of a bucket are at hand that end then."""
        after_ms, upto_ms = self.after_ms.get(place), self.upto_ms.get(place)
        return after_ms is not None and upto_ms is not None and after_ms < end_ms <= upto_ms


def ends_known(
    rows: Sequence[CommittedRow],
    cut: frozenset[int],
    records: Iterable[Progress],
    left_out_ms: float,
) -> EndsKnown:
    """The same where these are the newest rows, `cut` are the partitions that have older ones, and
    sessions that end up to `left_out_ms` are left out.

    A commit emits what ends after the C before it, in no order. So of a bucket's first commit here
    some rows may lie further back, and of all later ones none.
    """
    by_place: defaultdict[Place, list[CommittedRow]] = defaultdict(list)
    for row in rows:
        by_place[row.version, row.bucket].append(row)
    # Nothing has gone by age where a partition still has its first row.
    whole = {row.partition for row in rows if row.offset == 0} - cut
    after_ms: dict[Place, float] = {}
    upto_ms: dict[Place, int] = {}
    for record in records:
        place = record.version, record.bucket
        if record.closed_ms is None:
            continue
        upto_ms[place] = record.closed_ms
        own = by_place.get(place, [])
        if (own and own[0].partition in whole) or (not own and record.emission is None):
            after_ms[place] = left_out_ms
        elif own:
            first = min(row.emit for row in own)
            ends = [row.window.end_ms for row in own if row.emit > first]
            if ends:
                after_ms[place] = max(left_out_ms, min(ends) - 1)
    return EndsKnown(after_ms, upto_ms)


def covered(key: bytes, value: bytes, others: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a session is a part of another one of its group."""
    group, start_ms = _group(key), window_of_row(key, value).start_ms
    windows = (window_of_row(*other) for other in others if _group(other[0]) == group)
    return any(window.start_ms <= start_ms < window.end_ms for window in windows)


def _group(key: bytes) -> bytes:
    """The key of a result without when its window begins: as text, which Mars alone writes."""
    return key.partition(b",")[2]
