"""Windows that count the rows of each key computed again: all of a partition at once.

    records ──M, C──▶ rows of a partition, from where the version begins to M ──▶ all its windows
    rows ──▶ those that are known to be at hand, compared by key

With which row a window begins hangs on all rows of its key before it, and C, M and the rows say
everything (decision 59). So what a bucket has emitted by its record is known, and no less is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from mars.core.definitions import TaskVersion
from mars.core.plan import Plan
from mars.core.types import Bucket, Range, live_lane
from mars.core.windows.counting import LANE_PLACES
from mars.engine.aggregates import FIRST_OFFSET, LAST_OFFSET, PANE, KeyWindows, key_windows
from mars.engine.finishing import EACH_ITS_OWN, finish
from mars.inspect.verifying import Piece, Recounted, last_offset_of
from mars.protocol.ports import CommittedRow, Progress, RecentRows

ROWS_WAITING_MAX = 1_000_000
"""Windows are looked for once about so many rows wait: each is a state, of some 100 bytes."""

Records = Mapping[Bucket, Progress]
"""The records of a version whose windows count the rows of each key."""


@dataclass(frozen=True, slots=True)
class AtHand:
    """Of which windows all results are at hand: all of `whole` buckets, and of others those that
    are full and end after an offset of a partition.
    """

    whole: frozenset[Bucket] = frozenset()
    after: Mapping[Bucket, Mapping[int, int]] = field(default_factory=dict)

    def full(self, bucket: Bucket) -> pl.Expr:
        """Which of the full windows of a bucket these are."""
        if bucket in self.whole:
            return pl.lit(value=True)
        after = self.after.get(bucket, {})
        last, known = pl.col(LAST_OFFSET), list(after)
        partition = pl.col(PANE) // LANE_PLACES
        first = partition.replace_strict(
            known, [after[one] for one in known], default=None, return_dtype=pl.Int64
        )
        return (last > first).fill_null(value=False)

    def unfilled(self, bucket: Bucket) -> pl.Expr:
        """Which of those that silent keys have left: when these came, offsets do not tell."""
        return pl.lit(bucket in self.whole)


def at_hand(found: RecentRows, version: int, records: Records) -> AtHand:
    """The same where these are the newest rows of a task.

    A full window comes with the first commit whose M is behind its last row, and rows of a commit
    lie in no order. So of a bucket's first commit here some rows may lie further back; of windows
    that end after one of a later commit none do.
    """
    by_bucket: defaultdict[Bucket, list[CommittedRow]] = defaultdict(list)
    for row in found.rows:
        if row.version == version:
            by_bucket[row.bucket].append(row)
    # Nothing has gone by age where a partition still has its first row.
    uncut = {row.partition for row in found.rows if row.offset == 0} - found.cut
    whole, after = set[Bucket](), dict[Bucket, dict[int, int]]()
    for bucket, record in records.items():
        own = by_bucket.get(bucket, [])
        if (own and own[0].partition in uncut) or (not own and record.emission is None):
            whole.add(bucket)
        elif own:
            after[bucket] = _after(own)
    return AtHand(frozenset(whole), after)


def _after(rows: Sequence[CommittedRow]) -> dict[int, int]:
    """By partition the lowest end of a full window that did not come with the first commit."""
    first, lowest = min(row.emit for row in rows), dict[int, int]()
    for row in rows:
        name, last = row.numbered, last_offset_of(row)
        if row.complete and row.emit > first and name is not None and last is not None:
            lowest[name.partition] = min(last, lowest.get(name.partition, last))
    return lowest


def pieces_of_keys(
    version: TaskVersion, records: Records, partitions: Iterable[int], buckets: Iterable[Bucket]
) -> list[Piece]:
    """What is read of some partitions: all rows of the version that some bucket has accounted."""
    wanted, pieces = frozenset(buckets), []
    for partition in sorted(partitions):
        lane = live_lane(partition)
        first = (version.starts or {}).get(lane, 0)
        after = max((records[one].merged.get(lane, 0) for one in wanted), default=0)
        if first < after:
            pieces.append(Piece(Range(lane, first, after), wanted))
    return pieces


class KeyRecount(Recounted):
    """Finishes what the buckets have emitted by their records: windows that begin at one of the
    `places`, and others whose results would be at hand.
    """

    def __init__(self, plan: Plan, records: Records, places: Iterable[int], known: AtHand) -> None:
        super().__init__(plan, ROWS_WAITING_MAX // max(1, len(records)))
        self._records = records
        self._named = pl.col(PANE).is_in(sorted(set(places)))
        self._known = known
        self._closed: dict[tuple[Bucket, bool], list[pl.DataFrame]] = {}

    def _own(self, bucket: Bucket, states: pl.DataFrame, piece: Piece) -> pl.DataFrame:
        merged = self._records[bucket].merged.get(piece.part.lane, 0)
        return states.filter(pl.col(FIRST_OFFSET) < merged)

    def _merge(self, bucket: Bucket, states: pl.DataFrame) -> pl.DataFrame:
        """What waits: no life is over before the next row of its key, or all, are read."""
        return self._windows(bucket, states, {}).open

    def _windows(self, bucket: Bucket, states: pl.DataFrame, seen: Mapping[int, int]) -> KeyWindows:
        found = key_windows(self._plan, states, seen)
        for full, part, known in (
            (True, found.full, self._known.full(bucket)),
            (False, found.unfilled, self._known.unfilled(bucket)),
        ):
            kept = part.filter(self._named | known)
            if kept.height:
                self._closed.setdefault((bucket, full), []).append(kept)
        return found

    def rows(self) -> tuple[dict[bytes, tuple[Bucket, bytes]], set[bytes]]:
        """Bucket and value of each window that is not withheld, by the key of its row; the keys of
        those that are full.
        """
        for bucket, waiting in self._states.items():
            rows = self._records[bucket].rows
            closed = {} if rows is None else rows.closed
            seen = {int(lane): at for lane, at in closed.items()}  # no history is counted
            self._windows(bucket, pl.concat(waiting), seen)
        self._states.clear()
        computed: dict[bytes, tuple[Bucket, bytes]] = {}
        whole: set[bytes] = set()
        for (bucket, full), parts in self._closed.items():
            finished = finish(self._plan, pl.concat(parts), EACH_ITS_OWN).sendable()
            whole.update(finished.keys if full else ())
            for key, value in zip(finished.keys, finished.values, strict=True):
                computed[key] = (bucket, value)
        return computed, whole
