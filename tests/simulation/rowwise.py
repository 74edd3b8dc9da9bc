"""The kernel row by row, for the queries of `rows`: a few rows cost it what polars takes to plan.

A simulated run maps some hundred batches of one to ten rows; half of its time went into starting
polars for them. What stands here gives the same bytes for the plans of these queries
(`test_rowwise` compares them), and hands every other plan to the kernel itself.
"""

from __future__ import annotations

import json
import math
import struct
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from types import MappingProxyType, ModuleType

import polars as pl
import xxhash

import mars.adapters.memory.bulk
import mars.engine.combining
import mars.engine.decode.parts
import mars.engine.kernel
import mars.protocol.windows.pane_commits
import mars.protocol.windows.pane_state
from mars.core.definitions import TaskVersion
from mars.core.plan import Expression, Field, Plan, Stream
from mars.core.types import (
    Bucket,
    Lane,
    Mapped,
    PaneRows,
    Partial,
    Reason,
    Records,
    RejectedRow,
    Rejections,
    RowCounts,
    TaskName,
    live_lane,
)
from mars.core.windows import Window
from mars.engine import finishing, kernel
from mars.engine.aggregates import OTHERS, PANE, others, states
from mars.engine.codec.canonical import bucket_of_lane, bucket_of_task
from mars.engine.codec.states import PLAIN_BYTES_MAX, encode_states
from mars.engine.decode import messages
from mars.engine.decode.decoded import PAYLOAD_BYTES_MAX
from mars.engine.decode.too_many import UNLIMITED
from mars.engine.decode.usable import NAMED_MAX
from mars.engine.finishing import Finished
from mars.process.compiling import compile_version
from mars.protocol.windows import panes
from tests.simulation.rows import FILTERED, LANDMARK, STREAM, TUMBLING, Query

REMEMBERED = 4_096
"""Rows and states that are kept as they were read: several processes read the same."""

ALIGNMENT = 64
"""Bytes; so polars aligns the columns of a stream."""

INLINE_MAX = 12
"""Bytes of a text that need no place of their own in Arrow's views."""

END = b"\xff\xff\xff\xff\0\0\0\0"
"""How a stream ends."""

Group = tuple[int, str, bool, int, int]
"""Pane, key, whether it is the group of all others, count, sum."""


# ---------------------------------------------------------------------------------- the plans


@cache
def _plan_of(query: Query) -> Plan:
    version = TaskVersion(1, query.sql, query.options, STREAM, "id", 0, None)
    return compile_version(TaskName("any"), version, "default")


@cache
def _filters() -> Sequence[tuple[Expression | None, Query]]:
    return [(_plan_of(query).filter, query) for query in (TUMBLING, FILTERED, LANDMARK)]


PLANS_KEPT = 1_000

_known: dict[int, tuple[Plan, bool]] = {}
"""By the plan's id, with the plan, so that no other one gets its id: to hash one takes longer."""


def is_known(plan: Plan) -> bool:
    """Whether a plan is one of a query of `rows`, whatever its window and its limit."""
    if id(plan) not in _known:
        if len(_known) == PLANS_KEPT:
            _known.clear()
        _known[id(plan)] = plan, _is_known(plan)
    return _known[id(plan)][1]


def _is_known(plan: Plan) -> bool:
    model = _plan_of(TUMBLING)
    return (
        plan.aggregates == model.aggregates
        and plan.keys == model.keys
        and plan.outputs == model.outputs
        and plan.having is None
        and not plan.order_by
        and plan.limit is None
        and any(plan.filter == known for known, _query in _filters())
    )


def _query_of(plan: Plan) -> Query:
    return next(query for known, query in _filters() if plan.filter == known)


# ------------------------------------------------------------------------------------- decode


