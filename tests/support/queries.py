"""The queries among which users change: kinds of windows and aggregates, rows, delays.

Each stands for what DuckDB computes over the rows of which it holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import Any

from tests.support.companions import KINDS, SUMS, Kind, window
from tests.support.load import IDLE_AFTER
from tests.support.rows import CLOSING, Group

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Where:
    """A condition in SQL, and the same in Python."""

    sql: str
    holds: Callable[[Row], bool]


TUMBLING = Kind(
    "sums",
    f"sip, type, {SUMS}",
    "GROUP BY sip, type, timestamp WINDOWING 3 s",
    f"SELECT {window(3_000)}, sip, type, {SUMS} FROM arrived GROUP BY ALL",
    ("sip", "type"),
)

CUMULATING = Kind(
    "cumulating",
    f"sip, type, {SUMS}",
    "GROUP BY sip, type, timestamp WINDOWING 4 s EVERY 1 s",
    "SELECT timestamp // 4000 * 4000 AS window_start, window_start + step AS window_end, "
    f"sip, type, {SUMS} FROM arrived, (SELECT unnest([1000, 2000, 3000, 4000]) AS step) "
    "WHERE timestamp % 4000 < step GROUP BY ALL",
    ("sip", "type"),
)

BY_ZONE = Kind(
    "by a time zone",
    f"sip, type, {SUMS}",
    "GROUP BY sip, type, timestamp WINDOWING 3 s TIMEZONE 'Europe/Berlin'",
    f"SELECT {window(3_000)}, sip, type, {SUMS} FROM arrived GROUP BY ALL",
    ("sip", "type"),
)

_NEW = "timestamp - lag(timestamp) OVER own >= 400 OR lag(timestamp) OVER own // 2000 <> cycle"

SESSIONS = Kind(
    "sessions",
    f"sip, type, {SUMS}",
    "GROUP BY sip, type WINDOWING SESSION 400 ms MAX 2 s",
    "SELECT min(timestamp) AS window_start, "
    "least(max(timestamp) + 400, (min(cycle) + 1) * 2000) AS window_end, "
    f"sip, type, {SUMS} FROM (SELECT *, sum(new::INT) OVER own AS session FROM "
    f"(SELECT *, timestamp // 2000 AS cycle, coalesce({_NEW}, true) AS new FROM arrived "
    "WINDOW own AS (PARTITION BY sip, type ORDER BY timestamp, id)) "
    "WINDOW own AS (PARTITION BY sip, type ORDER BY timestamp, id)) "
    "GROUP BY sip, type, session",
    ("sip", "type"),
)

ALL_KINDS = (TUMBLING, CUMULATING, BY_ZONE, SESSIONS, *KINDS)

WHERES = (
    Where("", lambda row: True),
    Where("type = 'dns'", lambda row: bool(row["type"] == "dns")),
    Where("bytes > 700", lambda row: bool(row["bytes"] > 700)),
    Where("id % 3 = 0", lambda row: bool(row["id"] % 3 == 0)),
)

DELAYS = ("500ms", "1s", "2s")
"""None is shorter than rows are out of order: none of them is late."""

DELAY_MS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Query:
    """One query over a stream, with its options."""

    kind: Kind
    where: Where
    delay: str

    @property
    def name(self) -> str:
        """For a person."""
        return f"{self.kind.name} where {self.where.sql or 'true'}, delay {self.delay}"

    @property
    def revises(self) -> bool:
        """Whether groups may come again."""
        return self.options.get("late") == "revise"

    def sql(self, stream: str) -> str:
        """As Mars gets it."""
        return self.kind.sql(stream, self.where.sql)

    @property
    def options(self) -> dict[str, str]:
        """As Mars gets them."""
        return {"delay": self.delay, "idle_after": IDLE_AFTER, **self.kind.options}

    @property
    def windows_of_groups(self) -> bool:
        """Whether each group has windows of its own."""
        return self.kind is SESSIONS

    def same_as(self, other: Query) -> bool:
        """Whether Mars makes no version of a change from one to the other."""
        return (self.kind, self.where, self.options) == (other.kind, other.where, other.options)

    def holds(self, row: Row) -> bool:
        """Whether it counts a row."""
        return row["type"] != CLOSING and self.where.holds(row)

    def counted(self, rows: Iterable[Row | None]) -> list[Row]:
        """The rows that it counts."""
        return [row for row in rows if row is not None and self.holds(row)]

    def wanted(self, rows: Sequence[Row]) -> dict[Group, dict[str, Any]]:
        """What DuckDB computes, by group."""
        return self.kind.wanted([dict(row) for row in rows])

    def group(self, value: Mapping[str, Any]) -> Group:
        """Which group a result is of."""
        return self.kind.group(value)


def every_query() -> Iterator[Query]:
    """All of them."""
    return starmap(Query, product(ALL_KINDS, WHERES, DELAYS))


def any_query(chance: random.Random) -> Query:
    """One of them all."""
    return Query(chance.choice(ALL_KINDS), chance.choice(WHERES), chance.choice(DELAYS))


def other_query(chance: random.Random, than: Query) -> Query:
    """Another one: Mars must make a version of it."""
    while (found := any_query(chance)).same_as(than):
        pass
    return found
