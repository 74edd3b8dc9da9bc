"""Ad-hoc queries: registered here, run by the processes with the role `bulk`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from api.callers import caller
from api.names import known_query_id, no_query
from api.query_schemas import NewQueryRequest
from api.services.beginning import Beginnings
from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, ClusterContext, Ports
from api.services.defining.making import DEFINITION_BYTES_MAX, described
from api.services.tasks import ATTEMPTS_MAX
from mars.core.definitions import check_in_files
from mars.core.errors import Conflict, Rejected, TooMany
from mars.core.plan import Plan
from mars.core.types import TaskName, Topic
from mars.process.compiling import compile_request
from mars.protocol.ports import Query, QueryId, QueryRecord, QueryState
from mars.protocol.ports.queries import encode_query
from mars.sql import only, pinned

QUERIES_KEPT = 200
"""Queries that are kept: each is a node of ZooKeeper, and all are read at each change of one."""

OUTPUT_TOPIC = "output_topic"

MILLISECONDS_PER_SECOND = 1_000


class QueryService:
    """What the paths under /v1/queries do."""

    def __init__(
        self, ports: Ports, compiler: TaskCompiler, buckets: BucketCount, cluster: ClusterContext
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._namespace = cluster.namespace
        self._buckets = buckets
        self._beginnings = Beginnings(ports, cluster)

    # ---------------------------------------------------------------------------- creating

    def create(self, request: NewQueryRequest) -> QueryRecord:
        """Register a query. Raises SqlError, Rejected, TooMany."""
        record = QueryRecord(self._query(request))
        if len(encode_query(record)) > DEFINITION_BYTES_MAX:
            raise Rejected(
                f"query, options, stream and files have more than {DEFINITION_BYTES_MAX} bytes"
            )
        self._make_room()
        self._ensure_output(record.query)
        if not self._ports.queries.create(record):
            raise Conflict(f"another query has the id {record.query.id}: try again")
        return record

    def _query(self, request: NewQueryRequest) -> Query:
        query = QueryId(f"q-{uuid.uuid4().hex[:12]}")
        _check_range(request)
        plan = self._checked_plan(query, request)
        stream, files = plan.stream, None
        if request.files is not None:
            check_in_files(plan.fields)
            files = self._beginnings.files(stream, request.files)
        else:
            described(self._ports, Topic(stream.topic))
        output = request.output_topic
        return Query(
            id=query,
            sql=request.sql,
            options=request.options,
            stream=stream,
            created_ms=self._ports.now_ms(),
            from_ms=request.from_ms,
            until_ms=request.until_ms,
            rows_max=request.rows_max,
            timeout_ms=max(1, round(request.timeout * MILLISECONDS_PER_SECOND)),
            files=files,
            output_topic=None if output is None else Topic(output),
            zone=plan.window.zone,
        )

    def _checked_plan(self, query: QueryId, request: NewQueryRequest) -> Plan:
        """The plan of a request; the name of its output topic is checked as a task's is."""
        if OUTPUT_TOPIC in request.options:
            raise Rejected("output_topic is a member of the query itself, not of its options")
        options: Mapping[str, object] = request.options
        if request.output_topic is not None:
            options = {**options, OUTPUT_TOPIC: request.output_topic}

        plan = self._compiler.compile(
            request.sql,
            options,
            task=TaskName(query),
            version=1,
        )
        if plan.counts_rows and request.files is not None:
            raise Rejected(
                "windows of so many rows count those of a partition in the order of their offsets, "
                "and files have none: leave files out and read the topic, or take windows by time"
            )
        return plan

    def _make_room(self) -> None:
        """Remove the oldest that have ended. Raises TooMany where none has."""
        records = self.list_all(QUERIES_KEPT * 2)
        surplus = len(records) - QUERIES_KEPT + 1
        ended = [record for record in reversed(records) if record.state.ended]
        if surplus > len(ended):
            raise TooMany(
                f"{len(records)} queries wait or run already: cancel some with DELETE "
                "/v1/queries/ID, or try again later"
            )
        for record in ended[: max(0, surplus)]:
            self._ports.queries.delete(record.query.id)

    def _ensure_output(self, query: Query) -> None:
        if query.output_topic is not None:
            self._ports.admin.ensure_output(query.output_topic, self._buckets.of_results)

    # ----------------------------------------------------------------------------- looking

    def list_all(self, limit: int) -> list[QueryRecord]:
        """The newest queries first."""
        records = self._ports.queries.all()
        records.sort(key=lambda record: (record.query.created_ms, record.query.id), reverse=True)
        return records[:limit]

    def show(self, query: str) -> QueryRecord:
        """One query. Raises NotFound."""
        return self._found(query)[0]

    def runners(self, records: Sequence[QueryRecord]) -> int | None:
        """How many processes could run those that wait; None if none of them waits."""
        if all(record.state is not QueryState.WAITING for record in records):
            return None
        return len(self._ports.coordinator.members("bulk"))

    def now_ms(self) -> int:
        """The clock that the times of queries are of."""
        return self._ports.now_ms()

    def json_rows(self, query: str) -> bytes:
        """The result rows as a JSON array. Raises NotFound, Conflict unless it is done."""
        record = self.show(query)
        return b"[" + b",\n".join(self._rows(record)) + b"]\n"

    def arrow_rows(self, query: str) -> bytes:
        """The same as an Arrow IPC stream."""
        record = self.show(query)
        asked = record.query
        plan = compile_request(
            asked.sql,
            asked.options,
            task=TaskName(asked.id),
            version=1,
            stream_of=only(asked.stream),
            namespace=self._namespace,
            zone_of=pinned(asked.zone),
            begin_ms=None,
        )
        # pyarrow takes 25 MB, and few ask for it.
        from api.services.arrow import arrow_stream  # noqa: PLC0415

        return arrow_stream(plan, self._rows(record))

    def _rows(self, record: QueryRecord) -> list[bytes]:
        if record.state is not QueryState.DONE or record.place is None:
            why = f" ({record.detail})" if record.detail else ""
            raise Conflict(
                f"query {record.query.id} is {record.state}{why}: it has rows only once it is done"
            )
        return self._ports.answers.read(record.query.id, record.place)

    def _found(self, text: str) -> tuple[QueryRecord, int]:
        found = self._ports.queries.get(known_query_id(text))
        if found is None:
            raise no_query(text)
        return found

    # --------------------------------------------------------------------------- cancelling

    def cancel(self, query: str) -> None:
        """Stop a query that waits or runs; one that has ended stays as it is. Raises NotFound."""
        for _ in range(ATTEMPTS_MAX):
            record, expected = self._found(query)
            caller().check_read(record.query.stream.topic)
            if record.state.ended:
                return
            cancelled = replace(record, state=QueryState.CANCELLED, ended_ms=self._ports.now_ms())
            if self._ports.queries.replace(cancelled, expected):
                return
        raise Conflict(f"query {query} was changed by others at the same time: try again")


def _check_range(request: NewQueryRequest) -> None:
    first, end = request.from_ms, request.until_ms
    if first is not None and end is not None and first >= end:
        raise Rejected(f"from ({first}) must be before until ({end}), else there are no rows")
