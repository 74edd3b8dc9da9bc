"""The open panes of one bucket of one task version, and where its rows went.

    entries in SEQ order ──absorb──▶ panes by start ──close(watermark)──▶ rows of due windows
                                       │
                                       └──▶ ledger, references, L = lowest offset still needed

A folding begins from the last committed progress record (or from nothing) and reads the log from
its start. What lies below the merged-through offsets M only rebuilds panes that are still open:
its rows were counted, its references emitted, by whoever committed that record (R5).

A log may begin with a base, which holds the states of all rows below its offsets. Where it was
restored from a snapshot, rows below them come again, for buckets whose own snapshot is older:

    lane  ──────┬──────────────┬────────────────────┬──────────▶
             lowest L          S                    M
                 in the base: skip   states only       count
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import tee

import polars as pl

from mars.core.errors import TaskLimit
from mars.core.plan import Plan
from mars.core.types import (
    Bucket,
    Entry,
    Lane,
    PaneRows,
    Partial,
    Range,
    Reason,
    RejectedRange,
    Rejections,
    RowCounts,
    Sequence64,
)
from mars.core.windows import OPEN_PANES_MAX, Window, moment
from mars.engine.aggregates import limited, limited_window
from mars.engine.codec.dead import dead_late, dead_rejections
from mars.engine.codec.states import encode_states
from mars.engine.finishing import Finished, finish, retractions
from mars.protocol.ports import Head, Ledger
from mars.protocol.windows.open_panes import OpenPanes, Size
from mars.protocol.windows.panes import lowest_firsts, states_by_pane
from mars.protocol.windows.revising import Revising

WINDOWS_AT_ONCE = 100
"""Windows that one commit closes: each takes about a millisecond to finish. As long as it lasts all
other tasks of the process wait, so this and the next two are about 100 ms each."""

PANES_AT_ONCE = 8_000
"""Panes of which these windows are made, unless a single one has more: each costs some 12 us."""

ROWS_AT_ONCE = 100_000
"""States in these windows, unless a single one has more: each costs some 0.8 us."""

LONG_TURNS = 0.25
"""So much of a turn of about 100 ms is long."""

LATE_WINDOWS_NAMED_MAX = 1_000
"""Windows of one batch whose late rows are named apart; the newest stands for those beyond."""

States = Mapping[int, pl.DataFrame]
"""States by the start of their pane."""


class StoreWentBack(Exception):
    """The log contradicts what was read before: the store has lost or rewound something."""


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """One window's finished rows; `complete` is False where it lacks rows it should have had.

    `firsts` are the lowest offsets that may hold rows of it, for each lane that has any, and
    `rows` is how many were counted. A `revision` above 0 has those groups alone that late rows have
    changed; `deleted` are those of them that are no longer among the results.
    """

    window: Window
    complete: bool
    finished: Finished
    firsts: Mapping[Lane, int]
    rows: int
    revision: int = 0
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class WithheldResult:
    """A result of a window that is not sent, `detail` says why; `dead` are its references."""

    window: Window
    detail: str
    dead: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """How many rows a window has counted so far, and whether it lacks any."""

    window: Window
    rows: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a commit closes ahead of C, group by group.

    `upto_ms` is X, the end up to which groups are closed by then; `rows` are those of the groups in
    `windows`, whether HAVING lets them pass or not.
    """

    upto_ms: int | None = None
    windows: tuple[ClosedWindow, ...] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True)
class WholeSpan:
    """Where a version's windows are complete: those that begin and end within these times."""

    from_ms: int | None = None
    until_ms: int | None = None

    def holds(self, window: Window) -> bool:
        """True if a window lies within the bounds."""
        after_start = self.from_ms is None or window.start_ms >= self.from_ms
        return after_start and (self.until_ms is None or window.end_ms <= self.until_ms)


