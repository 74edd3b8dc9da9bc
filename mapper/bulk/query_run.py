"""One attempt at an ad-hoc query: answered, committed, settled. It runs in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from mapper.bulk.answering import QueryAnswerer
from mars.core.errors import JobCancelled, MarsError, Unavailable
from mars.process.life import RETRY_S, ServiceHealth
from mars.process.telemetry import logs
from mars.protocol.ports import Answer, QueryRecord, QueryRegistry, QueryRows, QueryState, Written

LOG = logs.logger("queries")


class QueryStop(Enum):
    """Why an attempt is not to go on."""

    NOT_OURS = "it was cancelled, or another process has it"
    TIMED_OUT = "it takes longer than it may"
    GIVEN_BACK = "the process stops"


@dataclass(frozen=True, slots=True)
class QueryDesk:
    """What attempts work with; `now_ms` is the wall clock."""

    answering: QueryAnswerer
    registry: QueryRegistry
    rows: QueryRows
    services: ServiceHealth
    now_ms: Callable[[], int]


class QueryRun:
    """An attempt at the query of `record`, which this process has just taken."""

    def __init__(self, desk: QueryDesk, record: QueryRecord) -> None:
        self.record = record
        self._desk = desk
        self._stop: QueryStop | None = None
        self._stopping = threading.Event()
        self._answer: Answer | None = None

    @property
    def stopped(self) -> QueryStop | None:
        """Why it is to end, if it is."""
        return self._stop

    @property
    def deadline_ms(self) -> int:
        """When its time is over; it began when the query was taken for the first time."""
        return (self.record.started_ms or 0) + self.record.query.timeout_ms

    def owns(self, current: QueryRecord) -> bool:
        """Whether the query, as it is in the registry now, is still this attempt's."""
        ours = (self.record.attempt, self.record.member)
        return current.state is QueryState.RUNNING and (current.attempt, current.member) == ours

    def stop(self, why: QueryStop) -> None:
        """End it soon; to be called again and again, as its Spark job may not have begun yet."""
        self._stop = self._stop or why
        self._stopping.set()
        self._desk.answering.engine.cancel(self.record.query.id)

    def __call__(self) -> None:
        """Answer the query and settle its state, whatever happens."""
        query = self.record.query
        logs.info(LOG, "query taken", query=query.id, attempt=self.record.attempt)
        try:
            written = self._insisted()
        except JobCancelled:
            self._settle_stopped(self._stop or QueryStop.GIVEN_BACK)
        except MarsError as problem:
            self._settle(QueryState.FAILED, detail=str(problem))
        except Exception as problem:  # noqa: BLE001 -- whatever it is, only this query fails
            logs.error(LOG, "unexpected error", trace=True, query=query.id)
            detail = f"unexpected {type(problem).__name__}: {problem}"
            self._settle(QueryState.FAILED, detail=detail)
        else:
            self._settle(QueryState.DONE, written=written)

    # ------------------------------------------------------------------------------ answering

    def _insisted(self) -> Written:
        """The committed answer. Servers that are away are waited for, until somebody says stop."""
        while True:
            try:
                return self._written()
            except Unavailable as problem:
                self._desk.services.lost(problem)
            self._stopping.wait(RETRY_S)
            self._check_stop()

    def _written(self) -> Written:
        desk, record = self._desk, self.record
        query, slot = record.query, record.slot
        if slot is None:
            slot = desk.rows.reserve(query.id)
        if self._answer is None and record.attempt > 1:
            before = desk.rows.recover(query.id, slot)
            if before is not None:
                return before
        if self._answer is None:
            plan = desk.answering.plan(query)
            ranges = desk.answering.ranges(query, plan)
            offsets = sum(part.next - part.first for part in ranges)
            self._update(lambda current: replace(current, input_offsets=offsets))
            self._check_stop()
            self._answer = desk.answering.answer(query, plan, ranges)
            if ranges:
                desk.services.found("spark")
        self._check_stop()
        written = desk.rows.write(self._answer, slot)
        desk.services.found("kafka")
        return written

    def _check_stop(self) -> None:
        if self._stop is not None:
            raise JobCancelled(self._stop.value)

    # ------------------------------------------------------------------------------- settling

    def _settle_stopped(self, why: QueryStop) -> None:
        match why:
            case QueryStop.NOT_OURS:
                logs.info(LOG, "query given up", query=self.record.query.id, because=why.value)
            case QueryStop.TIMED_OUT:
                limit_s = self.record.query.timeout_ms / 1_000
                detail = (
                    f"it took longer than its time-out of {limit_s:g} s: ask for a shorter time, "
                    "or raise timeout"
                )
                self._settle(QueryState.FAILED, detail=detail)
            case QueryStop.GIVEN_BACK:
                self._settle(QueryState.WAITING)
            case _:
                assert_never(why)

    def _settle(
        self, state: QueryState, *, detail: str = "", written: Written | None = None
    ) -> None:
        """Write how it ended, if it is still ours; a registry that is away is waited for."""

        def settled(current: QueryRecord) -> QueryRecord:
            if state is QueryState.WAITING:
                return replace(current, state=state, attempt=current.attempt - 1, member=None)
            return replace(
                current,
                state=state,
                ended_ms=self._desk.now_ms(),
                detail=detail,
                place=None if written is None else written.place,
                counts=None if written is None else written.counts,
            )

        while True:
            try:
                ours = self._update(settled)
            except Unavailable as problem:
                self._desk.services.lost(problem)
                if self._stop is QueryStop.GIVEN_BACK:
                    return  # the next process finds out that this one is dead
                self._stopping.wait(RETRY_S)
                continue
            said = state.value if ours else "not ours any more"
            logs.info(LOG, "query ended", query=self.record.query.id, state=said, detail=detail)
            return

    def _update(self, change: Callable[[QueryRecord], QueryRecord]) -> bool:
        """Change the query in the registry while it is ours; False once it is not."""
        while True:
            found = self._desk.registry.get(self.record.query.id)
            if found is None or not self.owns(found[0]):
                return False
            if self._desk.registry.replace(change(found[0]), found[1]):
                return True
