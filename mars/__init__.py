"""Exact windowed statistics over Kafka streams.

    import mars

    mars.query("SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 60 s").df()

`mars.client` has all calls of the REST interface, `mars.aio` the same for event loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mars.client.answers import QueryAnswer


def query(
    sql: str, *, api: str | None = None, key: str | None = None, **members: object
) -> QueryAnswer:
    """Run a query once, now, and wait for its rows; see `mars.client.notebook.query`."""
    # Every process imports this package; only notebooks need what it takes to ask.
    from mars.client import notebook  # noqa: PLC0415

    return notebook.query(sql, api=api, key=key, **members)
