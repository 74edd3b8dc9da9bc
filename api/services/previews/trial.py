"""A query tried on some records, in this process and by the mappers' and reducers' own code.

    records ──decode, map_batch──▶ partials ──merge──▶ states by pane and key ──finish──▶ rows
                  └──▶ event times ──▶ disorder

Pure: no client, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import polars as pl

from api.services.previews.disorder import DELAYS_MS, Disorder
from api.services.previews.windows import Tried, by_key, by_number, by_time, sessions
from mars.core.plan import Plan
from mars.core.types import Lane, Mapped, Records, RejectedRow, RowCounts, lane_partition
from mars.core.windows import Counting, Session
from mars.core.windows.counting import CountedAndSeen
from mars.engine.aggregates import PANE, merge
from mars.engine.codec.entry import encode_entry
from mars.engine.codec.states import decode_states, plain_bytes, states_bytes
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.parts import decode_slices
from mars.engine.decode.usable import Usable, usable_rows
from mars.engine.kernel import key_columns, map_batch
from mars.protocol.windows.closing import WholeSpan
from mars.sql.options import KEY_LAG_MS_DEFAULT
from mars.sql.task import scope_clash

REJECTED_MAX = 20
"""Rows that were not counted in an answer."""

ROWS_MAX = 250_000
"""Rows of one trial, and those that are decoded with the last of them: some 100 bytes of each stay
until the end, and several times as much is taken then. A message of 4 KiB may hold millions."""

MERGE_AFTER = 16
"""Partials' states are merged when there are so many pieces: bounds memory by groups, not rows."""

_CAME = "\x00came"
"""When Kafka got a row's message; no field can have this name."""

BATCH_MS = 1_000
"""Of one batch of a mapper under load, as far as Kafka's timestamps tell."""


