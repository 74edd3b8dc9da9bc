"""A query tried on some records, in this process and by the mappers' and reducers' own code.

    records ──decode, map_batch──▶ partials ──merge──▶ states by pane and key ──finish──▶ rows
                  └──▶ event times ──▶ disorder

Pure: no client, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
import polars as pl

from api.services.previews.disorder import DELAYS_MS, Disorder
from mars.core.plan import Plan
from mars.core.types import Lane, Mapped, Records, RejectedRow, RowCounts
from mars.core.windows import Window
from mars.engine.aggregates import PANE, merge, merge_panes
from mars.engine.codec.entry import encode_entry
from mars.engine.codec.states import decode_states, plain_bytes, states_bytes
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.parts import decode_slices
from mars.engine.decode.usable import Usable, usable_rows
from mars.engine.finishing import finish
from mars.engine.kernel import key_columns, map_batch
from mars.sql.options import KEY_LAG_MS_DEFAULT
from mars.sql.task import scope_clash

WINDOWS_MAX = 20
"""Windows in an answer, the newest."""

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


@dataclass(frozen=True, slots=True)
class TriedWindow:
    """One window: its groups, and the first of its `rows_all` result rows."""

    start_ms: int
    end_ms: int
    groups: int
    rows: tuple[dict[str, object], ...]
    rows_all: int


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
            mapped = map_batch(self.plan, self._buckets, decoded)
            self._take_usable(records.lane, _stamped(self.plan, decoded))
            self._take(records.lane, mapped)
            if decoded.records.values:
                self._last[records.lane] = decoded
        if records.values:
            self.stamp_ms = _largest(max(records.timestamps_ms), self.stamp_ms)

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

    def windows(self, limit: int) -> tuple[list[TriedWindow], bool]:
        """The newest windows, oldest first, and whether there are more."""
        states = self._states()
        windows = self._newest_windows(states)
        newest = sorted(windows)[-WINDOWS_MAX:]
        shown = [self._window(states, window, limit) for window in newest]
        return shown, len(windows) > len(newest)

    def _states(self) -> pl.DataFrame:
        self._frames = [merge(self.plan, self._frames)]
        return self._frames[0]

    def _newest_windows(self, states: pl.DataFrame) -> set[Window]:
        """At least one more than are shown, if there are so many.

        Of a cycle there are the steps that the newest row has come to: later ones would repeat it.
        """
        windows: set[Window] = set()
        shape, upto_ms = self.plan.window, None
        panes = states.get_column(PANE).unique().sort(descending=True).to_list()
        if shape.begin_together and panes:
            upto_ms = shape.first_end(panes[0])
        for pane in panes:
            windows.update(shape.windows_of([pane], upto_ms=upto_ms))
            if len(windows) > WINDOWS_MAX:
                break
        return windows

    def _window(self, states: pl.DataFrame, window: Window, limit: int) -> TriedWindow:
        merged = merge_panes(self.plan, states, window)
        values = finish(self.plan, merged, window).values
        return TriedWindow(
            start_ms=window.start_ms,
            end_ms=window.end_ms,
            groups=merged.height,
            rows=tuple(msgspec.json.decode(value) for value in values[:limit]),
            rows_all=len(values),
        )

    # -------------------------------------------------------------------------------- sizes

    def log_bytes_per_second(self, rates: Mapping[Lane, float]) -> int:
        """What the task appends to its log, given how many rows a second each lane brings.

        The rows of each lane's last second are mapped as one batch, as a mapper under load does.
        """
        return round(
            sum(
                self._bytes_per_row(decoded) * rates.get(lane, 0.0)
                for lane, decoded in self._last.items()
            )
        )

    def _bytes_per_row(self, decoded: Decoded) -> float:
        records = decoded.records
        newest = max(records.timestamps_ms)
        stamped = zip(records.offsets, records.timestamps_ms, strict=True)
        first = next(offset for offset, stamp in stamped if stamp > newest - BATCH_MS)
        mapped = map_batch(self.plan, self._buckets, decoded.from_offset(first))
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
