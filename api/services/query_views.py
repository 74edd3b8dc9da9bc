"""Ad-hoc queries as answers."""

from __future__ import annotations

from api.presenting import alike
from api.services.queries import MILLISECONDS_PER_SECOND
from mars.client.answers import Query, QueryCounts, QueryProgress
from mars.core.definitions import FileHistory
from mars.protocol.ports import QueryRecord, QueryState

NOBODY_RUNS_IT = "no bulk process runs: start one with `mars bulk --config FILE`"


def query_view(record: QueryRecord, now_ms: int, runners: int | None) -> Query:
    """A query as it is now; `runners`: the processes that could run it, None if that is unknown."""
    query = record.query
    waits = record.state is QueryState.WAITING and runners == 0
    started, ended = record.started_ms, record.ended_ms
    return Query(
        id=query.id,
        state=record.state.value,
        detail=NOBODY_RUNS_IT if waits else "",
        error=record.detail if record.state is QueryState.FAILED else None,
        sql=query.sql,
        options=dict(query.options),
        stream=query.stream.name,
        from_ms=query.from_ms,
        until_ms=query.until_ms,
        files=None if query.files is None else _files(query.files),
        rows_max=query.rows_max,
        timeout=query.timeout_ms / MILLISECONDS_PER_SECOND,
        output_topic=query.output_topic,
        created=query.created_ms,
        started=started,
        ended=ended,
        attempt=record.attempt,
        member=record.member,
        rows=None if record.place is None else record.place.rows,
        counts=None if record.counts is None else alike(record.counts, QueryCounts),
        progress=QueryProgress(
            input=record.input_offsets,
            elapsed_ms=None if started is None else max(0, (ended or now_ms) - started),
        ),
    )


def _files(history: FileHistory) -> str:
    return f"{len(history.files)} files, {history.format}"
