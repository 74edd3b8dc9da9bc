"""A finished window, computed again from the rows that its results name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, Ports
from api.services.inside.naming import AskedWindow, name_of, number_of_row, wanted_of
from api.services.inside.progress import ProgressTail
from api.services.inside.rereading import Rereading
from api.services.inside.results import newest_revisions
from api.services.inside.verification import Verified, no_rows, words_of
from api.services.inside.verifying_keys import KeyVerifier
from api.services.inside.verifying_sessions import SessionVerifier
from api.services.inside.windows import WindowService
from api.services.tasks import TaskService
from mars.client.answers import Verification
from mars.core.definitions import TaskDefinition
from mars.core.errors import Conflict, NotFound
from mars.core.plan import Plan
from mars.core.types import Bucket, Topic
from mars.core.windows import Counting
from mars.core.windows.counting import number_of
from mars.core.words import counted
from mars.inspect.verifying import (
    Recount,
    Spans,
    compare,
    pieces_of,
    spans_of,
    spans_of_counted,
    still_to_emit,
)
from mars.protocol.ports import CommittedRow, WantedNumber, WantedWindow

Named = WantedWindow | WantedNumber
"""A window as a person names it."""

RESULT_ROWS_MAX = 100_000
"""Emitted rows of a window: some 100 MB of memory, with those computed again."""

NEWEST_ROWS = 1_000
"""Rows of each partition in which the last finished window is looked for."""


class VerifyService:
    """What the path /v1/tasks/{name}/verify does."""

    def __init__(
        self,
        ports: Ports,
        compiler: TaskCompiler,
        buckets: BucketCount,
        tasks: TaskService,
        progress: ProgressTail,
        windows: WindowService,
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._buckets = buckets
        self._tasks = tasks
        self._progress = progress
        self._rereading = Rereading(ports, buckets)
        self._sessions = SessionVerifier(ports, progress, windows, self._rereading)
        self._keys = KeyVerifier(ports, progress, self._rereading)

    def verify(self, name: str, asked: AskedWindow) -> Verification:
        """Compute a window again (None: the last finished one) and compare; of sessions all that
        begin then (the last ones); of rows of each key the newest windows.

        Raises NotFound where there is no such window, Rejected for what names none of the task's,
        Conflict where it cannot be computed again (any more, or not yet), Unavailable.
        """
        definition = self._tasks.show(name)
        plans = self._compiler.plans(definition)
        version = definition.current.version
        named = wanted_of(plans, version, asked, anywhere=True)
        current = plans.get(version)
        if current is not None and current.counts_by_key and not isinstance(named, WantedWindow):
            return self._keys.verify(definition, current, named)
        plans = {number: plan for number, plan in plans.items() if not plan.counts_by_key}
        if current is not None and current.has_sessions and not isinstance(named, WantedNumber):
            return self._sessions.verify(definition, plans, named)
        if current is not None and current.counts_rows:
            plans = {version: current}  # each version counts from 0
            _check_counted(current)
        wanted = self._last_finished(definition, plans) if named is None else named
        rows = self._rows(definition, plans, wanted, RESULT_ROWS_MAX)
        if not rows:
            raise NotFound(no_rows(definition.name, wanted))
        _check_scope(plans[version] for version in {row.version for row in rows} & plans.keys())
        return self._verified(definition, plans, rows, wanted)

    # ------------------------------------------------------------------------------- results

    def _rows(
        self,
        definition: TaskDefinition,
        plans: Mapping[int, Plan],
        wanted: Named | None,
        rows_max: int,
    ) -> list[CommittedRow]:
        """Rows from the output topics of all versions that are kept."""
        topics = sorted({plan.options.output_topic for plan in plans.values()})
        recent = [
            self._ports.results.recent(Topic(topic), definition.name, rows_max + 1, wanted)
            for topic in topics
        ]
        sessions = {number for number, plan in plans.items() if plan.has_sessions}
        found = [
            row
            for one in recent
            for row in one.rows
            if row.version >= definition.first_version and row.version not in sessions
        ]
        if wanted is not None and len(found) > rows_max:
            raise Conflict(
                f"the window has more than {rows_max} result rows, too many to be verified here: "
                "compute it with a batch engine over the ranges in the header mars-ranges"
            )
        if wanted is not None and found and any(one.cut_at_ms is not None for one in recent):
            raise Conflict(
                "too many rows have come to the output topic since, so not all of the window can "
                "be found: verify a newer one"
            )
        return found

    def _last_finished(self, definition: TaskDefinition, plans: Mapping[int, Plan]) -> Named:
        by_window: defaultdict[Named, list[CommittedRow]] = defaultdict(list)
        rows = self._rows(definition, plans, None, NEWEST_ROWS)
        if any(plan.counts_rows for plan in plans.values()):
            numbered = [(name, row) for row in rows if (name := number_of_row(plans, row))]
            for name, row in sorted(numbered, key=lambda one: one[0].name, reverse=True):
                by_window[name].append(row)
        else:
            for row in sorted(rows, key=lambda row: row.window, reverse=True):
                by_window[name_of(plans.values(), row.window)].append(row)
        unfinished = ""
        for wanted, own in by_window.items():
            unfinished = self._unfinished(definition, plans, own, wanted)
            if not unfinished:
                return wanted
        task = definition.name
        why = unfinished or f"`mars why {task}` says what its first result waits for"
        raise NotFound(f"no window of task {task} can be verified yet: {why}")

    def _unfinished(
        self,
        definition: TaskDefinition,
        plans: Mapping[int, Plan],
        rows: Sequence[CommittedRow],
        wanted: Named,
    ) -> str:
        """Which window buckets have still to emit, and what to do; empty if none has."""
        records = self._progress.records(definition)
        waiting = set[Bucket]()
        for version, own in _by_version(rows).items():
            plan = plans.get(version)
            if plan is None:
                continue
            spans = self._spans(plan, own, wanted)
            waiting |= still_to_emit(records, plan, spans, wanted.among(plan.window))
        if not waiting:
            return ""
        return (
            f"{counted(len(waiting), 'bucket')} of {self._buckets()} may have rows of "
            f"{words_of(wanted)} still to emit; ask again in some seconds, and `mars why "
            f"{definition.name}` says what they wait for"
        )

    # ----------------------------------------------------------------------------- comparing

    def _verified(
        self,
        definition: TaskDefinition,
        plans: Mapping[int, Plan],
        rows: Sequence[CommittedRow],
        wanted: Named,
    ) -> Verification:
        unfinished = self._unfinished(definition, plans, rows, wanted)
        if unfinished:
            raise Conflict(f"the window of task {definition.name} is not finished: {unfinished}")
        outcome = Verified()
        versions = _by_version(rows)
        for version, own in versions.items():
            plan = plans.get(version)
            if plan is None:
                raise Conflict(
                    f"version {version} of task {definition.name}, which wrote the window, is no "
                    "longer kept, and neither is its query: verify a newer window"
                )
            if plan.folds:
                raise Conflict(
                    f"task {definition.name} folds groups over its max_keys: which ones have a row "
                    "of their own is decided by the order in which they came, and is not recomputed"
                )
            self._compare(definition, plan, own, wanted, outcome)
        complete = all(row.complete for row in rows)
        about = (definition.name, sorted(versions), complete)
        if isinstance(wanted, WantedNumber):
            name, words = wanted.name, words_of(wanted)
            return outcome.told(words, *about, partition=name.partition, window_number=name.number)
        window = wanted.among(plans[max(versions)].window)
        words = words_of(WantedWindow(window.start_ms, window.end_ms))
        return outcome.told(words, *about, window)

    def _spans(self, plan: Plan, rows: Sequence[CommittedRow], wanted: Named) -> Spans:
        if not plan.counts_rows:
            return spans_of(plan, self._buckets(), rows)
        try:
            return spans_of_counted(plan, self._buckets(), rows, wanted.among(plan.window))
        except ValueError as problem:
            raise Conflict(
                f"{problem}, so the rows of the window cannot be found: somebody else wrote it"
            ) from problem

    def _compare(
        self,
        definition: TaskDefinition,
        plan: Plan,
        rows: Sequence[CommittedRow],
        wanted: Named,
        outcome: Verified,
    ) -> None:
        window = wanted.among(plan.window)
        spans = self._spans(plan, rows, wanted)
        if not spans:
            raise Conflict(
                "the rows of this window do not name the offsets they were counted from: an "
                "older release wrote them"
            )
        if plan.counts_rows and not all(row.complete for row in rows):
            raise Conflict(
                "rows of the window were gone when they were needed, so nobody knows how many of "
                "them it should have: verify one that is complete"
            )
        recount = Recount(plan, window)
        number = number_of(window.start_ms) if plan.counts_rows else None
        self._rereading.read(definition, plan, pieces_of(spans), recount, number)
        if isinstance(plan.window, Counting) and recount.rows_numbered != plan.window.size:
            outcome.miscounted = (
                f" From its first to its last offset {recount.rows_numbered} rows count, and it "
                f"should have {plan.window.size}."
            )
        outcome.rows += len(newest_revisions(rows))
        outcome.source_rows += recount.rows_read
        outcome.differences += compare(
            plan.version, rows, recount.rows(), emits_changed=plan.emits_changed
        )


def _check_counted(plan: Plan) -> None:
    """Raise Conflict where results do not say where the rows of a window begin and end."""
    if plan.having is not None or plan.limit is not None or plan.options.max_keys is not None:
        raise Conflict(
            "the task leaves out groups (HAVING, LIMIT or max_keys), so its results do not say at "
            "which offsets a window of so many rows begins and ends: it cannot be verified here"
        )


def _check_scope(plans: Iterable[Plan]) -> None:
    """Raise Conflict where the groups of a window were not all counted from the same rows."""
    if any(plan.closes_by_key for plan in plans):
        raise Conflict(
            "the task has watermark: key, so each group of a window was closed at a time of its "
            "own, and this cannot be verified here: compute groups with a batch engine over the "
            "ranges in the header mars-ranges of their rows"
        )


def _by_version(rows: Sequence[CommittedRow]) -> dict[int, list[CommittedRow]]:
    versions: defaultdict[int, list[CommittedRow]] = defaultdict(list)
    for row in rows:
        versions[row.version].append(row)
    return dict(versions)
