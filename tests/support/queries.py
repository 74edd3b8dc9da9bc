"""The queries among which users change: kinds of windows and aggregates, rows, delays.

Each stands for what DuckDB computes over the rows of which it holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.companions import KINDS, SUMS, Kind
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
    f"SELECT timestamp // 3000 * 3000 AS window_start, sip, type, {SUMS} FROM arrived GROUP BY ALL",
    ("sip", "type"),
)

ALL_KINDS = (TUMBLING, *KINDS)

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


def any_query(chance: random.Random) -> Query:
    """One of them all."""
    return Query(chance.choice(ALL_KINDS), chance.choice(WHERES), chance.choice(DELAYS))


def other_query(chance: random.Random, than: Query) -> Query:
    """Another one: Mars must make a version of it."""
    while (found := any_query(chance)).same_as(than):
        pass
    return found