@dataclass(frozen=True, eq=False)
class Raw:
    """Messages that each plan reads for itself: what `Decoded` is to the kernel."""

    stream: Stream
    fields: tuple[Field, ...]
    records: Records

    @cached_property
    def decoded(self) -> kernel.Decoded:
        """For the kernel."""
        return messages.decode(self.stream, self.fields, self.records)

    def holds(self, fields: tuple[Field, ...]) -> bool:
        """Each plan reads what it needs of the messages."""
        return set(fields) <= set(self.stream.fields)

    def from_offset(self, offset: int) -> Raw:
        """The rows at or after an offset; the range then begins there."""
        first = max(offset, self.records.first)
        return self._slice(first, max(first, self.records.next))

    def until(self, offset: int) -> Raw:
        """The rows before an offset; the range then ends there."""
        next_ = min(offset, self.records.next)
        return self._slice(min(self.records.first, next_), next_)

    def _slice(self, first: int, next_: int) -> Raw:
        whole = self.records
        begin, end = bisect_left(whole.offsets, first), bisect_left(whole.offsets, next_)
        part = slice(begin, end)
        given = whole.values[part], whole.offsets[part], whole.timestamps_ms[part]
        return replace(self, records=Records(whole.lane, first, next_, *given))


def decode(
    stream: Stream, fields: tuple[Field, ...], records: Records, rows_max: int = UNLIMITED
) -> Raw:
    """`decode` of messages; no batch of a run has as many rows as are decoded at once."""
    assert len(records.values) <= rows_max
    return Raw(stream, fields, records)


"""In place of the function that makes columns of messages."""


@lru_cache(REMEMBERED)
def _row(value: bytes) -> tuple[int, str, int] | None:
    """Time, key and value; None for what is no JSON."""
    try:
        row = json.loads(value)
    except ValueError:
        return None
    return row["ts"], row["k"], row["v"]


@lru_cache(REMEMBERED)
def _refusal(value: bytes) -> tuple[Reason, str]:
    """What the codec says of a message that cannot be read."""
    fields = _plan_of(TUMBLING).fields
    bad = messages.decode(STREAM, fields, Records(live_lane(0), 0, 1, [value], [0], [-1]))
    return bad.unreadable[0].reason, bad.unreadable[0].detail


# ---------------------------------------------------------------------------------------- map


_by_columns = kernel.map_many


def map_many(
    plans: Iterable[Plan],
    buckets: int,
    given: Raw | kernel.Decoded,
    numbers: Mapping[TaskName, int] = MappingProxyType({}),
) -> kernel.Answers:
    """`mars.engine.kernel.map_many`."""
    plans = list(plans)
    known = [plan for plan in plans if is_known(plan)]
    answers: kernel.Answers = {
        plan.task: _Batch(plan, buckets, given.records).mapped() for plan in known
    }
    if len(known) == len(plans):
        return answers
    decoded = given.decoded if isinstance(given, Raw) else given
    others = [plan for plan in plans if plan not in known]
    return answers | _by_columns(others, buckets, decoded, numbers)


