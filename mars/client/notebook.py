"""One call from a question to a table: `mars.query("SELECT ...")`."""

from __future__ import annotations

from mars.client.answers import QueryAnswer
from mars.client.blocking import Client
from mars.client.cluster_file import find_api
from mars.core.errors import MarsError


def query(
    sql: str, *, api: str | None = None, key: str | None = None, **members: object
) -> QueryAnswer:
    """Run a query once, now, and wait for its rows; `.df()` makes a polars frame of them.

    `members` are those of `Client.ask`, such as `from_ms`, `files`, or `wait_s` for the longest
    wait. Raises SqlError, JobFailed, Unavailable, WaitedTooLong.
    """
    with Client(api or address(), key=key) as client:
        return client.ask(sql, **members)  # type: ignore[arg-type]


def address() -> str:
    """The API's address: MARS_API, else of the cluster that runs here. Raises MarsError."""
    found = find_api()
    if found is None:
        raise MarsError(
            "No cluster runs here: start one with `mars up`, or name its API with MARS_API or api=."
        )
    return found
