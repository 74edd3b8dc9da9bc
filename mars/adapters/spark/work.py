"""What the tasks of a job do; nothing here knows Spark.

    ranges ──read──▶ decoded ──kernel──▶ a Mapped per batch ──combine──▶ a partial per bucket
                                                                               │ by bucket
    answer ◀──finish── states of a bucket ◀──combine── partials of all tasks ◀─┘

Objects of these classes travel to the executors, with all that they hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

import msgspec
import polars as pl

from mars.adapters.spark.planning import Task
from mars.core.errors import JobFailed, Unavailable
from mars.core.plan import Plan
from mars.core.types import (
    Bucket,
    Lane,
    Mapped,
    Partial,
    Range,
    RowCounts,
    RowNumbers,
    lane_partition,
)
from mars.core.windows import CountingByKey, Window
from mars.core.windows.counting import CountedAndSeen, number_of
from mars.engine.aggregates import COUNTED, PANE, KeyWindows, merge_panes, sessions_of
from mars.engine.codec.states import decode_states, encode_states
from mars.engine.combining import (
    Placed,
    combine,
    combine_partials,
    join_marks,
    join_numbered,
    join_ranges,
)
from mars.engine.decode.decoded import Decoded
from mars.engine.finishing import EACH_ITS_OWN, finish
from mars.engine.kernel import map_batch, map_gone
from mars.protocol.ports import QueryAnswer, window_of_row
from mars.protocol.windows.counts.key_panes import KeyPanes

NO_BUCKET = Bucket(-1)
"""The key of what concerns no bucket."""


class WorkSource(Protocol):
    """Where rows are; it travels to the executors."""

    def batches(self, plan: Plan, part: Range) -> Iterator[Decoded | Range]:
        """The rows of a range, decoded, in batches that tile it and are the same every time.

        A Range in their place stands for rows that are no longer there.
        """


@dataclass(frozen=True, slots=True)
class Accounted:
    """What one task has read, and the marks that it leaves; the numbers of rows that it counts."""

    ranges: tuple[Range, ...]
    marks_ms: Mapping[Lane, int]
    numbered: Mapping[Lane, RowNumbers] = field(default_factory=dict)


FinishedRow = tuple[Window, bytes, bytes, bool]
"""A result row of a query: window, key, value, and False for a window of rows of a key that is not
full.
"""


@dataclass(frozen=True, slots=True)
class FinishedRows:
    """The result rows of one bucket, in order within a window.

    There are at most one more than the query may have. `counts` are the bucket's.
    """

    counts: RowCounts
    rows: tuple[FinishedRow, ...]


Sent = tuple[Bucket, Placed | Accounted]
"""What the tasks of the first stage send to those of the second."""


@dataclass(frozen=True, slots=True)
class MapWork:
    """The first stage: ranges to partials by bucket."""

    plan: Plan
    buckets: int
    source: WorkSource

    def __call__(self, tasks: Iterable[Task]) -> Iterator[Sent]:
        """What some tasks add. Raises TaskLimit, and what the source raises."""
        mapping = self._by_key if self.plan.counts_by_key else self._in_order
        for task in tasks:
            for mapped in mapping(task) if self.plan.counts_rows else self._at_once(task):
                yield NO_BUCKET, Accounted(mapped.ranges, mapped.marks_ms, mapped.numbered)
                for partial in mapped.partials:
                    yield partial.bucket, Placed(mapped.ranges, partial)

    def _at_once(self, task: Task) -> Iterator[Mapped]:
        pieces = [
            map_gone(self.plan, self.buckets, batch)
            if isinstance(batch, Range)
            else map_batch(self.plan, self.buckets, batch)
            for part in task
            for batch in self.source.batches(self.plan, part)
        ]
        yield combine(self.plan, pieces)

    def _in_order(self, task: Task) -> Iterator[Mapped]:
        """The ranges of a lane one by one, whose rows are numbered from the first of them on."""
        number = 0
        for part in task:
            pieces: list[Mapped] = []
            for batch in self.source.batches(self.plan, part):
                if not isinstance(batch, Range):
                    pieces.append(map_batch(self.plan, self.buckets, batch, number))
                    number = pieces[-1].numbered[part.lane].next
                elif number:
                    raise JobFailed(_gone(batch))
                else:
                    pieces.append(map_gone(self.plan, self.buckets, batch))
            yield combine(self.plan, pieces)

    def _by_key(self, task: Task) -> Iterator[Mapped]:
        """The same with the windows that the rows of keys make, as reducers find them, in place of
        the rows. Those that are neither full nor left by a silent key in the end are none.
        """
        buckets: dict[Bucket, KeyPanes] = {}
        seen: dict[int, int] = {}
        for mapped in self._in_order(task):
            for lane, numbers in mapped.numbered.items():
                seen[lane_partition(lane) or 0] = CountedAndSeen.of(numbers.next).seen
            made = []
            for partial in mapped.partials:
                own = buckets.setdefault(partial.bucket, KeyPanes(self.plan))
                own.take(decode_states(partial.states))
                made.append(replace(partial, states=_states_of(own.close({}))))
            yield replace(mapped, partials=tuple(made))
        left = (
            Partial(bucket, RowCounts(), (), _states_of(own.close(seen)))
            for bucket, own in buckets.items()
        )
        yield Mapped((), {}, tuple(left))


def _states_of(found: KeyWindows) -> bytes:
    states = pl.concat([found.full, found.unfilled])
    return encode_states(states) if states.height else b""


@dataclass(frozen=True, slots=True)
class MergeWork:
    """The second stage of a map job: the partials of a bucket to one."""

    plan: Plan

    def __call__(self, sent: Iterable[Sent]) -> Iterator[Partial | Accounted]:
        """One partial per bucket among those sent. Raises TaskLimit."""
        accounted, by_bucket = sort_out(sent)
        yield from accounted
        for bucket in sorted(by_bucket):
            yield combine_partials(self.plan, by_bucket.pop(bucket))


@dataclass(frozen=True, slots=True)
class FinishWork:
    """The second stage of a query: the partials of a bucket to finished rows."""

    plan: Plan
    rows_max: int

    def __call__(self, sent: Iterable[Sent]) -> Iterator[FinishedRows | Accounted]:
        """The rows of each bucket among those sent. Raises TaskLimit."""
        accounted, by_bucket = sort_out(sent)
        yield from accounted
        for bucket in sorted(by_bucket):
            yield self._finished(combine_partials(self.plan, by_bucket.pop(bucket)))

    def _finished(self, partial: Partial) -> FinishedRows:
        states = decode_states(partial.states)
        rows = self._rows(states) if states.width else iter(())
        return FinishedRows(partial.counts, tuple(islice(rows, self.rows_max + 1)))

    def _rows(self, states: pl.DataFrame) -> Iterator[FinishedRow]:
        shape = self.plan.window
        if isinstance(shape, CountingByKey):
            is_full = states.get_column(COUNTED) == shape.size
            yield from self._each_its_own(states.filter(is_full))
            yield from self._each_its_own(states.filter(~is_full), full=False)
        elif self.plan.has_sessions:
            yield from self._each_its_own(sessions_of(self.plan, [states]).merged(self.plan))
        else:
            yield from self._windows(states)

    def _windows(self, states: pl.DataFrame) -> Iterator[FinishedRow]:
        for window in self.plan.window.windows_of(states.get_column(PANE).unique().to_list()):
            found = finish(self.plan, merge_panes(self.plan, states, window), window)
            for key, value in zip(found.keys, found.values, strict=True):
                yield window, key, value, True

    def _each_its_own(self, states: pl.DataFrame, *, full: bool = True) -> Iterator[FinishedRow]:
        """Each row is a window of one group, and says when it begins and ends."""
        for part in states.iter_slices(self.rows_max + 1):
            found = finish(self.plan, part, EACH_ITS_OWN)
            for key, value in zip(found.keys, found.values, strict=True):
                yield window_of_row(key, value), key, value, full


def sort_out(sent: Iterable[Sent]) -> tuple[list[Accounted], dict[Bucket, list[Placed]]]:
    """What was sent, by what it is and by bucket."""
    accounted: list[Accounted] = []
    by_bucket: defaultdict[Bucket, list[Placed]] = defaultdict(list)
    for bucket, piece in sent:
        if isinstance(piece, Placed):
            by_bucket[bucket].append(piece)
        else:
            accounted.append(piece)
    return accounted, dict(by_bucket)


def mapped_of(ranges: Iterable[Range], results: Iterable[Partial | Accounted]) -> Mapped:
    """The results of a map job's tasks, put together.

    Raises Unavailable where they do not account for exactly the ranges that were asked for.
    """
    partials: list[Partial] = []
    accounted: list[Accounted] = []
    for result in results:
        if isinstance(result, Partial):
            partials.append(result)
        else:
            accounted.append(result)
    return Mapped(
        ranges=_complete(ranges, accounted),
        marks_ms=join_marks(one.marks_ms for one in accounted),
        partials=tuple(sorted(partials, key=lambda one: one.bucket)),
    )


def answer_of(
    plan: Plan, rows_max: int, ranges: Iterable[Range], results: Iterable[FinishedRows | Accounted]
) -> QueryAnswer:
    """The results of a query's tasks, put together. Raises JobFailed for more than `rows_max`."""
    finished: list[FinishedRows] = []
    accounted: list[Accounted] = []
    for result in results:
        if isinstance(result, FinishedRows):
            finished.append(result)
        else:
            accounted.append(result)
    _complete(ranges, accounted)
    rows = [row for one in finished for row in one.rows]
    if len(rows) > rows_max:
        raise JobFailed(
            f"The query has more than {rows_max} result rows; ask for a shorter time, filter "
            "groups with HAVING, or raise its limit of rows."
        )
    if not plan.single_bucket:
        rows.sort(key=_place)
    counts = sum((one.counts for one in finished), RowCounts())
    numbered = join_numbered(one.numbered for one in accounted)
    return QueryAnswer(
        tuple(value for _window, _key, value, _full in rows),
        counts,
        tuple(key for _window, key, _value, _full in rows),
        {lane: number_of(max(0, part.next)) for lane, part in numbered.items()},
        frozenset(key for _window, key, _value, full in rows if not full),
    )


def _gone(part: Range) -> str:
    return (
        f"Kafka deleted rows of partition {lane_partition(part.lane)} while the query counted "
        "them; run the query again, or ask from a later time on."
    )


def _place(row: FinishedRow) -> tuple[Window, list[tuple[bool, object]]]:
    """Windows in order of time, rows of a window in order of their keys, NULLs last."""
    window, key, *_rest = row
    return window, [(part is None, part) for part in msgspec.json.decode(key)[1:]]


def _complete(ranges: Iterable[Range], accounted: Iterable[Accounted]) -> tuple[Range, ...]:
    read = join_ranges(part for one in accounted for part in one.ranges)
    if read != join_ranges(part for part in ranges if part.first < part.next):
        raise Unavailable("spark", "a job's tasks have not read what they were told; run it again")
    return read
