"""Finished sessions, computed again from the rows that their results name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from api.services.context import Ports
from api.services.inside.progress import ProgressTail
from api.services.inside.rereading import NotReread, Rereading
from api.services.inside.verification import Verified, no_rows
from api.services.inside.windows import WindowService
from mars.client.answers import Verification
from mars.core.definitions import TaskDefinition
from mars.core.errors import Conflict, NotFound
from mars.core.plan import Plan
from mars.core.types import Bucket, Reason, Topic
from mars.core.windows import Window, moment
from mars.inspect.verifying import compare
from mars.inspect.verifying_sessions import (
    EndsKnown,
    SessionRecount,
    covered,
    ends_known,
    late_rows_of,
    pieces_without,
    spans_of_sessions,
)
from mars.protocol.ports import (
    CommittedRow,
    DeadLetter,
    Progress,
    WantedWindow,
    window_of_row,
)

SESSIONS_AT_ONCE = (1_000, 100, 10, 1)
"""So many of the newest sessions are verified, or fewer where their rows are too many or gone."""

NEWEST_ROWS = 1_000
"""Rows of each partition among which the newest sessions are."""

LETTERS_A_PAGE = 10_000
"""References to late rows that are asked for at once."""

PAGES_MAX = 30
"""Pages of them that are looked through, the oldest first: each may take a second."""

Computed = dict[bytes, tuple[Bucket, bytes]]
"""Bucket and value of rows, by key."""


@dataclass(frozen=True, slots=True)
class _Results:
    """The newest rows, or those that are wanted, and the partitions that have older ones."""

    rows: Sequence[CommittedRow]
    cut: frozenset[int]


class SessionVerifier:
    """Verifies all sessions that begin at a time, or the newest ones."""

    def __init__(
        self,
        ports: Ports,
        progress: ProgressTail,
        windows: WindowService,
        rereading: Rereading,
    ) -> None:
        self._ports = ports
        self._progress = progress
        self._windows = windows
        self._rereading = rereading

    def verify(
        self, definition: TaskDefinition, plans: Mapping[int, Plan], wanted: WantedWindow | None
    ) -> Verification:
        """Compute sessions again and compare. Raises as `VerifyService.verify` does."""
        plans = {number: plan for number, plan in plans.items() if plan.has_sessions}
        records = self._progress.records(definition)  # before the results: all that it calls closed
        results = self._results(definition, plans, wanted)
        if not results.rows:
            raise NotFound(no_rows(definition.name, wanted, "session"))
        if not all(row.ranges for row in results.rows):
            raise Conflict(
                "a session does not name the offsets it was counted from: somebody else wrote it"
            )
        *larger, least = SESSIONS_AT_ONCE if wanted is None else SESSIONS_AT_ONCE[:1]
        for most in larger:
            with suppress(NotReread):
                return self._newest(definition, plans, wanted, records, results, most)
        return self._newest(definition, plans, wanted, records, results, least)

    def _results(
        self, definition: TaskDefinition, plans: Mapping[int, Plan], wanted: WantedWindow | None
    ) -> _Results:
        topics = sorted({plan.options.output_topic for plan in plans.values()})
        found = [
            self._ports.results.recent(Topic(topic), definition.name, NEWEST_ROWS, wanted)
            for topic in topics
        ]
        rows = [row for one in found for row in one.rows if row.version in plans]
        # Of several topics none says which partition is meant: then all may have older rows.
        cut = found[0].cut if len(found) == 1 else frozenset(row.partition for row in rows)
        return _Results(rows, cut)

    def _newest(
        self,
        definition: TaskDefinition,
        plans: Mapping[int, Plan],
        wanted: WantedWindow | None,
        records: Sequence[Progress],
        results: _Results,
        most: int,
    ) -> Verification:
        rows = sorted(results.rows, key=lambda row: row.window, reverse=True)
        if wanted is None:
            chosen, left_out_ms = _newest_of(rows, most)
            known = ends_known(results.rows, results.cut, records, left_out_ms)
        else:
            chosen, known = rows, EndsKnown({}, {})
        outcome = Verified()
        versions = sorted({row.version for row in chosen})
        for version in versions:
            own = [row for row in chosen if row.version == version]
            self._compare(definition, plans[version], own, results, records, known, outcome)
        ends = [row.window.end_ms for row in chosen]
        window = Window(max(ends), min(row.window.start_ms for row in chosen))
        words = f"the sessions that end from {moment(min(ends))} to {moment(max(ends))}"
        if wanted is not None:
            words = f"the sessions that begin at {moment(wanted.start_ms)}"
        complete = all(row.complete for row in chosen)
        return outcome.told(words, definition.name, versions, complete, window, several=True)

    def _compare(
        self,
        definition: TaskDefinition,
        plan: Plan,
        rows: Sequence[CommittedRow],
        results: _Results,
        records: Sequence[Progress],
        known: EndsKnown,
        outcome: Verified,
    ) -> None:
        own = [record for record in records if record.version == plan.version]
        merged = {
            one.bucket: one.merged for one in own if (one.version, one.bucket) in known.after_ms
        }
        late = late_rows_of(plan.version, self._letters(definition))
        pieces = pieces_without(spans_of_sessions(rows, merged), late)
        recount = SessionRecount(plan)
        self._rereading.read(definition, plan, pieces, recount)
        computed = recount.rows()
        emitted = {row.key for row in rows}
        expected = {key: computed[key] for key in emitted & computed.keys()}
        unmatched = {
            key: (bucket, value)
            for key, (bucket, value) in computed.items()
            if key not in emitted
            and known.hold((plan.version, bucket), window_of_row(key, value).end_ms)
        }
        if unmatched and plan.having is None:
            expected |= self._missing(definition, plan, unmatched, results, known)
        differences = compare(plan.version, rows, expected)
        if differences and late.named < self._late(definition, plan.version):
            raise Conflict(
                "some sessions seem to differ, and not all rows that came too late are named in "
                "mars.dead (any more), so it cannot be told whether these are why: name a newer "
                "one by window_start"
            )
        outcome.rows += len(emitted)
        outcome.source_rows += recount.rows_read
        outcome.differences += differences

    def _missing(
        self,
        definition: TaskDefinition,
        plan: Plan,
        unmatched: Computed,
        results: _Results,
        known: EndsKnown,
    ) -> Computed:
        """What nobody has emitted. Rows that lie further back may make one session of some, and
        that one is open or was emitted just now.
        """
        plans = {plan.version: plan}
        others = list(self._windows.open_sessions(definition, plans).get(plan.version, ()))
        now = self._results(definition, plans, None).rows  # once more: behind what was open
        fresh = {row.key for row in now} - {row.key for row in results.rows}
        others += [
            (row.key, row.value)
            for row in now
            if row.key in fresh or not known.hold((row.version, row.bucket), row.window.end_ms)
        ]
        return {
            key: (bucket, value)
            for key, (bucket, value) in unmatched.items()
            if key not in fresh and not covered(key, value, others)
        }

    def _letters(self, definition: TaskDefinition) -> Iterator[DeadLetter]:
        after: Mapping[int, int] = {}
        for _page in range(PAGES_MAX):
            page = self._ports.dead.page(definition.name, Reason.LATE.value, after, LETTERS_A_PAGE)
            yield from page.letters
            if page.next is None:
                return
            after = page.next

    def _late(self, definition: TaskDefinition, version: int) -> int:
        """How many rows came too late by now, so that none is taken for known that is not."""
        records = self._progress.records(definition)
        return sum(record.ledger.late for record in records if record.version == version)


def _newest_of(rows: Sequence[CommittedRow], most: int) -> tuple[Sequence[CommittedRow], float]:
    """The first rows of these, and up to which end others are left out."""
    if len(rows) <= most:
        return rows, float("-inf")
    left_out_ms = rows[most].window.end_ms
    chosen = [row for row in rows[:most] if row.window.end_ms > left_out_ms]
    return chosen or rows[:most], left_out_ms