class Trial:
    """Takes records and says what the query makes of them. Raises TaskLimit as the kernel does."""

    def __init__(self, plan: Plan, buckets: int) -> None:
        self.plan = plan
        self.counts = RowCounts()
        self.reasons: Counter[str] = Counter()
        self.rejected: list[RejectedRow] = []
        delays_ms = {*DELAYS_MS, plan.options.delay_ms}
        self.disorder = Disorder(
            plan.window, delays_ms, _key_lag_ms(plan), plan.options.idle_after_ms
        )
        self.filled: set[str] = set()
        """Fields of the query that some usable row has a value for."""
        self.mark_ms: int | None = None
        """The newest usable event time."""
        self.stamp_ms: int | None = None
        """The newest Kafka timestamp."""
        self.lane_rows: Counter[Lane] = Counter()
        self.cut_short = False
        self.longer_rows = 0
        """Rows of which some cells were passed over."""
        self._numbers: Counter[Lane] = Counter()
        """What stands beside the next offset of each lane."""
        self._spans: dict[Lane, tuple[int, int]] = {}
        """The event times of the first and the newest usable row of each lane."""
        self._oldest_ms: int | None = None
        self._buckets = buckets
        self._frames: list[pl.DataFrame] = []
        self._last: dict[Lane, Decoded] = {}

    def add(self, records: Records) -> None:
        """Take the next records of a lane."""
        for decoded in decode_slices(self.plan.stream, self.plan.fields, records):
            if self.full:
                self.cut_short = True
                break
            self.longer_rows += decoded.longer
            mapped = self._mapped(decoded, self._numbers[records.lane])
            for lane, numbers in mapped.numbered.items():
                self._numbers[lane] = numbers.next
            self._take_usable(records.lane, _stamped(self.plan, decoded))
            self._take(records.lane, mapped)
            if decoded.records.values:
                self._last[records.lane] = decoded
        if records.values:
            self.stamp_ms = _largest(max(records.timestamps_ms), self.stamp_ms)

    @property
    def counted(self) -> dict[Lane, int]:
        """Rows of each lane that have numbers."""
        by_key = self.plan.counts_by_key
        numbers = self._numbers.items()
        return {lane: CountedAndSeen.of(at).rows if by_key else at for lane, at in numbers}

    def _mapped(self, decoded: Decoded, number: int) -> Mapped:
        """What rows add, before which so many of their lane have numbers."""
        counts = self.plan.counts_rows
        return map_batch(self.plan, self._buckets, decoded, number if counts else None)

    @property
    def full(self) -> bool:
        """Whether it takes no more rows; `cut_short`: some that it was given are left out."""
        return self.counts.read >= ROWS_MAX

    def _take_usable(self, lane: Lane, usable: Usable) -> None:
        times = usable.rows.get_column(self.plan.stream.event_time)
        keys = usable.rows.select(key_columns(self.plan))
        self.disorder.add(lane, times, keys, usable.rows.get_column(_CAME))
        for name in usable.rows.columns:
            if name not in self.filled and usable.rows.get_column(name).count():
                self.filled.add(name)
        if usable.mark_ms is not None:
            self.mark_ms = _largest(usable.mark_ms, self.mark_ms)
            self._oldest_ms = _smallest(int(times.to_numpy().min()), self._oldest_ms)
            first_ms, newest_ms = self._spans.get(lane, (int(times[0]), usable.mark_ms))
            self._spans[lane] = first_ms, max(newest_ms, usable.mark_ms)

    @property
    def event_span_ms(self) -> int:
        """Between the oldest and the newest usable event time."""
        return (self.mark_ms or 0) - (self._oldest_ms or 0)

    def _take(self, lane: Lane, mapped: Mapped) -> None:
        for partial in mapped.partials:
            self.counts += partial.counts
            self.lane_rows[lane] += partial.counts.read
            for row in partial.rejections.rows:
                self.reasons[row.reason] += 1
                if len(self.rejected) < REJECTED_MAX:
                    self.rejected.append(row)
            for part in partial.rejections.ranges:
                self.reasons[part.reason] += part.rows
            if partial.states:
                self._frames.append(decode_states(partial.states))
        if len(self._frames) > MERGE_AFTER * self._buckets:
            self._frames = [merge(self.plan, self._frames)]

    # ------------------------------------------------------------------------------ results

    def windows(self, limit: int, *, whole: bool) -> Tried:
        """The windows that are shown, each with so many rows. `whole`: there are no rows before."""
        states, shape = self._states(), self.plan.window
        if self.plan.counts_by_key:
            come = self._numbers.items()
            seen = {lane_partition(lane) or 0: CountedAndSeen.of(at).seen for lane, at in come}
            return by_key(self.plan, states, seen)
        if isinstance(shape, Counting):
            return by_number(self.plan, shape, states, self.counted, limit)
        if isinstance(shape, Session):
            delay_ms = self.plan.options.delay_ms
            return sessions(self.plan, shape, states, self._span(whole=whole), delay_ms)
        return by_time(self.plan, states, limit)

    def _span(self, *, whole: bool) -> WholeSpan:
        """From the first row of the lane that begins last to the newest of the slowest lane."""
        if not self._spans:
            return WholeSpan()
        firsts, newest = zip(*self._spans.values(), strict=True)
        return WholeSpan(None if whole else max(firsts), min(newest))

    def _states(self) -> pl.DataFrame:
        self._frames = [merge(self.plan, self._frames)]
        return self._frames[0]

    # -------------------------------------------------------------------------------- sizes

    def log_bytes(self, rows: Mapping[Lane, float]) -> int:
        """What the task appends to its log of so many rows of each lane.

        The rows of each lane's last second are mapped as one batch, as a mapper under load does.
        """
        return round(
            sum(
                self._bytes_per_row(decoded) * rows.get(lane, 0.0)
                for lane, decoded in self._last.items()
            )
        )

    def _bytes_per_row(self, decoded: Decoded) -> float:
        records = decoded.records
        newest = max(records.timestamps_ms)
        stamped = zip(records.offsets, records.timestamps_ms, strict=True)
        first = next(offset for offset, stamp in stamped if stamp > newest - BATCH_MS)
        mapped = self._mapped(decoded.from_offset(first), 0)
        rows = sum(partial.counts.read for partial in mapped.partials)
        return sum(self._entry_sizes(mapped)) / rows if rows else 0.0

    def _entry_sizes(self, mapped: Mapped) -> Iterator[int]:
        for partial in mapped.partials:
            header, body = encode_entry(self.plan.version, mapped.ranges, partial)
            yield len(header) + states_bytes(body)

    def groups_per_pane(self) -> int:
        """The most that a pane has."""
        panes = self._states().get_column(PANE).value_counts()
        return max(panes.get_column("count").to_list(), default=0)

    def bytes_per_group(self) -> float:
        """Of merged states, in one frame."""
        states = self._states()
        return plain_bytes(states) / max(states.height, 1)


def _stamped(plan: Plan, decoded: Decoded) -> Usable:
    """The usable rows, each with when Kafka got its message."""
    stamps = decoded.timestamps_ms
    if decoded.messages is not None:
        stamps = stamps.gather(decoded.messages)
    frame = decoded.frame.with_columns(stamps.alias(_CAME))
    return usable_rows(plan, replace(decoded, frame=frame))


def _key_lag_ms(plan: Plan) -> int | None:
    """How far keys may lag where windows close key by key; None where they cannot."""
    if plan.closes_by_key:
        return plan.options.key_lag_ms
    return KEY_LAG_MS_DEFAULT if scope_clash(plan) is None else None


def _largest(value: int, known: int | None) -> int:
    return value if known is None else max(value, known)


def _smallest(value: int, known: int | None) -> int:
    return value if known is None else min(value, known)
