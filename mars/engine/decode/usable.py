"""Which of the decoded rows a task can use, and a reference to each that it cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import itemgetter

import polars as pl

from mars.core.plan import Expression, Field, Plan, RecordTime
from mars.core.types import Lane, Reason, RejectedRange, RejectedRow, Rejections
from mars.core.windows import span
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.lanes import counts_by_lane, marks_by_lane, rows_by_lane, with_lanes
from mars.engine.decode.long_keys import KEY_BYTES_MAX, long_texts, text_bytes
from mars.engine.decode.unreadable import UnreadableRows
from mars.engine.evaluate.shared import signs_of_zeros

NAMED_MAX = 100
"""Rows of a batch that are referenced one by one, with their first bytes: 50 KB at most."""

OUTSIDE_CALENDAR = "outside the years 1 to 9999"
"""What is said of such an event time: most often its unit is another one than was declared."""

YEAR_2001_MS = 978_307_200_000
"""Current times in seconds, or in milliseconds taken for microseconds, lie before it."""

OLD_RECORD_TIME = "the record's own time lies before 2001, as if it counted seconds"
"""What is said of a row that is in the future for this reason alone."""

EVENT_TIME_MIN_MS = -62_135_596_800_000
"""The begin of the year 1."""

EVENT_TIME_MAX_MS = 253_402_300_799_999
"""The end of the year 9999. What lies beyond cannot be written in ISO 8601, and a single row there
would close every window if it moved the mark."""


@dataclass(frozen=True, slots=True)
class Usable:
    """The rows of a batch that are neither bad nor future, for tasks of one screening.

    `marks_ms` has the highest event time among them for each lane that has any. The others are
    counted by lane, where there are such; unreadable rows are bad, too. Where the
    batch has several lanes, the column LANE of `rows` says by its number whose each is.
    """

    rows: pl.DataFrame
    marks_ms: Mapping[Lane, int]
    bad_by_lane: Mapping[Lane, int]
    future_by_lane: Mapping[Lane, int]
    rejections: Rejections

    @property
    def bad(self) -> int:
        """Bad rows of all lanes."""
        return sum(self.bad_by_lane.values())

    @property
    def future(self) -> int:
        """Future rows of all lanes."""
        return sum(self.future_by_lane.values())

    @property
    def mark_ms(self) -> int | None:
        """The highest event time among them, None if there are none."""
        return max(self.marks_ms.values(), default=None)


@dataclass(frozen=True, slots=True)
class _Rejected:
    """Rows rejected for one reason; `detail` says why for one of them."""

    reason: Reason
    rows: pl.Series
    detail: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Screening:
    """What decides which rows of a batch a task can use; equal ones have the same rows.

    `mistyped` are the task's fields that have values of a wrong type in the batch. `long_texts` are
    its keys whose texts may be too long, and the signs of their constants tell them apart.
    `future_limit_ms` is None where no row can be in the future.
    """

    mistyped: tuple[Field, ...]
    long_texts: tuple[Expression, ...]
    long_texts_signs: tuple[float, ...]
    future_limit_ms: int | None


def screening_of(plan: Plan, decoded: Decoded) -> Screening:
    """What the plan demands of the rows; cheap looks at whole columns say what all of them meet."""
    texts = long_texts(plan, decoded)
    return Screening(
        mistyped=tuple(one for one in plan.fields if one.name in decoded.invalid.columns),
        long_texts=texts,
        long_texts_signs=signs_of_zeros(texts),
        future_limit_ms=_future_limit_ms(plan, decoded),
    )


def _future_limit_ms(plan: Plan, decoded: Decoded) -> int | None:
    limit = plan.options.future_limit_ms
    if decoded.times_ms is None or plan.stream.record_time is RecordTime.IGNORE:
        return None
    earliest_ms = decoded.earliest_timestamp_ms
    met = earliest_ms >= 0 and decoded.times_ms[1] <= earliest_ms + limit
    return None if met else limit


def usable_rows(plan: Plan, decoded: Decoded) -> Usable:
    """Sort out the rows that the plan cannot use."""
    return rows_for(screening_of(plan, decoded), decoded)


def rows_for(screening: Screening, decoded: Decoded) -> Usable:
    """Sort out the rows that plans of this screening cannot use."""
    rejected = list(_rejected(screening, decoded))
    rows = with_lanes(decoded)
    if rejected:
        rows = rows.filter(~reduce(pl.Series.__or__, (one.rows for one in rejected)))
    bad = Counter(counts_by_lane(decoded.records, decoded.unreadable.messages))
    future = Counter[Lane]()
    for one in rejected:
        counter = future if one.reason is Reason.FUTURE else bad
        counter.update(rows_by_lane(decoded.records, with_lanes(decoded), one.rows))
    return Usable(
        rows=rows,
        marks_ms=marks_by_lane(decoded.records, rows, decoded.stream.event_time),
        bad_by_lane=bad,
        future_by_lane=future,
        rejections=_references(decoded, rejected),
    )


def _rejected(screening: Screening, decoded: Decoded) -> Iterator[_Rejected]:
    """The rows to reject, each under the first reason that holds."""
    seen: pl.Series | None = None
    for found in _suspects(screening, decoded):
        rows = found.rows if seen is None else found.rows & ~seen
        seen = rows if seen is None else seen | rows
        if rows.any():
            yield _Rejected(found.reason, rows, found.detail)


def _suspects(screening: Screening, decoded: Decoded) -> Iterator[_Rejected]:
    """Reasons that may hold for some rows."""
    if screening.mistyped:
        yield _mistyped(screening.mistyped, decoded)
    name = decoded.stream.event_time
    times = decoded.frame.get_column(name)
    if times.null_count():
        yield _Rejected(
            Reason.NO_EVENT_TIME, times.is_null(), lambda _: f"`{name}` is missing or NULL"
        )
    if decoded.times_ms is None:
        return
    low, high = decoded.times_ms
    if low < EVENT_TIME_MIN_MS or high > EVENT_TIME_MAX_MS:
        sane = times.is_between(EVENT_TIME_MIN_MS, EVENT_TIME_MAX_MS).fill_null(False)
        yield _Rejected(Reason.NO_EVENT_TIME, ~sane, lambda _: f"`{name}` is {OUTSIDE_CALENDAR}")
    if screening.long_texts:
        sizes = text_bytes(screening.long_texts, decoded.frame)
        yield _Rejected(Reason.TOO_LARGE, sizes > KEY_BYTES_MAX, lambda row: _too_long(sizes[row]))
    if screening.future_limit_ms is not None:
        yield _future(screening.future_limit_ms, decoded, times)


def _mistyped(fields: Sequence[Field], decoded: Decoded) -> _Rejected:
    marks = [decoded.invalid.get_column(one.name) for one in fields]

    def detail(row: int) -> str:
        field = next(one for one, mark in zip(fields, marks, strict=True) if mark[row])
        return f"`{field.name}` is not a valid {field.type}"

    return _Rejected(Reason.WRONG_TYPE, reduce(pl.Series.__or__, marks), detail)


def _too_long(size: int) -> str:
    return f"the texts it is grouped by have {size} bytes, at most {KEY_BYTES_MAX} are taken"


def _future(limit_ms: int, decoded: Decoded, times: pl.Series) -> _Rejected:
    """Rows whose event time is too far after their record's own timestamp, where it has one."""
    stamps = decoded.timestamps_ms
    if decoded.messages is not None:
        stamps = stamps.gather(decoded.messages)
    ahead = times - stamps
    rows = ((ahead > limit_ms) & (stamps >= 0)).fill_null(False)
    name = decoded.stream.event_time
    return _Rejected(
        Reason.FUTURE, rows, lambda row: _ahead(name, limit_ms, ahead[row], stamps[row])
    )


