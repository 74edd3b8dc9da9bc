"""The REST API as typed calls; what the command line talks through.

Every call raises `Unavailable("api", ...)` where the API does not answer, and the `RequestError` of
its problem document where it refuses: NotFound, Conflict, VersionMismatch, SqlError, Rejected.
Times are epoch milliseconds. Answers may grow members that this release does not know.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from contextvars import ContextVar
from dataclasses import replace
from threading import Event
from time import monotonic, sleep
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from mars.client.answers import (
    AllFigures,
    Cluster,
    DeadRows,
    FigureList,
    FigurePoint,
    FinishedWindows,
    Incident,
    Incidents,
    Key,
    Keys,
    Ledger,
    NewKey,
    OpenWindows,
    Preview,
    Queries,
    Query,
    QueryAnswer,
    Readiness,
    ResultEvent,
    Row,
    Stream,
    Streams,
    Task,
    TaskListed,
    Tasks,
    TaskSet,
    Validation,
    Verification,
    Why,
    WindowLedger,
)
from mars.client.cluster_file import find_api
from mars.client.wire import AnswerType, decode, events
from mars.core.errors import (
    JobCancelled,
    JobFailed,
    MarsError,
    Unavailable,
    WaitedTooLong,
)
from mars.core.settings import load, surroundings
from mars.core.types import TaskName, Topic

if TYPE_CHECKING:
    import httpx

    from mars.adapters.kafka.read.groups import KafkaResultConsumer

URL = "http://127.0.0.1:8080"
"""Where `mars up` has its API unless told otherwise."""

TIMEOUT_S = 30.0
"""For one answer, unless told otherwise: a change of a task may wait 5 s for the leader, a look
into a large log longer.
"""

VERIFY_TIMEOUT_S = 300.0
"""For a window that is computed again, whatever the client's own limit: one of 5 million offsets
takes about half a minute, and others may be before it.
"""

SET_TIMEOUT_S = 300.0
"""For a set of tasks, whatever the client's own limit: the topics of a thousand take a while."""

QUERY_TIMEOUT_S = 300.0
"""For a query: what the service allows by default."""

WAIT_S = 60.0
"""For waiting, unless told otherwise."""

POLL_S = 0.3
"""Between two looks while waiting."""

PATIENCE_S = 5.0
"""How long a query may wait for a process that runs it before its caller hears of that: one that
is started again takes less.
"""

GIVEN_UP: ContextVar[Event | None] = ContextVar("given_up", default=None)
"""Set by who waits in another thread, and may stop to."""

SILENCE_S = 60.0
"""Longest silence of an event stream: the API sends a comment every 15 s."""


