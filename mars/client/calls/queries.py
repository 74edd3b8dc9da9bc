"""Queries that run once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic

from mars.client.answers import Queries, Query, QueryAnswer, Row
from mars.client.calls.base import Calls, segment
from mars.client.calls.waiting import waited
from mars.core.errors import JobCancelled, JobFailed, MarsError

QUERY_TIMEOUT_S = 300.0
"""For a query: what the service allows by default."""

PATIENCE_S = 5.0
"""How long a query may wait for a process that runs it before its caller hears of that: one that
is started again takes less.
"""


class QueryCalls(Calls):
    """Run queries once, and fetch their rows."""

    def create_query(self, sql: str, **members: object) -> Query:
        """Run a query once, now.

        `members` are those of the request: `from`, `until`, `files`, `rows_max`, `timeout`,
        `output_topic`, `options`; one that is None is left out.
        """
        given = {name: value for name, value in members.items() if value is not None}
        return self._call("POST", "/v1/queries", Query, body={"sql": sql, **given})

    def ask(
        self,
        sql: str,
        *,
        from_ms: int | None = None,
        until_ms: int | None = None,
        files: Mapping[str, object] | None = None,
        rows_max: int | None = None,
        options: Mapping[str, object] | None = None,
        timeout_s: float = QUERY_TIMEOUT_S,
        wait_s: float | None = None,
    ) -> QueryAnswer:
        """Run a query once, now, and wait for its rows: over rows with times in a range, or files.

        `timeout_s` is how long it may run, `wait_s` how long its rows are waited for, its turn
        included [default: as long as it takes]; see `wait_for_query` for what is told meanwhile.
        Raises SqlError, JobFailed, JobCancelled, WaitedTooLong. A query whose rows are not waited
        for any more, as after Ctrl-C, is cancelled.
        """
        asked = self.create_query(
            sql,
            **{"from": from_ms, "until": until_ms},
            files=files,
            rows_max=rows_max,
            options=options,
            timeout=timeout_s,
        )
        try:
            done = self.wait_for_query(asked.id, timeout_s=wait_s)
        except (JobFailed, JobCancelled):
            raise
        except BaseException:
            with suppress(MarsError):
                self.cancel_query(asked.id)  # nobody else knows of it
            raise
        return QueryAnswer(done, self.query_arrow(done.id))

    def wait_for_query(self, query: str, *, timeout_s: float | None = QUERY_TIMEOUT_S) -> Query:
        """A query once it is done; a warning says what it waits for, if that takes long.

        Raises JobFailed, JobCancelled, WaitedTooLong.
        """
        begun_s, told, why = monotonic(), "", ""

        def look() -> Query | None:
            nonlocal told, why
            found = self.query(query)
            why = f" ({found.detail})" if found.detail else ""
            trouble = trouble_of(found, monotonic() - begun_s)
            if trouble not in {"", told}:
                told = trouble
                warnings.warn(trouble, stacklevel=4)
            return None if found.goes_on else found

        found = waited(lambda: f"query {query} to end{why}", look, timeout_s)
        if found.state == "cancelled":
            raise JobCancelled(f"Query {query} was cancelled.")
        if not found.ended_well:
            raise JobFailed(f"Query {query} failed: {found.error}")
        return found

    def queries(self) -> list[Query]:
        """The queries that are kept, newest first."""
        return self._call("GET", "/v1/queries", Queries).queries

    def query(self, query: str) -> Query:
        """One query."""
        return self._call("GET", _path(query), Query)

    def query_rows(self, query: str) -> list[Row]:
        """The rows of a query that is done."""
        return self._call("GET", f"{_path(query)}/rows", list[Row])

    def query_arrow(self, query: str) -> bytes:
        """The same as an Arrow IPC stream."""
        headers = {"Accept": "application/vnd.apache.arrow.stream"}
        return self._connection.send("GET", f"{_path(query)}/rows", headers=headers).content

    def cancel_query(self, query: str) -> None:
        """Stop a query; nothing happens to one that has ended."""
        self._connection.send("DELETE", _path(query))


def trouble_of(query: Query, waited_s: float) -> str:
    """What somebody who has waited so long for a query should hear; empty if all is well."""
    if not query.goes_on or waited_s < PATIENCE_S:
        return ""
    if query.detail:
        return f"Query {query.id} waits: {query.detail}."
    if waited_s > query.timeout:
        return (
            f"Query {query.id} is still {query.state} after more than {query.timeout:g} s: others "
            "may be before it, or the process that ran it has gone; `mars status` shows who is "
            "there."
        )
    return ""


def _path(query: str) -> str:
    return f"/v1/queries/{segment(query)}"