def _ahead(name: str, limit_ms: int, ahead_ms: int, stamp_ms: int) -> str:
    said = (
        f"`{name}` is {span(ahead_ms)} after Kafka got the row, and future_limit is "
        f"{span(limit_ms)}"
    )
    return f"{said}; {OLD_RECORD_TIME}" if stamp_ms < YEAR_2001_MS else said


@dataclass(slots=True)
class _Unnamed:
    first: int
    last: int
    rows: int

    def widen(self, first: int, last: int, rows: int) -> None:
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.rows += rows


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows rejected for one reason, in order: the message of each; `line` and `detail` by place."""

    reason: Reason
    messages: pl.Series
    line: Callable[[int], int]
    detail: Callable[[int], str]

    def first(self) -> Iterator[tuple[int, int, int]]:
        """The first rows: message, line, and place in the group."""
        for at, message in enumerate(self.messages.head(NAMED_MAX)):
            yield message, self.line(at), at


@dataclass(slots=True)
class _References:
    """Collects references: some rows by themselves, the rest in ranges."""

    decoded: Decoded
    named: list[RejectedRow] = field(default_factory=list)
    unnamed: dict[tuple[Lane, Reason], _Unnamed] = field(default_factory=dict)

    def name(self, message: int, line: int, reason: Reason, detail: str) -> None:
        records = self.decoded.records
        payload = self.decoded.payload(message, line)
        self.named.append(
            RejectedRow(records.lane_of(message), records.offsets[message], reason, detail, payload)
        )

    def count(self, reason: Reason, messages: pl.Series) -> None:
        """Rows of the messages, which are in order."""
        records, begin = self.decoded.records, 0
        for lane, rows in counts_by_lane(records, messages.to_numpy()).items():
            own = messages.slice(begin, rows)
            begin += rows
            span = (records.offsets[own[0]], records.offsets[own[-1]], rows)
            if (lane, reason) in self.unnamed:
                self.unnamed[lane, reason].widen(*span)
            else:
                self.unnamed[lane, reason] = _Unnamed(*span)

    def ranges(self) -> tuple[RejectedRange, ...]:
        return tuple(
            RejectedRange(lane, found.first, found.last + 1, reason, found.rows)
            for (lane, reason), found in sorted(self.unnamed.items())
        )


def _references(decoded: Decoded, rejected: list[_Rejected]) -> Rejections:
    """The first rows in order of messages and lines, whatever is wrong with them, and the rest."""
    if not rejected and not decoded.unreadable:
        return Rejections()
    groups = [*_unreadable(decoded), *(_group(decoded, one) for one in rejected)]
    rows = ((*row, number) for number, group in enumerate(groups) for row in group.first())
    named = sorted(rows, key=itemgetter(0, 1))[:NAMED_MAX]
    references = _References(decoded)
    for message, line, at, number in named:
        group = groups[number]
        references.name(message, line, group.reason, group.detail(at))
    of_group = Counter(number for *_row, number in named)
    for number, group in enumerate(groups):
        references.count(group.reason, group.messages.slice(of_group[number]))
    return Rejections(tuple(references.named), references.ranges())


def _unreadable(decoded: Decoded) -> list[_Group]:
    return [_unreadable_group(*found) for found in decoded.unreadable.by_reason()]


def _unreadable_group(reason: Reason, rows: UnreadableRows) -> _Group:
    messages = pl.Series(rows.messages)
    return _Group(reason, messages, lambda at: rows[at].line, lambda at: rows[at].detail)


def _group(decoded: Decoded, one: _Rejected) -> _Group:
    rows = one.rows.arg_true()
    return _Group(
        one.reason,
        rows if decoded.messages is None else decoded.messages.gather(rows),
        lambda at: decoded.line_of(rows[at]),
        lambda at: one.detail(rows[at]),
    )