class Client:
    """One connection pool to one API. Use it as a context manager, or close it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url` is the API's [default: MARS_API, else of the cluster that runs on .mars, else URL].

        `key` opens it, if it asks for one [default: MARS_KEY]. `timeout_s` is the longest wait for
        an answer; `verify` and `tail` take longer by nature. Raises SettingsError.
        """
        # httpx is half of what this module would load: a program pays for it once it asks.
        from mars.client.connection import Connection  # noqa: PLC0415

        self._timeout_s = timeout_s
        self._connection = Connection(
            find_api(url) or URL,
            key=key or surroundings().api_key,
            timeout_s=timeout_s,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    # ------------------------------------------------------------------------------- streams

    def put_stream(self, name: str, declaration: Mapping[str, object]) -> Stream:
        """Declare a stream, or replace its declaration."""
        return self._call("PUT", f"/v1/streams/{_segment(name)}", Stream, body=declaration)

    def streams(self) -> list[Stream]:
        """All streams, by name."""
        return self._call("GET", "/v1/streams", Streams).streams

    def stream(self, name: str) -> Stream:
        """One stream."""
        return self._call("GET", f"/v1/streams/{_segment(name)}", Stream)

    def delete_stream(self, name: str) -> None:
        """Remove a declaration that no task uses."""
        self._connection.send("DELETE", f"/v1/streams/{_segment(name)}")

    # --------------------------------------------------------------------------------- tasks

    def create_task(
        self,
        name: str,
        sql: str,
        *,
        start: str | int = "latest",
        options: Mapping[str, object] | None = None,
        history: Mapping[str, object] | None = None,
    ) -> Task:
        """Register a task; `start` is `latest`, `earliest` or a time.

        `history` names files to be read before: `files`, `format`, `csv_header`, `until`.
        """
        body: dict[str, object] = {
            "name": name,
            "sql": sql,
            "start": {"timestamp": start} if isinstance(start, int) else start,
            "options": options or {},
        }
        if history is not None:
            body["history"] = history
        return self._call("POST", "/v1/tasks", Task, body=body)

    def apply_tasks(
        self,
        tasks: Sequence[Mapping[str, object]],
        *,
        set_name: str | None = None,
        output_topic: str | None = None,
        prune: bool = False,
        dry_run: bool = False,
    ) -> TaskSet:
        """Make all these tasks as they stand there, or none; what that changes.

        Each has `name` and `sql`, and may have `options`; `start` and `history` are of new ones.
        `output_topic` is of all tasks of the set that name none; `prune` deletes those that the set
        has made and that are not among the tasks. With `dry_run` nothing changes.
        """
        body: dict[str, object] = {"tasks": list(tasks), "prune": prune, "dry_run": dry_run}
        named = {"name": set_name, "output_topic": output_topic}
        if set_name is not None or output_topic is not None:
            body["set"] = {member: value for member, value in named.items() if value is not None}
        longest_s = max(self._timeout_s, SET_TIMEOUT_S)
        return self._call("PUT", "/v1/tasks", TaskSet, body=body, timeout_s=longest_s)

    def tasks(self, *, deleted: bool = False) -> list[TaskListed]:
        """All tasks, by name."""
        query = {"deleted": "true"} if deleted else None
        return self._call("GET", "/v1/tasks", Tasks, query=query).tasks

    def task(self, name: str) -> Task:
        """One task."""
        return self._call("GET", _task(name), Task)

    def change_task(
        self,
        name: str,
        sql: str,
        *,
        options: Mapping[str, object] | None = None,
        expected_version: int | None = None,
    ) -> Task:
        """Make a new version, if the current one is the expected one (None: whatever it is).

        Options that are not among `options` return to their defaults.
        """
        headers = None if expected_version is None else {"If-Match": f'"{expected_version}"'}
        body = {"sql": sql, "options": options or {}}
        return self._call("PUT", _task(name), Task, body=body, headers=headers)

    def delete_task(self, name: str) -> None:
        """End a task; its results stay."""
        self._connection.send("DELETE", _task(name))

    def pause_task(self, name: str) -> Task:
        """Take no more rows until it is resumed."""
        return self._call("POST", f"{_task(name)}/pause", Task)

    def resume_task(self, name: str) -> Task:
        """Resume a paused or failed task where it stopped."""
        return self._call("POST", f"{_task(name)}/resume", Task)

    def validate(
        self, sql: str, *, options: Mapping[str, object] | None = None, name: str | None = None
    ) -> Validation:
        """Check a query."""
        body: dict[str, object] = {"sql": sql, "options": options or {}}
        if name is not None:
            body["name"] = name
        return self._call("POST", "/v1/tasks/validate", Validation, body=body)

    def preview(
        self,
        sql: str,
        *,
        options: Mapping[str, object] | None = None,
        seconds: float | None = None,
        rows: Sequence[object] | None = None,
        limit: int | None = None,
    ) -> Preview:
        """Try a query over the last seconds of its topic, or over `rows`; nothing is registered."""
        given = {"seconds": seconds, "rows": rows, "limit": limit}
        body: dict[str, object] = {"sql": sql, "options": options or {}}
        body |= {name: value for name, value in given.items() if value is not None}
        return self._call("POST", "/v1/tasks/preview", Preview, body=body)

    # ------------------------------------------------------------------------- inside a task

    def windows(
        self,
        name: str,
        *,
        key: str | None = None,
        limit: int | None = None,
        order: str | None = None,
    ) -> OpenWindows:
        """Open windows with their values as of now."""
        query = {"key": key, "limit": limit, "order": order}
        return self._call("GET", f"{_task(name)}/windows", OpenWindows, query=query)

    def why(self, name: str) -> Why:
        """Why no result is coming."""
        return self._call("GET", f"{_task(name)}/why", Why)

    def ledger(self, name: str) -> Ledger:
        """Where the task's rows went."""
        return self._call("GET", f"{_task(name)}/ledger", Ledger)

    def window_ledger(
        self, name: str, window_start: int, window_end: int | None = None
    ) -> WindowLedger:
        """What became of the rows of one window; `window_end` is needed where windows cumulate."""
        query = {"window_start": window_start, "window_end": window_end}
        return self._call("GET", f"{_task(name)}/ledger", WindowLedger, query=query)

    def verify(
        self, name: str, window_start: int | None = None, window_end: int | None = None
    ) -> Verification:
        """A finished window (the last one) computed again; takes as long as its rows need.

        `window_end` is needed beside `window_start` where windows cumulate.
        """
        query = {"window_start": window_start, "window_end": window_end}
        longest_s = max(self._timeout_s, VERIFY_TIMEOUT_S)
        path = f"{_task(name)}/verify"
        return self._call("GET", path, Verification, query=query, timeout_s=longest_s)

    def dead(
        self,
        name: str,
        *,
        reason: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> DeadRows:
        """A page of rows that were not counted."""
        query = {"reason": reason, "after": after, "limit": limit}
        return self._call("GET", f"{_task(name)}/dead", DeadRows, query=query)

    def figures(self, name: str) -> list[FigurePoint]:
        """Rate, lag, watermark and close latency over the last minutes, the oldest first."""
        return self._call("GET", f"{_task(name)}/figures", FigureList).points

    def results(
        self,
        name: str,
        *,
        window_start: int | None = None,
        window_end: int | None = None,
        limit: int | None = None,
    ) -> FinishedWindows:
        """The last finished windows, or one; `window_end` is needed where windows cumulate."""
        query = {"window_start": window_start, "window_end": window_end, "limit": limit}
        return self._call("GET", f"{_task(name)}/results", FinishedWindows, query=query)

    def tail(
        self,
        name: str,
        *,
        after: str | None = None,
        reached: Callable[[str], None] | None = None,
    ) -> Generator[ResultEvent, None, None]:
        """Result rows as they are committed, from now on; close the iterator to end it.

        `after` is the `id` of an event: rows behind it come first. `reached` is told from where
        one can go on: where it begins, and behind each row once the next one is asked for. The
        connection is made by the first `next`. Raises Unavailable when the API goes away.
        """
        resumed = {} if after is None else {"Last-Event-ID": after}
        pieces = self._connection.pieces(
            f"{_task(name)}/results",
            headers={"Accept": "text/event-stream", **resumed},
            silence_s=SILENCE_S,
        )
        with closing(pieces):
            yield from events(pieces, reached or _ignore)

    def consume(
        self,
        name: str,
        *,
        group: str,
        kafka: str | None = None,
        begin: Mapping[int, int] | None = None,
        silence_s: float | None = None,
    ) -> KafkaResultConsumer:
        """Iterate over all result rows, read from Kafka by a consumer group that keeps its place.

        `kafka` is its address [default: MARS_KAFKA_BOOTSTRAP; further MARS_KAFKA_* count, too];
        `begin` names offsets by partition, and leaves the group alone; with `silence_s` it ends
        when no row came for so long, once the group has let it in. Rows come when windows close:
        a silence that is shorter than a window gives what is there, and does not wait for the
        next. See `KafkaResultConsumer` for what it promises. Raises NotFound, Unavailable.
        """
        # Whoever only talks to the API does without Kafka's library.
        from mars.adapters.kafka.read.groups import KafkaResultConsumer  # noqa: PLC0415

        output = self.task(name).output
        if output is None:
            raise Unavailable("api", f"it does not say which topic the results of {name} go to")
        settings = load(None)
        if kafka is not None:
            settings = replace(settings, kafka=replace(settings.kafka, bootstrap=kafka))
        return KafkaResultConsumer(
            settings,
            Topic(output.topic),
            TaskName(name),
            group,
            begin=begin,
            silence_s=silence_s,
        )

    # --------------------------------------------------------------------------- queries

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

    # ---------------------------------------------------------------------------- waiting

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

        found = _waited(lambda: f"query {query} to end{why}", look, timeout_s)
        if found.state == "cancelled":
            raise JobCancelled(f"Query {query} was cancelled.")
        if not found.ended_well:
            raise JobFailed(f"Query {query} failed: {found.error}")
        return found

    def wait_until_read(self, name: str, *, timeout_s: float | None = WAIT_S) -> Task:
        """A task once it has taken every message that lies in its topic, history included.

        Raises WaitedTooLong, and JobFailed for a task that has failed.
        """

        def look() -> Task | None:
            found = self.task(name)
            if found.state == "failed":
                raise JobFailed(f"Task {name} failed: {found.detail}")
            read = found.lag is not None and found.lag.rows == 0
            return found if read and found.state != "backfilling" else None

        return _waited(lambda: f"task {name} to have read its topic", look, timeout_s)

    def wait_until_ready(self, *, timeout_s: float | None = WAIT_S) -> None:
        """Wait until the API answers and has every server it needs. Raises WaitedTooLong."""

        def look() -> bool | None:
            try:
                return self.readiness().status == "ready" or None
            except Unavailable:
                return None

        _waited(lambda: "the API to be ready", look, timeout_s)

    def queries(self) -> list[Query]:
        """The queries that are kept, newest first."""
        return self._call("GET", "/v1/queries", Queries).queries

    def query(self, query: str) -> Query:
        """One query."""
        return self._call("GET", _query(query), Query)

    def query_rows(self, query: str) -> list[Row]:
        """The rows of a query that is done."""
        return self._call("GET", f"{_query(query)}/rows", list[Row])

    def query_arrow(self, query: str) -> bytes:
        """The same as an Arrow IPC stream."""
        headers = {"Accept": "application/vnd.apache.arrow.stream"}
        return self._connection.send("GET", f"{_query(query)}/rows", headers=headers).content

    def cancel_query(self, query: str) -> None:
        """Stop a query; nothing happens to one that has ended."""
        self._connection.send("DELETE", _query(query))

    # --------------------------------------------------------------------------------- keys

    def create_key(
        self,
        role: str,
        *,
        reads: Iterable[str] = ("*",),
        writes: Iterable[str] = ("*",),
        note: str = "",
    ) -> NewKey:
        """Make a key: `reader`, `operator` or `admin`, its tasks limited to patterns of topics."""
        body = {"role": role, "reads": list(reads), "writes": list(writes), "note": note}
        return self._call("POST", "/v1/keys", NewKey, body=body)

    def keys(self) -> list[Key]:
        """All keys, oldest first."""
        return self._call("GET", "/v1/keys", Keys).keys

    def delete_key(self, key: str) -> None:
        """Remove a key, by its id."""
        self._connection.send("DELETE", f"/v1/keys/{_segment(key)}")

    # --------------------------------------------------------------------------- the service

    def cluster(self) -> Cluster:
        """The state of the cluster."""
        return self._call("GET", "/v1/cluster", Cluster)

    def incidents(
        self, *, task: str | None = None, since: int | None = None, limit: int | None = None
    ) -> list[Incident]:
        """What happened that people should hear of, newest first."""
        query = {"task": task, "since": since, "limit": limit}
        return self._call("GET", "/v1/incidents", Incidents, query=query).incidents

    def all_figures(self) -> AllFigures:
        """Figures of all tasks together over the last minutes, and the newest of each."""
        return self._call("GET", "/v1/figures", AllFigures)

    def readiness(self) -> Readiness:
        """Whether the API has every server it needs; that it has not is no error here."""
        return decode(self._connection.look("/readyz"), Readiness)

    # ---------------------------------------------------------------------------- the wire

    def _call(
        self,
        method: str,
        path: str,
        kind: type[AnswerType],
        *,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> AnswerType:
        answer = self._connection.send(
            method, path, body=body, query=query, headers=headers, timeout_s=timeout_s
        )
        return decode(answer, kind)


def _waited(
    what: Callable[[], str], look: Callable[[], AnswerType | None], timeout_s: float | None
) -> AnswerType:
    """What `look` gives once it is something. Raises WaitedTooLong."""
    deadline = None if timeout_s is None else monotonic() + timeout_s
    given_up = GIVEN_UP.get()
    while (found := look()) is None:
        if deadline is not None and monotonic() >= deadline:
            raise WaitedTooLong(f"Waited {timeout_s:g} s for {what()}.")
        if given_up is None:
            sleep(POLL_S)
        elif given_up.wait(POLL_S):
            raise WaitedTooLong(f"Nobody waits for {what()} any more.")
    return found


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


def _segment(name: str) -> str:
    return quote(name, safe="")


def _query(query: str) -> str:
    return f"/v1/queries/{_segment(query)}"


def _task(name: str) -> str:
    return f"/v1/tasks/{_segment(name)}"


def _ignore(_place: str) -> None:
    """Nobody asks from where one can go on."""
