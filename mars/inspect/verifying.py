"""One finished window computed again from the rows that its results name, and compared with them.

    emitted rows ──headers──▶ ranges of each bucket ──cut──▶ pieces ──read, mapped──▶ states
         │                                                                              │ finish
         └───────────────────────── compare by key ◀── rows computed again ◀────────────┘

No log, no merge of batches in the store, no watermark has a part in it: only the kernel and the
finishing, over rows read in one go. A bucket that emitted nothing named no ranges; it is held to
what the others counted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType

import msgspec
import polars as pl

from mars.core.plan import WINDOW_FIRST_OFFSET, WINDOW_LAST_OFFSET, LatePolicy, Plan
from mars.core.types import Bucket, Lane, Mapped, Range, live_lane
from mars.core.windows import Window
from mars.core.windows.counting import number_of, partition_of
from mars.engine.aggregates import merge_panes, panes_of_window
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.protocol.ports import CommittedRow, Progress
from mars.protocol.windows.revising import owed_of

NAMED_MAX = 20
"""Differences that are named; more tell a person no more."""

RELATIVE = 1e-9
"""How far floats may be apart: sums of the same values in another order are."""

NEARLY_ZERO = 1e-12
"""Below this a relative difference says nothing: what is left where values cancel out."""

STATES_WAITING_MAX = 200_000
"""States of a bucket are merged once so many wait, so that memory is bounded by the groups."""

Spans = Mapping[Bucket, Mapping[Lane, Range]]
"""What each bucket counted, by lane."""

NO_CUTS: Mapping[Lane, Iterable[int]] = MappingProxyType({})


class Kind(StrEnum):
    """How an emitted row and the one computed again differ."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    DOUBLED = "doubled"