class Folding:
    """Folds log entries into panes, closes windows, and revises them.

    `merged` (M) holds the offsets through which rows were accounted by the last commit; a lane that
    is not named is accounted below 0 only. `closed_ms` (C) and `forgotten_ms` (D) are the last
    commit's, too. Between D and C lie windows that take late rows; unless a task revises, there are
    none.
    """

    def __init__(  # noqa: PLR0913 -- one for each thing that a record says
        self,
        plan: Plan,
        bucket: Bucket,
        *,
        merged: Mapping[Lane, int],
        closed_ms: int | None = None,
        forgotten_ms: int | None = None,
        revising: Revising | None = None,
        ledger: Ledger | None = None,
        bounds: WholeSpan | None = None,
        incomplete_before_ms: int | None = None,
        gaps: Mapping[Lane, int] | None = None,
        ahead_ms: int | None = None,
    ) -> None:
        self.plan = plan
        self.bucket = bucket
        self.merged: dict[Lane, int] = dict(merged)
        self.closed_ms = closed_ms
        self.forgotten_ms = closed_ms if forgotten_ms is None else forgotten_ms
        self.ahead_ms = ahead_ms
        self.revising = revising or Revising(plan, {}, ())
        self.bounds = bounds or WholeSpan()
        self.dead: list[bytes] = []
        self.incomplete_before_ms = incomplete_before_ms
        """Windows that begin before this may lack rows that Kafka no longer had."""
        self._contained: dict[Lane, int] = {}
        """Rows below these offsets are in the base."""
        self.gaps: dict[Lane, int] = dict(gaps or {})
        """Lanes that have lost rows and of which no row has come since, and the offsets behind."""
        self._behind_gaps: dict[Lane, int] = {}
        """Those of them whose next row has just been absorbed, and a time that it is not after."""
        self._ledger = ledger or Ledger()
        self._panes = OpenPanes(plan.window)
        self._begin()

    @property
    def is_steady(self) -> bool:
        """True if windows close as a whole, and no revision of a closed one is to come."""
        return not self.revising.pending

    def _begin(self) -> None:
        """What a watermark scope keeps besides."""

    def snapshot_lost(self, until_ms: int) -> None:
        """Rows of windows that begin before `until_ms` were saved, and cannot be read any more."""
        self.incomplete_before_ms = max(until_ms, self.incomplete_before_ms or until_ms)

    # ------------------------------------------------------------------------------- absorb

    def absorb_base(self, base: Entry) -> None:
        """Take the panes with which the log begins: no row below the base's offsets is missing."""
        self.absorb(base)
        for part in base.ranges:
            self._contained[part.lane] = max(part.next, self._contained.get(part.lane, 0))

    def contains(self, entry: Entry) -> bool:
        """True if the rows of an entry are in the base. Raises StoreWentBack for some of them."""
        contained = self._contained
        return bool(contained) and self._lies_below(contained, entry, "what the log's base holds")

    def absorb(self, entry: Entry) -> None:
        """Take one entry. Raises StoreWentBack if it lies on both sides of M or of the base."""
        if self.contains(entry):
            self._name_gone(one for one in _gone_of(entry) if one.rows)
            return
        accounted = self._accounted(entry)
        self._look_for_gaps(entry, accounted=accounted)
        if not accounted:
            self._count(entry)
        late, alive = self._sort_panes(entry.partial.panes)
        states = states_by_pane(entry.partial) if alive else {}
        if not accounted:
            closed, alive, states = self._closed_apart(alive, states)
            self._drop_late(entry, (*late, *closed))
            self._add(late_partly=sum(pane.rows for pane in alive if self._is_late_partly(pane)))
        self._keep(alive, states, accounted=accounted)

    def _look_for_gaps(self, entry: Entry, *, accounted: bool) -> None:
        """Whether rows of lanes that have lost some have come, and which of them are lost now.

        They are named below M too: they had been counted, but now their windows lack them.
        """
        if accounted:
            self._name_gone(_gone_of(entry))
        for lane, behind in self.gaps.items():
            starts = [pane.start_ms for pane in entry.partial.panes if _after(pane, lane, behind)]
            if starts and lane not in self._behind_gaps:
                # Of merged entries it is not known which rows came next: it may be any of them.
                pane_ms = max(starts) if entry.merged else min(starts)
                self._behind_gaps[lane] = self.plan.window.pane_end(pane_ms) - 1
        gone = {one.lane: one.next for one in _gone_of(entry)}
        self._end_gaps({lane: at for lane, at in self._behind_gaps.items() if lane in gone})
        self.gaps |= gone

    def reached(self, marks_ms: Mapping[Lane, int]) -> None:
        """The marks of the lanes, no older than the last entry that was absorbed: the next row of a
        lane that has lost some is not after its mark, either.
        """
        ends = self._behind_gaps.items()
        self._end_gaps({lane: min(at, marks_ms.get(lane, at)) for lane, at in ends})

    def _end_gaps(self, next_ms: Mapping[Lane, int]) -> None:
        """Rows that are gone belong to windows up to those of the next row of their lane, and
        as far beyond as that row may be out of order.
        """
        options = self.plan.options
        disorder_ms = options.delay_ms + options.key_lag_ms + options.lateness_ms
        for lane, at in next_ms.items():
            del self.gaps[lane], self._behind_gaps[lane]
            before_ms = at + disorder_ms + 1
            self.incomplete_before_ms = max(before_ms, self.incomplete_before_ms or before_ms)

    def _name_gone(self, gone: Iterable[RejectedRange]) -> None:
        """Rows that were counted, or are in the base: other buckets may lack them all the same."""
        self.dead += dead_rejections(self.plan, Rejections((), tuple(gone)))

    def _is_complete(self, window: Window) -> bool:
        before = self.incomplete_before_ms
        whole = not self.gaps and (before is None or window.start_ms >= before)
        return whole and self.bounds.holds(window)

    def _accounted(self, entry: Entry) -> bool:
        return self._lies_below(self.merged, entry, "what was merged")

    @staticmethod
    def _lies_below(offsets: Mapping[Lane, int], entry: Entry, what: str) -> bool:
        if all(part.next <= offsets.get(part.lane, 0) for part in entry.ranges):
            return True
        if all(part.first >= offsets.get(part.lane, 0) for part in entry.ranges):
            return False
        raise StoreWentBack(f"entry {entry.seq} straddles {what}: {entry.ranges}")

    def _count(self, entry: Entry) -> None:
        counts = entry.partial.counts
        self._add(
            read=counts.read,
            filtered=counts.filtered,
            bad=counts.bad,
            future=counts.future,
            counted=counts.counted,
        )
        self.dead += dead_rejections(self.plan, entry.partial.rejections)

    def _add(self, **amounts: int) -> None:
        ledger = self._ledger
        self._ledger = Ledger(
            **{
                name: getattr(ledger, name) + amounts.get(name, 0)
                for name in Ledger.__dataclass_fields__
            }
        )

    def _is_late(self, pane: PaneRows) -> bool:
        gone = self.forgotten_ms
        return gone is not None and self.plan.window.last_end(pane.start_ms) <= gone

    def _is_late_partly(self, pane: PaneRows) -> bool:
        gone = self.forgotten_ms
        return gone is not None and self.plan.window.first_end(pane.start_ms) <= gone

    def _sort_panes(
        self, panes: Sequence[PaneRows]
    ) -> tuple[tuple[PaneRows, ...], tuple[PaneRows, ...]]:
        late: list[PaneRows] = []
        alive: list[PaneRows] = []
        for pane in panes:
            (late if self._is_late(pane) else alive).append(pane)
        return tuple(late), tuple(alive)

    def _drop_late(self, entry: Entry, late: tuple[PaneRows, ...]) -> None:
        rows = sum(pane.rows for pane in late)
        self._add(late=rows, counted=-rows)
        by_window: Counter[Window] = Counter()
        for pane in late:
            by_window[self.plan.window.last_window(pane.start_ms)] += pane.rows
        windows = sorted(by_window)
        for window in windows[LATE_WINDOWS_NAMED_MAX - 1 : -1]:
            by_window[windows[-1]] += by_window.pop(window)
        for window, count in sorted(by_window.items()):
            self.dead += dead_late(self.plan, entry.ranges, window, count)

    def _closed_apart(
        self, alive: tuple[PaneRows, ...], states: States
    ) -> tuple[tuple[PaneRows, ...], tuple[PaneRows, ...], States]:
        """Rows that come too late although their windows are open, the others, and their states."""
        return (), alive, states

    def _keep(self, alive: Sequence[PaneRows], states: States, *, accounted: bool) -> None:
        if not alive:
            return
        if len(self._panes) + len(alive) > OPEN_PANES_MAX:
            self._check_open(alive)
        for pane in alive:
            part = states.get(pane.start_ms)
            self._panes.at(pane.start_ms).add(self.plan, pane, part)
            if not accounted:
                self.revising.touch(self._closed_windows_of(pane), part)

    def _closed_windows_of(self, pane: PaneRows) -> Iterator[Window]:
        """The windows between D and C that hold a pane: each was emitted, if it had rows."""
        if self.closed_ms is None or self.closed_ms == self.forgotten_ms:
            return iter(())
        return self.plan.window.windows_of(
            [pane.start_ms], after_ms=self.forgotten_ms, upto_ms=self.closed_ms
        )

    def _check_open(self, alive: Sequence[PaneRows]) -> None:
        """Raise TaskLimit if these panes are too many beside those that are open."""
        starts = self._panes.keys() | {pane.start_ms for pane in alive}
        if len(starts) <= OPEN_PANES_MAX:
            return
        raise TaskLimit(
            f"its rows lie in {len(starts)} slices of {self.plan.window.pane_ms} ms that are not "
            f"closed yet, from {moment(min(starts))} to {moment(max(starts))}, and "
            f"{OPEN_PANES_MAX} may be open at a time: see whether the event times are right; if "
            "so, delete the task and register it again with longer windows, a longer slide, a "
            "shorter delay or lateness"
        )

    # --------------------------------------------------------------------- watermark scopes

    @property
    def settled(self) -> bool:
        """True once a commit may be made."""
        return True

    def settle(self) -> None:
        """All rows below M have been read again."""

    def level(self, head: Head, level_ms: int | None) -> int | None:
        """The watermark of this bucket, given that of the partitions."""
        return level_ms

    def close_ahead(self, closed_ms: int | None) -> Ahead:
        """What is to be closed group by group of the windows that end after `closed_ms`."""
        return Ahead(self.ahead_ms)

    def behind(self, level_ms: int | None) -> bool:
        """True if C could go on although no window is due, and nothing else may say so.

        So it is where nothing is left to read but marks, such as those of a lane that is read again
        for other buckets.
        """
        closed_ms = self.closed_by(level_ms)
        return closed_ms is not None and (self.closed_ms is None or self.closed_ms < closed_ms)

    def has_ahead(self) -> bool:
        """Whether `close_ahead` would close anything now."""
        return False

    def size_ahead(self) -> Size:
        """What `close_ahead` would close now, all of it."""
        return Size()

    # -------------------------------------------------------------------------------- close

    def due(self, watermark_ms: int | None) -> list[Window]:
        """The windows that the watermark has passed and that have rows, in order."""
        return [] if watermark_ms is None else list(self._ending(watermark_ms))

    def _ending(self, upto_ms: int | None) -> Iterator[Window]:
        """The windows with rows that are not closed and end by then, in order."""
        shape, closed_ms = self.plan.window, self.closed_ms
        panes: Iterable[int] = self._panes
        if closed_ms is not None and closed_ms != self.forgotten_ms:
            panes = self._panes.since(shape.first_needed(closed_ms))
        return shape.windows_of(panes, after_ms=closed_ms, upto_ms=upto_ms)

    def reach(self, watermark_ms: int | None) -> int | None:
        """The watermark, or an earlier time up to which one commit can close windows.

        So the task never keeps the others waiting for long: what is left is due at once again.
        """
        if watermark_ms is None:
            return None
        left = self._too_many_from(self._ending(watermark_ms))
        return watermark_ms if left is None else self.plan.window.closed_by(left.end_ms - 1)

    def _too_many_from(self, windows: Iterable[Window]) -> Window | None:
        """The first of these windows that is to be left to the next commit; None: none is."""
        all_windows, counted = tee(windows)
        size = Size()
        for window, one in zip(all_windows, self._panes.sizes(counted), strict=True):
            size += one
            if size.windows > 1 and turns(size) > 1:
                return window
        return None

    def size(self, windows: Iterable[Window]) -> Size:
        """What closing these windows takes; they are in order."""
        return sum(self._panes.sizes(windows), Size())

    def window_states(self, window: Window) -> pl.DataFrame | None:
        """The states of a window, one row per key; None if it has no rows."""
        pieces = self._panes.within(window)
        parts = [states for piece in pieces for states in piece.frames(self.plan)]
        if not parts:
            return None
        self._panes.has_merged(window, len(parts), sum(part.height for part in parts))
        if len(parts) > 1:
            return limited_window(self.plan, window, parts)
        return limited(self.plan, parts[0])

    def close(self, windows: Sequence[Window]) -> list[ClosedWindow]:
        """The finished rows of these windows; the panes stay until `committed` is called."""
        closed = []
        for window in windows:
            states = self.window_states(window)
            if states is not None:
                closed.append(self._closed(window, finish(self.plan, states, window)))
        return closed

    def contents(self, windows: Iterable[Window]) -> tuple[Contents, ...]:
        """What tells that what `close` makes of these windows is still the same: a window gains
        rows, and loses none.
        """
        return tuple(Contents(one, self.rows_of(one), self._is_complete(one)) for one in windows)

    def _closed(self, window: Window, finished: Finished) -> ClosedWindow:
        complete, firsts = self._is_complete(window), lowest_firsts(self._panes.within(window))
        return ClosedWindow(window, complete, finished.sendable(), firsts, self.rows_of(window))

    def revisable(self) -> list[Window]:
        """The closed windows that one commit is to revise: the first of those that are pending."""
        pending = self.revising.pending
        left = self._too_many_from(pending)
        return [window for window in pending if left is None or window < left]

    def revise(self, windows: Iterable[Window]) -> list[ClosedWindow]:
        """New revisions of these windows; all rows below M must have been read again."""
        return [revised for window in windows for revised in self._revised(window)]

    def _revised(self, window: Window) -> Iterator[ClosedWindow]:
        """The groups that late rows have changed; apart those that are no longer among the results:
        HAVING lets them pass no more, or they are withheld.
        """
        whole = self.window_states(window)
        if whole is None:
            return
        states, number = self.revising.chosen(window, whole), self.revising.next_number(window)
        revised = self._closed(window, finish(self.plan, states, window))
        yield replace(revised, revision=number)
        withheld = revised.finished.withheld
        if self.plan.having is not None:
            refused = self._closed(window, finish(self.plan, states, window, refused=True)).finished
            withheld += refused.withheld
            gone = replace(refused, withheld=())
            yield replace(revised, finished=gone, revision=number, deleted=True)
        if withheld:
            gone = retractions(self.plan, window, withheld)
            yield replace(revised, finished=gone, revision=number, deleted=True)

    def size_to_revise(self) -> Size:
        """What all revisions that are to come take; of their groups those alone that change."""
        pending = self.revising.pending
        return sum(
            (
                one
                if (touched := self.revising.rows(window)) is None
                else replace(one, rows=touched)
                for window, one in zip(pending, self._panes.sizes(pending), strict=True)
            ),
            Size(),
        )

    def rows_of(self, window: Window) -> int:
        """How many rows a window has counted so far."""
        return sum(piece.rows for piece in self._panes.within(window))

    def closed_by(self, watermark_ms: int | None) -> int | None:
        """C after everything that the watermark has passed is closed; it never goes back."""
        if watermark_ms is None:
            return self.closed_ms
        closed = self.plan.window.closed_by(watermark_ms)
        return closed if self.closed_ms is None else max(closed, self.closed_ms)

    def forgotten_by(
        self, watermark_ms: int | None, owed: Collection[Window], *, none_to_come: bool
    ) -> int | None:
        """D after a commit at this watermark; it never goes back, nor over a window that is owed.

        `none_to_come`: no further row of this version will be read, so none can be late.
        """
        closed, shape = self.closed_by(watermark_ms), self.plan.window
        lateness_ms = self.plan.options.lateness_ms
        if closed is None or not lateness_ms:
            return closed
        wanted = closed
        if not none_to_come:
            if watermark_ms is None:
                return self.forgotten_ms
            wanted = min(closed, shape.closed_by(watermark_ms - lateness_ms))
        if owed:
            wanted = min(wanted, shape.closed_by(min(owed).end_ms - 1))
        return wanted if self.forgotten_ms is None else max(wanted, self.forgotten_ms)

    def open_windows(self) -> list[Window]:
        """All windows with rows that are not closed, in order."""
        return list(self._ending(None))

    # ------------------------------------------------------------------------------- commit

    def _gone(self, upto_ms: int | None) -> list[int]:
        """The panes that no window needs which ends after this time."""
        if upto_ms is None:
            return []
        return self._panes.before(self.plan.window.first_needed(upto_ms))

    @property
    def counted(self) -> Ledger:
        """The ledger as it stands as long as no more is emitted than what is committed."""
        return self._ledger

    def ledger(self, closed_ms: int | None, ahead_rows: int = 0) -> Ledger:
        """The ledger as it stands once everything up to `closed_ms` is emitted, and so many rows
        of windows that end later. All that is open must have been read.
        """
        gone = set(self._gone(closed_ms))
        still_open = sum(pane.rows for start, pane in self._panes.items() if start not in gone)
        ledger = self._ledger
        return Ledger(
            **{
                **{name: getattr(ledger, name) for name in Ledger.__dataclass_fields__},
                "emitted": ledger.counted - still_open + ahead_rows,
            }
        )

    def needed(self, through: Mapping[Lane, int], forgotten_ms: int | None) -> dict[Lane, int]:
        """L: below these offsets nothing is needed once `forgotten_ms` is committed."""
        gone = set(self._gone(forgotten_ms))
        needed = dict(through)
        for start, pane in self._panes.items():
            if start in gone:
                continue
            for lane, first in pane.first.items():
                needed[lane] = min(first, needed.get(lane, first))
        return needed

    def committed(
        self,
        merged: Mapping[Lane, int],
        closed_ms: int | None,
        ledger: Ledger,
        forgotten_ms: int | None = None,
        ahead_ms: int | None = None,
    ) -> bool:
        """The progress record with these values is durable: forget what it closed for good.

        True if that was anything.
        """
        self.merged = dict(merged)
        self.closed_ms = closed_ms
        self.forgotten_ms = closed_ms if forgotten_ms is None else forgotten_ms
        self.ahead_ms = ahead_ms
        gone = self._gone(self.forgotten_ms)
        self._panes.drop(gone)
        self._ledger = ledger
        self.dead = []
        return bool(gone)

    def base(self, seq: Sequence64, through: Mapping[Lane, int]) -> Entry:
        """One entry with all panes that are kept, in place of every entry up to `seq` (R9).

        Everything in it must be accounted: call it right after a commit. It covers the offsets
        `through` which the log was read, and what the base before it did; what lies between them
        and M is still to come again.
        """
        read = {
            lane: max(min(at, through.get(lane, at)), self._contained.get(lane, 0))
            for lane, at in self.merged.items()
        }
        return self._merged_entry(seq, read, self.forgotten_ms)

    def bases(self, seq: Sequence64, through: Mapping[Lane, int]) -> tuple[Entry, ...]:
        """All that is to stand in place of every entry up to `seq`."""
        return (self.base(seq, through),)

    def snapshot(self, merged: Mapping[Lane, int], forgotten_ms: int | None) -> Entry | None:
        """All panes that stay once `forgotten_ms` is committed; None if a snapshot may be wrong.

        Everything below `merged` must have been read. Rows that are gone spoil the windows of the
        next ones of their lane, which is not yet known of them.
        """
        return None if self.gaps else self._merged_entry(Sequence64(0), merged, forgotten_ms)

    def ends_ms(self, panes: Iterable[PaneRows]) -> int:
        """The end of the last window that any of these panes is part of."""
        return max(self.plan.window.last_end(pane.start_ms) for pane in panes)

    def _merged_entry(
        self, seq: Sequence64, through: Mapping[Lane, int], forgotten_ms: int | None
    ) -> Entry:
        gone = set(self._gone(forgotten_ms))
        staying = {start: pane for start, pane in self._panes.items() if start not in gone}
        parts = [
            states for pane in staying.values() if (states := pane.states(self.plan)) is not None
        ]
        panes = tuple(
            PaneRows(start, pane.rows, dict(pane.first)) for start, pane in staying.items()
        )
        needed = self.needed(through, forgotten_ms)
        ranges = tuple(Range(lane, min(needed[lane], at), at) for lane, at in through.items())
        partial = Partial(
            bucket=self.bucket,
            counts=RowCounts(),
            panes=panes,
            states=encode_states(pl.concat(parts)) if parts else b"",
            rejections=Rejections(),
        )
        return Entry(seq, self.plan.version, ranges, partial)


def turns(size: Size) -> float:
    """How many turns of about 100 ms closing takes."""
    return max(size.windows / WINDOWS_AT_ONCE, size.panes / PANES_AT_ONCE, size.rows / ROWS_AT_ONCE)


def takes_long(size: Size) -> bool:
    """True if closing takes a good part of a turn, so that others should not wait for it.

    Rows alone do not: they are finished quickly, and drafted before.
    """
    return turns(replace(size, rows=0)) > LONG_TURNS


def _gone_of(entry: Entry) -> tuple[RejectedRange, ...]:
    """The ranges of an entry whose rows Kafka no longer had."""
    return tuple(one for one in entry.partial.rejections.ranges if one.reason is Reason.GONE)


def _after(pane: PaneRows, lane: Lane, offset: int) -> bool:
    """Whether rows of a pane lie in a lane, and all of them at or above an offset."""
    first = pane.first.get(lane)
    return first is not None and first >= offset
