"""Where the rows of one version went in one bucket: read again, counted, named, late or gone.

What lies below the merged-through offsets M only rebuilds state: its rows were counted, its
references emitted, by whoever committed the last record (R5). What lies at or above M is counted
once.

A log may begin with a base, which holds the states of all rows below its offsets. Where it was
restored from a snapshot, rows below them come again, for buckets whose own snapshot is older:

    lane  ──────┬──────────────┬────────────────────┬──────────▶
             lowest L          S                    M
                 in the base: skip   states only       count
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mars.core.plan import Plan
from mars.core.types import Entry, Lane, PaneRows, RejectedRange, Rejections
from mars.core.windows import Window
from mars.engine.codec.dead import dead_late, dead_rejections
from mars.protocol.ports import Ledger, Progress
from mars.protocol.windows.gaps import gone_of

LATE_WINDOWS_NAMED_MAX = 1_000
"""Windows of one batch whose late rows are named apart; the newest stands for those beyond."""


class StoreWentBack(Exception):
    """The log contradicts what was read before: the store has lost or rewound something."""


class Input:
    """The reading of one version's entries in one bucket.

    It begins at M of the last `record`; before the first one, at the offsets at which the version
    starts. `dead` are the references that the next commit is to emit.
    """

    def __init__(
        self, plan: Plan, merged: Mapping[Lane, int], record: Progress | None = None
    ) -> None:
        self.merged: dict[Lane, int] = dict(merged)
        """M: rows below were accounted by the last commit; of a lane without one, none."""
        self.dead: list[bytes] = []
        self._plan = plan
        self._contained: dict[Lane, int] = {}
        """Rows below these offsets are in the base."""
        self._ledger = Ledger() if record is None else record.ledger
        self._needed: Mapping[Lane, int] = {}
        """Entries below these offsets hold nothing that is open, and maybe rows that were late."""
        self._over: Mapping[Lane, int] = {}
        """A base up to these offsets holds nothing that was not emitted since."""
        if record is not None and (plan.has_sessions or plan.counts_by_key):
            self._needed = record.needed
            if plan.counts_by_key and record.snapshot is None:
                self._over = record.needed

    # ------------------------------------------------------------------------------ entries

    def contains(self, entry: Entry) -> bool:
        """True if the rows of an entry are in the base. Raises StoreWentBack for some of them."""
        contained = self._contained
        return bool(contained) and _lies_below(contained, entry, "what the log's base holds")

    def passes_over(self, entry: Entry) -> bool:
        """True if the rows of an entry of the log are in the base, or none is of an open session.

        Raises StoreWentBack as `contains` does.
        """
        needed = self._needed
        if needed and all(part.next <= needed.get(part.lane, 0) for part in entry.ranges):
            return True
        return self.contains(entry)

    def is_over(self, base: Entry) -> bool:
        """True if all that a base holds was emitted by the time of the last record."""
        over = self._over
        return bool(over) and all(part.next <= over.get(part.lane, 0) for part in base.ranges)

    def accounts_for(self, entry: Entry) -> bool:
        """True if an entry lies below M. Raises StoreWentBack if it lies on both sides."""
        return _lies_below(self.merged, entry, "what was merged")

    def has_base(self, base: Entry) -> None:
        """No row below the base's offsets is missing."""
        for part in base.ranges:
            self._contained[part.lane] = max(part.next, self._contained.get(part.lane, 0))

    def pass_over(self, entry: Entry) -> None:
        """The base contains it. Its rows may be gone for other buckets all the same."""
        self._name(one for one in gone_of(entry) if one.rows)

    def take(self, entry: Entry, *, accounted: bool) -> None:
        """Count the rows of an entry, or only name those that are gone if they were counted."""
        if accounted:
            # They had been counted, but now their windows lack them.
            self._name(gone_of(entry))
            return
        counts = entry.partial.counts
        self._ledger += Ledger(
            read=counts.read,
            filtered=counts.filtered,
            bad=counts.bad,
            future=counts.future,
            counted=counts.counted,
        )
        self.dead += dead_rejections(self._plan, entry.partial.rejections)

    def drop_late(self, entry: Entry, late: Sequence[PaneRows]) -> None:
        """The rows of these panes of an entry came too late: they are named, window by window."""
        rows = sum(pane.rows for pane in late)
        self._ledger += Ledger(late=rows, counted=-rows)
        lanes = {lane for pane in late for lane in pane.first}
        ranges = [part for part in entry.ranges if part.lane in lanes] or entry.ranges
        by_window: Counter[Window] = Counter()
        for pane in late:
            by_window[self._plan.window.last_window(pane.start_ms)] += pane.rows
        windows = sorted(by_window)
        for window in windows[LATE_WINDOWS_NAMED_MAX - 1 : -1]:
            by_window[windows[-1]] += by_window.pop(window)
        for window, count in sorted(by_window.items()):
            self.dead += dead_late(self._plan, ranges, window, count, entry.partial.bucket)

    def late_partly(self, rows: int) -> None:
        """So many of the counted rows missed some of their windows."""
        self._ledger += Ledger(late_partly=rows)

    def _name(self, gone: Iterable[RejectedRange]) -> None:
        self.dead += dead_rejections(self._plan, Rejections((), tuple(gone)))

    # ------------------------------------------------------------------------------- commit

    @property
    def ledger(self) -> Ledger:
        """The ledger as it stands as long as no more is emitted than what is committed."""
        return self._ledger

    def committed(self, merged: Mapping[Lane, int], ledger: Ledger) -> None:
        """A record with this M is durable, and the references with it."""
        self.merged = dict(merged)
        self._ledger = ledger
        self.dead = []

    def covered(self, through: Mapping[Lane, int]) -> dict[Lane, int]:
        """The offsets below which all that is accounted is in memory, once the log was read
        `through` these: what lies between them and M is still to come again.
        """
        return {
            lane: max(min(at, through.get(lane, at)), self._contained.get(lane, 0))
            for lane, at in self.merged.items()
        }


def _lies_below(offsets: Mapping[Lane, int], entry: Entry, what: str) -> bool:
    for part in entry.ranges:
        if part.next > offsets.get(part.lane, 0):
            break
    else:
        return True
    for part in entry.ranges:
        if part.first < offsets.get(part.lane, 0):
            raise StoreWentBack(f"entry {entry.seq} straddles {what}: {entry.ranges}")
    return False