@dataclass(frozen=True, slots=True)
class Difference:
    """One group that does not agree; `key` and the rows are JSON, None where there is no row."""

    kind: Kind
    version: int
    bucket: Bucket
    key: bytes
    emitted: bytes | None
    recounted: bytes | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A range that is read once, for these buckets; rows in the `late` panes of one came too
    late.
    """

    part: Range
    buckets: frozenset[Bucket]
    late: Mapping[Bucket, frozenset[int]] = field(default_factory=dict)


def spans_of(
    plan: Plan, buckets: int, rows: Iterable[CommittedRow]
) -> dict[Bucket, dict[Lane, Range]]:
    """What each bucket counted, by the headers of its newest revision: what most of them say.

    Empty where the rows name no ranges.
    """
    said: defaultdict[Bucket, Counter[tuple[Range, ...]]] = defaultdict(Counter)
    newest: dict[Bucket, int] = {}
    for row in sorted(rows, key=lambda row: row.revision, reverse=True):
        if row.ranges and row.revision == newest.setdefault(row.bucket, row.revision):
            said[row.bucket][row.ranges] += 1
    spans = {
        bucket: {part.lane: part for part in votes.most_common(1)[0][0]}
        for bucket, votes in said.items()
    }
    if spans and not plan.single_bucket:
        common = common_of(spans)
        spans |= {bucket: common for bucket in map(Bucket, range(buckets)) if bucket not in spans}
    return spans


def spans_of_counted(
    plan: Plan, buckets: int, rows: Iterable[CommittedRow], window: Window
) -> dict[Bucket, dict[Lane, Range]]:
    """The same for a window that counts rows: from the first to the last offset of its groups.

    Raises ValueError for a row that does not name its own.
    """
    lane = live_lane(partition_of(window.start_ms))
    firsts, lasts, of = [], [], set()
    for row in rows:
        first, last = _offset_in(row, WINDOW_FIRST_OFFSET), last_offset_of(row)
        if first is None or last is None:
            raise ValueError("a row names no offsets")
        firsts.append(first)
        lasts.append(last)
        of.add(row.bucket)
    part = Range(lane, min(firsts), max(lasts) + 1)
    named = of if plan.single_bucket else set(map(Bucket, range(buckets))) | of
    return {bucket: {lane: part} for bucket in named}


def last_offset_of(row: CommittedRow) -> int | None:
    """The offset of the last row of a group whose window counts rows; None if it names none."""
    return _offset_in(row, WINDOW_LAST_OFFSET)


def _offset_in(row: CommittedRow, name: str) -> int | None:
    value = _decoded(row.value)
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, int) else None


def common_of(spans: Spans) -> dict[Lane, Range]:
    """What every bucket that names a lane has counted of it."""
    parts: defaultdict[Lane, list[Range]] = defaultdict(list)
    for own in spans.values():
        for lane, part in own.items():
            parts[lane].append(part)
    return {
        lane: Range(lane, min(one.first for one in own), min(one.next for one in own))
        for lane, own in parts.items()
    }


def pieces_of(spans: Spans, cuts: Mapping[Lane, Iterable[int]] = NO_CUTS) -> list[Piece]:
    """The ranges cut so that each piece belongs to some buckets wholly and to the others not, and
    none crosses one of the `cuts`.
    """
    pieces = []
    for lane in sorted({lane for own in spans.values() for lane in own}):
        parts = {bucket: own[lane] for bucket, own in spans.items() if lane in own}
        ends = {at for part in parts.values() for at in (part.first, part.next)}
        bounds = sorted({*ends, *cuts.get(lane, ())})
        for first, after in pairwise(bounds):
            inside = frozenset(
                bucket
                for bucket, part in parts.items()
                if part.first <= first and after <= part.next
            )
            if inside:
                pieces.append(Piece(Range(lane, first, after), inside))
    return pieces


def still_to_emit(
    records: Iterable[Progress], plan: Plan, spans: Spans, window: Window
) -> set[Bucket]:
    """The buckets that may have rows of a window still to emit, by the records of its version.

    Where windows are revised, each must have read what the spans hold: revisions come by M.
    """
    revises = plan.options.late is LatePolicy.REVISE
    done = set[Bucket]()
    for record in records:
        if record.version != plan.version or window in owed_of(plan, record):
            continue
        closed = _has_closed(record, window)
        has_read = _has_read(record, spans.get(record.bucket, {}))
        if (has_read and (closed or record.ledger.open == 0)) or (closed and not revises):
            done.add(record.bucket)
    return spans.keys() - done


def _has_closed(record: Progress, window: Window) -> bool:
    if record.rows is not None:
        lane = live_lane(partition_of(window.start_ms))
        return record.rows.closed.get(lane, 0) >= number_of(window.end_ms)
    return record.closed_ms is not None and record.closed_ms >= window.end_ms


def _has_read(record: Progress, own: Mapping[Lane, Range]) -> bool:
    return all(record.merged.get(lane, 0) >= part.next for lane, part in own.items())


class Recounted(ABC):
    """Takes what the kernel makes of pieces, and holds what it needs of their states."""

    def __init__(self, plan: Plan, waiting_max: int | None = None) -> None:
        self._plan = plan
        self._waiting_max = STATES_WAITING_MAX if waiting_max is None else waiting_max
        self._states: defaultdict[Bucket, list[pl.DataFrame]] = defaultdict(list)
        self._waiting: Counter[Bucket] = Counter()
        self.rows_read = 0
        self.rows_numbered = 0

    def add(self, mapped: Mapped, piece: Piece) -> None:
        """Take a batch of a piece. Raises TaskLimit where a state outgrows its limit."""
        for numbers in mapped.numbered.values():
            self.rows_numbered += numbers.next - numbers.first
        for partial in mapped.partials:
            self.rows_read += partial.counts.read
            if partial.bucket in piece.buckets and partial.states:
                states = decode_states(partial.states)
                self._keep(partial.bucket, self._own(partial.bucket, states, piece))

    def _keep(self, bucket: Bucket, own: pl.DataFrame) -> None:
        if own.is_empty():
            return
        self._states[bucket].append(own)
        self._waiting[bucket] += own.height
        if self._waiting[bucket] > self._waiting_max:
            self._states[bucket] = [self._merged(bucket)]
            self._waiting[bucket] = 0

    def _merged(self, bucket: Bucket) -> pl.DataFrame:
        return self._merge(bucket, pl.concat(self._states[bucket]))

    @abstractmethod
    def _own(self, bucket: Bucket, states: pl.DataFrame, piece: Piece) -> pl.DataFrame:
        """The states that count, of those of a bucket in a piece."""

    @abstractmethod
    def _merge(self, bucket: Bucket, states: pl.DataFrame) -> pl.DataFrame:
        """As few states of a bucket as say the same."""


class Recount(Recounted):
    """Finishes the rows of one window."""

    def __init__(self, plan: Plan, window: Window) -> None:
        super().__init__(plan)
        self._window = window

    def _own(self, bucket: Bucket, states: pl.DataFrame, piece: Piece) -> pl.DataFrame:
        del bucket, piece
        return panes_of_window(states, self._window)

    def _merge(self, bucket: Bucket, states: pl.DataFrame) -> pl.DataFrame:
        del bucket
        return merge_panes(self._plan, states, self._window)

    def rows(self) -> dict[bytes, tuple[Bucket, bytes]]:
        """Bucket and value of each row that is not withheld, by the row's key."""
        found = {}
        for bucket in self._states:
            finished = finish(self._plan, self._merged(bucket), self._window).sendable()
            for key, value in zip(finished.keys, finished.values, strict=True):
                found[key] = (bucket, value)
        return found