class _Batch:
    """One batch on its way through a plan."""

    def __init__(self, plan: Plan, buckets: int, records: Records) -> None:
        self._plan = plan
        self._buckets = buckets
        self._records = records
        self._bad: dict[Lane, list[RejectedRow]] = {part.lane: [] for part in records.ranges}
        self._filtered: Counter[Lane] = Counter()
        self._marks_ms: dict[Lane, int] = {}
        self._lanes: defaultdict[int, set[Lane]] = defaultdict(set)
        self._sums: dict[tuple[int, str], tuple[int, int]] = {}

    def mapped(self) -> Mapped:
        """What the batch adds to the task."""
        self._read()
        partials = {bucket: self._partial(bucket, rows) for bucket, rows in self._by_bucket()}
        for lane, bad in self._bad.items():
            rest = RowCounts(filtered=self._filtered[lane], bad=len(bad))
            if rest.read:
                home = self._home(lane)
                own = partials.get(home, Partial(home, RowCounts(), (), b""))
                named = Rejections((*own.rejections.rows, *bad))
                partials[home] = replace(own, counts=own.counts + rest, rejections=named)
        return Mapped(
            ranges=self._records.ranges,
            marks_ms=self._marks_ms,
            partials=tuple(partials[bucket] for bucket in sorted(partials)),
        )

    def _read(self) -> None:
        records, query, pane_ms = self._records, _query_of(self._plan), self._plan.window.pane_ms
        rows = zip(records.offsets, records.values, records.timestamps_ms, strict=True)
        for number, (offset, value, stamp_ms) in enumerate(rows):
            assert value is not None, "no tombstones here"
            lane = records.lane_of(number)
            row = _row(value)
            if row is None:
                payload = value[:PAYLOAD_BYTES_MAX]
                self._bad[lane].append(RejectedRow(lane, offset, *_refusal(value), payload))
                continue
            time_ms, key, amount = row
            ahead_ms = time_ms - stamp_ms if stamp_ms >= 0 else 0
            assert ahead_ms <= self._plan.options.future_limit_ms, "no rows of the future here"
            self._marks_ms[lane] = max(time_ms, self._marks_ms.get(lane, time_ms))
            if not query.takes(amount, time_ms):
                self._filtered[lane] += 1
                continue
            place = time_ms // pane_ms * pane_ms, key
            self._lanes[place[0]].add(lane)
            count, total = self._sums.get(place, (0, 0))
            self._sums[place] = count + 1, total + amount
        assert sum(map(len, self._bad.values())) <= NAMED_MAX, "each bad row is named"

    def _by_bucket(self) -> list[tuple[Bucket, list[Group]]]:
        found: defaultdict[Bucket, list[Group]] = defaultdict(list)
        for (pane, key), sums in self._sums.items():
            found[self._owner(key)].append((pane, key, False, *sums))
        return sorted(found.items())

    def _owner(self, key: str) -> Bucket:
        if self._plan.single_bucket:
            return bucket_of_task(self._plan.task, self._buckets)
        return _bucket_of_key(self._plan.task, key, self._buckets)

    def _home(self, lane: Lane) -> Bucket:
        if self._plan.single_bucket:
            return bucket_of_task(self._plan.task, self._buckets)
        return bucket_of_lane(lane, self._buckets)

    def _first(self, pane: int) -> dict[Lane, int]:
        lanes = self._lanes[pane]
        return {part.lane: part.first for part in self._records.ranges if part.lane in lanes}

    def _partial(self, bucket: Bucket, rows: list[Group]) -> Partial:
        counts: dict[int, int] = {}
        for pane, _key, _others, count, _total in rows:
            counts[pane] = counts.get(pane, 0) + count
        return Partial(
            bucket=bucket,
            counts=RowCounts(counted=sum(counts.values())),
            panes=tuple(PaneRows(pane, counts[pane], self._first(pane)) for pane in sorted(counts)),
            states=_encoded(self._plan.folds, tuple(rows)),
        )


@lru_cache(REMEMBERED)
def _bucket_of_key(task: TaskName, key: str, buckets: int) -> Bucket:
    return Bucket(xxhash.xxh3_64_intdigest(f"{task}\ns{key}\0".encode()) % buckets)


# ------------------------------------------------------------------------------------- states


def _frame(folds: bool, rows: Sequence[Group]) -> pl.DataFrame:
    """Rows as a frame of states."""
    pane, key, folded, count, total = map(list, zip(*rows, strict=True))
    return pl.DataFrame(
        [
            pl.Series(PANE, pane, pl.Int64()),
            pl.Series("k0", key, pl.String()),
            *([pl.Series(OTHERS, folded, pl.Boolean())] if folds else []),
            pl.Series("a0_n", count, pl.Int64()),
            pl.Series("a1_sum", total, pl.Int128()),
            pl.Series("a1_n", count, pl.Int64()),
        ]
    )


def _rows(folds: bool, frame: pl.DataFrame) -> list[Group]:
    """A frame of states as rows."""
    if folds:
        return [(pane, key, apart, n, total) for pane, key, apart, n, total, _ in frame.rows()]
    return [(pane, key, False, n, total) for pane, key, n, total, _ in frame.rows()]


@lru_cache(REMEMBERED)
def _encoded(folds: bool, rows: tuple[Group, ...]) -> bytes:
    """The bytes of a frame of states, made without the frame.

    Arrow's head is the same for all frames of as many rows; the columns follow it as they are, each
    filled up to ALIGNMENT. A text of up to INLINE_MAX bytes lies in its column, after its length.
    """
    pane, key, folded, count, total = zip(*rows, strict=True)
    head, tail = _around(folds, len(rows))
    if not head or any(len(each.encode()) > INLINE_MAX for each in key):
        return encode_states(_frame(folds, rows))
    ints = struct.Struct(f"<{len(rows)}q")
    columns = [
        ints.pack(*pane),
        b"".join(map(_inline, key)),
        *([_bits(folded)] if folds else []),
        ints.pack(*count),
        b"".join(each.to_bytes(16, "little", signed=True) for each in total),
        ints.pack(*count),
    ]
    return head + b"".join(map(_filled, columns)) + tail


