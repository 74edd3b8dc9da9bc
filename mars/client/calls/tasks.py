"""What manages tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mars.client.answers import Preview, Task, TaskListed, Tasks, TaskSet, Validation
from mars.client.calls.base import Calls, task_path
from mars.client.calls.waiting import WAIT_S, waited
from mars.core.errors import JobFailed

SET_TIMEOUT_S = 300.0
"""For a set of tasks, whatever the client's own limit: the topics of a thousand take a while."""


class TaskCalls(Calls):
    """Register tasks, change them, and try queries for them."""

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
        return self._call("GET", task_path(name), Task)

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
        return self._call("PUT", task_path(name), Task, body=body, headers=headers)

    def delete_task(self, name: str) -> None:
        """End a task; its results stay."""
        self._connection.send("DELETE", task_path(name))

    def pause_task(self, name: str) -> Task:
        """Take no more rows until it is resumed."""
        return self._call("POST", f"{task_path(name)}/pause", Task)

    def resume_task(self, name: str) -> Task:
        """Resume a paused or failed task where it stopped."""
        return self._call("POST", f"{task_path(name)}/resume", Task)

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

        return waited(lambda: f"task {name} to have read its topic", look, timeout_s)