def compare(
    version: int,
    rows: Sequence[CommittedRow],
    recounted: Mapping[bytes, tuple[Bucket, bytes]],
    *,
    emits_changed: bool = False,
) -> list[Difference]:
    """All groups whose newest revision does not agree, in order of their keys.

    `emits_changed`: a window has not all groups, and those that it has are compared.
    """
    emitted: defaultdict[bytes, list[CommittedRow]] = defaultdict(list)
    for row in rows:
        emitted[row.key].append(row)
    found = [
        Difference(Kind.MISSING, version, bucket, key, None, value)
        for key, (bucket, value) in recounted.items()
        if key not in emitted and not emits_changed
    ]
    for key, own in emitted.items():
        value = recounted[key][1] if key in recounted else None
        for row, kind in _kinds(own, value):
            found.append(Difference(kind, version, row.bucket, key, row.value, value))
    return sorted(found, key=lambda each: each.key)


def _kinds(
    rows: Sequence[CommittedRow], recounted: bytes | None
) -> Iterator[tuple[CommittedRow, Kind]]:
    """What is wrong with the rows of one group: a revision that is there twice, or the newest."""
    seen: set[int] = set()
    newest = max(row.revision for row in rows)
    for row in rows:
        if row.revision in seen:
            yield row, Kind.DOUBLED
        elif row.revision == newest:
            kind = _kind(row, recounted)
            if kind is not None:
                yield row, kind
        seen.add(row.revision)


def _kind(row: CommittedRow, recounted: bytes | None) -> Kind | None:
    if row.deleted:
        return None if recounted is None else Kind.MISSING
    if recounted is None:
        return Kind.EXTRA
    return None if _agree(row.value, recounted) else Kind.DIFFERENT


def _agree(one: bytes, other: bytes) -> bool:
    if one == other:
        return True
    left, right = _decoded(one), _decoded(other)
    if not isinstance(left, dict) or not isinstance(right, dict):
        return left == right
    return left.keys() == right.keys() and all(_close(left[name], right[name]) for name in left)


def _close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=NEARLY_ZERO)
    return type(one) is type(other) and one == other


def _decoded(value: bytes) -> object:
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return value  # no JSON, no UTF-8, or too deep