@cache
def _around(folds: bool, count: int) -> tuple[bytes, bytes]:
    """What comes before and after the columns of so many rows; empty if they are compressed."""
    whole = encode_states(_frame(folds, [(0, "", False, 0, 0)] * count))
    if len(whole) > PLAIN_BYTES_MAX:
        return b"", b""
    widths = [8, 16, *([1 / 8] if folds else []), 8, 16, 8]
    body = sum(len(_filled(bytes(math.ceil(count * width)))) for width in widths)
    return whole[: -body - len(END)], END


def _inline(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(4, "little") + encoded.ljust(INLINE_MAX, b"\0")


def _bits(flags: Sequence[bool]) -> bytes:
    packed = sum(one << at for at, one in enumerate(flags))
    return packed.to_bytes(-(-len(flags) // 8), "little")


def _filled(column: bytes) -> bytes:
    return column + bytes(-len(column) % ALIGNMENT)


@lru_cache(REMEMBERED)
def _by_pane(encoded: bytes, starts: tuple[int, ...]) -> Mapping[int, pl.DataFrame]:
    carried = Partial(
        Bucket(0), RowCounts(), tuple(PaneRows(one, 0, {}) for one in starts), encoded
    )
    return panes.states_by_pane(carried)


def states_by_pane(partial: Partial) -> Mapping[int, pl.DataFrame]:
    """`mars.protocol.windows.panes.states_by_pane`; nobody changes a frame of states."""
    return _by_pane(partial.states, tuple(pane.start_ms for pane in partial.panes))


def merge(plan: Plan, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """`mars.engine.aggregates.merge`."""
    if not frames or not is_known(plan):
        return states.merge(plan, frames)
    return _merged(plan.folds, (row for frame in frames for row in _rows(plan.folds, frame)))


def _merged(folds: bool, rows: Iterable[Group]) -> pl.DataFrame:
    sums: dict[tuple[int, str, bool], tuple[int, int]] = {}
    for pane, key, apart, n, total in rows:
        count, before = sums.get((pane, key, apart), (0, 0))
        sums[pane, key, apart] = count + n, before + total
    return _frame(folds, [(*place, *each) for place, each in sums.items()])


def limited_window(plan: Plan, window: Window, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """`mars.engine.aggregates.limited_window`."""
    if plan.folds or not is_known(plan):
        return others.limited_window(plan, window, parts)
    rows = ((window.start_ms, *row[1:]) for part in parts for row in _rows(False, part))
    return others.limited(plan, _merged(False, rows))


# ------------------------------------------------------------------------------------- finish


def finish(plan: Plan, merged: pl.DataFrame, window: Window, *, refused: bool = False) -> Finished:
    """`mars.engine.finishing.finish`."""
    if refused or not is_known(plan):
        return finishing.finish(plan, merged, window, refused=refused)
    start_ms, end_ms = window.start_ms, window.end_ms
    rows = sorted(_rows(plan.folds, merged), key=lambda row: (row[2], row[1]))
    named = f",{end_ms}" if plan.window.begin_together else ""
    keys = [f'[{start_ms},"{key}"{named}]'.encode() for _pane, key, *_rest in rows]
    values = [
        f'{{"window_start":{start_ms},"window_end":{end_ms},"k":"{key}","ts":{start_ms},'
        f'"n":{count},"total":{total}}}'.encode()
        for _pane, key, _others, count, total in rows
    ]
    return Finished(window, keys, values, sum(row[2] for row in rows))


IN_PLACE: Sequence[tuple[ModuleType, str, object]] = (
    (mars.engine.decode.parts, "decode", decode),
    (mars.engine.kernel, "map_many", map_many),
    (mars.adapters.memory.bulk, "decode", decode),
    (mars.engine.combining, "merge", merge),
    (mars.protocol.windows.panes, "merge", merge),
    (mars.protocol.windows.pane_state, "states_by_pane", states_by_pane),
    (mars.protocol.windows.window_panes, "limited_window", limited_window),
    (mars.protocol.windows.pane_state, "finish", finish),
    (mars.protocol.windows.pane_commits, "finish", finish),
)
"""Where a run takes these for the kernel's."""
