"""Ad-hoc queries: taken from the registry, run, and settled.

    registry ──step──▶ takes what waits, and what was left by a process that is not alive
                       stops what was cancelled, was taken by another, or runs for too long
    pool     ──run───▶ answers one query, commits the answer, settles the state

Each change of a query is a compare-and-set, and an answer is committed once or not at all: so a
process that only seems to be dead does no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from mapper.bulk.query_run import QueryDesk, QueryRun, QueryStop
from mars.core.types import MemberId
from mars.process.life import Life
from mars.process.outliving import Outliving
from mars.protocol.ports import QueryId, QueryRecord, QueryState
from mars.protocol.ports.queries import ATTEMPTS_MAX

QUERIES_AT_ONCE = 2
"""So that a long one does not keep all others waiting; Spark shares its cores among them."""

LOOK_INTERVAL_S = 0.5
"""Between two looks at time-outs, and at the registry should a watch be missed."""

CLOSE_S = 10.0
"""How long queries under way may take to give up when the process is to stop."""

Alive = Callable[[], Container[MemberId]]
"""The bulk processes that are alive; may raise Unavailable."""


class QueryWork:
    """Runs queries until it is stopped; `working` says whether this process is to take new ones."""

    def __init__(
        self,
        member: MemberId,
        desk: QueryDesk,
        *,
        alive: Alive,
        working: Callable[[], bool] = lambda: True,
    ) -> None:
        self._member = member
        self._desk = desk
        self._alive = alive
        self._working = working
        self._woken = threading.Event()
        self._runs: dict[QueryId, tuple[QueryRun, Future[None]]] = {}
        self._pool = ThreadPoolExecutor(QUERIES_AT_ONCE, thread_name_prefix="query")
        desk.registry.watch(self._woken.set)

    def run(self, life: Life) -> None:
        """Run queries until the process is to stop; those under way are given back."""
        try:
            rounds = Outliving("the look at queries", life.wait)
            while not life.stopping:
                self._woken.clear()
                rounds.round(lambda: self._desk.services.attempt("zookeeper", self.step))
                self._woken.wait(LOOK_INTERVAL_S)
        finally:
            self.close()

    def step(self) -> None:
        """Look once at all queries. Raises Unavailable."""
        self._forget_ended()
        records = {record.query.id: record for record in self._desk.registry.all()}
        for name, (run, _future) in self._runs.items():
            self._look_after(run, records.get(name))
        if not self._working():
            return
        for record in sorted(records.values(), key=lambda one: one.query.created_ms):
            if len(self._runs) >= QUERIES_AT_ONCE:
                break
            if not record.state.ended and record.query.id not in self._runs:
                self._take(record.query.id)

    def idle(self) -> bool:
        """True while no query runs here."""
        self._forget_ended()
        return not self._runs

    def close(self) -> None:
        """Stop what runs, and let others have it."""
        for run, _future in self._runs.values():
            run.stop(QueryStop.GIVEN_BACK)
        wait([future for _run, future in self._runs.values()], CLOSE_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    # --------------------------------------------------------------------------------- within

    def _forget_ended(self) -> None:
        self._runs = {name: pair for name, pair in self._runs.items() if not pair[1].done()}

    def _look_after(self, run: QueryRun, record: QueryRecord | None) -> None:
        if record is None or not run.owns(record):
            run.stop(QueryStop.NOT_OURS)
        elif self._desk.now_ms() >= run.deadline_ms:
            run.stop(QueryStop.TIMED_OUT)
        elif run.stopped is not None:
            run.stop(run.stopped)

    def _take(self, query: QueryId) -> None:
        found = self._desk.registry.get(query)
        if found is None or not self._may_take(found[0]):
            return
        record, expected = found
        if record.attempt >= ATTEMPTS_MAX:
            self._desk.registry.replace(self._given_up(record), expected)
            return
        started_ms = self._desk.now_ms() if record.started_ms is None else record.started_ms
        taken = replace(
            record,
            state=QueryState.RUNNING,
            attempt=record.attempt + 1,
            member=self._member,
            started_ms=started_ms,
            slot=record.slot or self._desk.rows.reserve(query),
        )
        if self._desk.registry.replace(taken, expected):
            run = QueryRun(self._desk, taken)
            self._runs[query] = run, self._pool.submit(run)

    def _may_take(self, record: QueryRecord) -> bool:
        if record.state is not QueryState.RUNNING:
            return record.state is QueryState.WAITING
        # One of ours that does not run here is of a former life of this process.
        return record.member == self._member or record.member not in self._alive()

    def _given_up(self, record: QueryRecord) -> QueryRecord:
        detail = (
            f"it was started {record.attempt} times, and each time the process that ran it died: "
            "look at the log and the memory of the bulk processes"
        )
        return replace(record, state=QueryState.FAILED, ended_ms=self._desk.now_ms(), detail=detail)
