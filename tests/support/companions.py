"""Tasks of other kinds beside that of a load, over the same topic, and what DuckDB makes of them.

kind       windows                   what is different
sliding    4 s, every 2 s            each row is in two windows
revised    5 s, no delay             rows out of order come late and revise; the newest counts
distinct   2 s                       sets, extremes, a filter, an expression of aggregates
top        5 s                       the three keys with most rows, chosen over all reducers
landmark   since 2026, every 2 s     windows have all rows from a fixed time on
counting   150 rows of a partition   by the order of offsets; the last window stays open
of keys    40 rows of a key          the same for each key of a partition

The last three are among `LONG_KINDS` alone: earlier releases do not know them. Each reads all
fields of the rows: what is bad in one of them is bad for every task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.cluster import wait_for
from tests.support.late import newest_revisions
from tests.support.load import DRAIN_S, PARTITIONS, Load, Row
from tests.support.rows import CLOSING, Group, assert_same_groups, computed

COUNTED_ROWS = 150
"""Of one window of the kind `counting`."""

COUNTED_ROWS_OF_KEY = 40
"""Of one window of the kind `of_keys`."""

SUMS = "count(*) AS n, sum(bytes) AS bytes, sum(id) AS ids, sum(hash) AS hashes"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of task.

    Mars's query is `select`, what all have in common, and `rest`; `oracle` is DuckDB's, over a
    table `arrived`. `keys` and the window tell the groups apart.
    """

    name: str
    select: str
    rest: str
    oracle: str
    keys: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    start: str = "latest"
    not_computed: tuple[str, ...] = ()
    """Columns of a result that only Mars can know."""

    counted_rows: int = 0
    """Of windows of so many rows, for which there is no delay and no idleness."""

    counted_by: tuple[str, ...] = ()
    """By which keys they are counted."""

    @property
    def counts(self) -> bool:
        """Whether windows are of so many rows."""
        return self.counted_rows > 0

    def left_open(self, rows: Sequence[Row]) -> int:
        """How many of the rows, which go to all partitions in turn, are in windows not yet full."""
        if not self.counts:
            return 0
        shares = Counter(
            (row["id"] % PARTITIONS, *(row[key] for key in self.counted_by)) for row in rows
        )
        return sum(share % self.counted_rows for share in shares.values())

    def sql(self, stream: str, where: str = "") -> str:
        """The task's query, of those rows of which `where` holds."""
        more = f" AND {where}" if where else ""
        return f"SELECT {self.select} FROM {stream} WHERE type <> '{CLOSING}'{more} {self.rest}"

    def wanted(self, rows: Sequence[Row]) -> dict[Group, dict[str, Any]]:
        """What DuckDB computes, by group."""
        return {self.group(line): line for line in computed(self.oracle, rows)} if rows else {}

    def group(self, value: Mapping[str, Any]) -> Group:
        """Which group a result row is of."""
        return (value["window_start"], value["window_end"], *(value[key] for key in self.keys))


def window(size_ms: int, slide_ms: int = 0, back: str = "0") -> str:
    """The columns of the window of a row, the `back`th before the newest that has it."""
    every_ms = slide_ms or size_ms
    start = f"(timestamp // {every_ms} - {back}) * {every_ms}"
    return f"{start} AS window_start, {start} + {size_ms} AS window_end"


KINDS = (
    Kind(
        "sliding",
        f"sip, type, {SUMS}",
        "GROUP BY sip, type, timestamp WINDOWING 4 s SLIDE 2 s",
        f"SELECT {window(4_000, 2_000, 'back')}, sip, type, {SUMS} "
        "FROM arrived, (SELECT unnest([0, 1]) AS back) GROUP BY ALL",
        ("sip", "type"),
    ),
    Kind(
        "revised",
        f"sip, type, {SUMS}",
        "GROUP BY sip, type, timestamp WINDOWING 5 s",
        f"SELECT {window(5_000)}, sip, type, {SUMS} FROM arrived GROUP BY ALL",
        ("sip", "type"),
        {"delay": "0s", "late": "revise", "lateness": "10min"},
    ),
    Kind(
        "distinct",
        "type, count(DISTINCT sip) AS sips, min(bytes) AS low, max(bytes) AS high, "
        "count(*) FILTER (WHERE bytes > 700) AS large, sum(hash) - min(id) AS rest",
        "GROUP BY type, timestamp WINDOWING 2 s",
        f"SELECT {window(2_000)}, type, count(DISTINCT sip) AS sips, min(bytes) AS low, "
        "max(bytes) AS high, count(*) FILTER (WHERE bytes > 700) AS large, "
        "sum(hash) - min(id) AS rest FROM arrived GROUP BY ALL",
        ("type",),
        {"buckets": "one"},
    ),
    Kind(
        "top",
        f"sip, {SUMS}",
        "GROUP BY sip, timestamp ORDER BY n DESC, sip LIMIT 3 WINDOWING 5 s",
        f"SELECT {window(5_000)}, sip, {SUMS} FROM arrived "
        "GROUP BY window_start, window_end, sip QUALIFY row_number() OVER "
        "(PARTITION BY window_start ORDER BY n DESC, sip) <= 3",
        ("sip",),
    ),
)


LANDMARK_MS = 1_767_225_600_000

LONG_KINDS = (
    *KINDS,
    Kind(
        "landmark",
        f"type, count(sip) AS sips, {SUMS}",
        "GROUP BY type, timestamp WINDOWING LANDMARK '2026-01-01T00:00:00Z' EVERY 2 s",
        f"SELECT {LANDMARK_MS} AS window_start, step AS window_end, type, "
        f"count(sip) AS sips, {SUMS} "
        "FROM arrived, (SELECT DISTINCT (timestamp // 2000 + 1) * 2000 AS step FROM arrived) "
        "WHERE timestamp < step GROUP BY ALL",
        ("type",),
        start="earliest",
    ),
    Kind(
        "counting",
        f"type, count(sip) AS sips, {SUMS}",
        f"GROUP BY type WINDOWING {COUNTED_ROWS} ROWS",
        "SELECT min(timestamp) AS window_start, max(timestamp) AS window_end, "
        f"partition, number // {COUNTED_ROWS} AS window_number, type, count(sip) AS sips, {SUMS} "
        f"FROM (SELECT *, id % {PARTITIONS} AS partition, "
        "row_number() OVER own - 1 AS number, count(*) OVER (PARTITION BY partition) AS rows "
        f"FROM arrived WINDOW own AS (PARTITION BY id % {PARTITIONS} ORDER BY id)) "
        f"WHERE number < rows // {COUNTED_ROWS} * {COUNTED_ROWS} GROUP BY ALL",
        ("partition", "window_number", "type"),
        not_computed=("window_first_offset", "window_last_offset"),
        counted_rows=COUNTED_ROWS,
    ),
    Kind(
        "of_keys",
        f"type, count(sip) AS sips, {SUMS}",
        f"GROUP BY type WINDOWING {COUNTED_ROWS_OF_KEY} ROWS PER KEY EXPIRE 1 d",
        "SELECT min(timestamp) AS window_start, max(timestamp) AS window_end, partition, "
        f"min(number) AS window_number, type, count(sip) AS sips, {SUMS} "
        f"FROM (SELECT *, id % {PARTITIONS} AS partition, row_number() OVER own - 1 AS number, "
        "row_number() OVER key - 1 AS own_number, count(*) OVER (PARTITION BY partition, type) "
        f"AS rows FROM arrived WINDOW own AS (PARTITION BY id % {PARTITIONS} ORDER BY id), "
        f"key AS (PARTITION BY id % {PARTITIONS}, type ORDER BY id)) "
        f"WHERE own_number < rows // {COUNTED_ROWS_OF_KEY} * {COUNTED_ROWS_OF_KEY} "
        f"GROUP BY partition, type, own_number // {COUNTED_ROWS_OF_KEY}",
        ("partition", "window_number", "type"),
        not_computed=("window_first_offset", "window_last_offset"),
        counted_rows=COUNTED_ROWS_OF_KEY,
        counted_by=("type",),
    ),
)


class AccompaniedLoad(Load):
    """A load with one more task of each kind over its rows."""

    kinds: Sequence[Kind] = KINDS

    def declare(self) -> None:
        """Topic, stream and tasks."""
        super().declare()
        for kind in self.kinds:
            options = {} if kind.counts else {**self.options, **kind.options}
            self.mars.client.create_task(
                self.of(kind), kind.sql(self.name), start=kind.start, options=options
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its tasks."""
        return (self.name, *(self.of(kind) for kind in self.kinds))

    def of(self, kind: Kind) -> str:
        """The name of the task of this kind."""
        return f"{self.name}_{kind.name}"

    def check(self, *, seconds: float = DRAIN_S, bad: int = 0, future: int = 0) -> None:
        """The load's own results, and those of each kind, are what DuckDB computes."""
        super().check(seconds=seconds, bad=bad, future=future)
        for kind in self.kinds:
            self._check_kind(kind, seconds)
            left_open = kind.left_open(self.rows)
            self.check_ledger(self.of(kind), bad=bad, future=future, left_open=left_open)

    def _check_kind(self, kind: Kind, seconds: float) -> None:
        wanted = kind.wanted(self.rows)
        with suppress(AssertionError):  # what is wrong is told below
            wait_for("all results", lambda: self._results(kind) == wanted, seconds=seconds)
        found = self._results(kind)
        assert_same_groups(found, wanted, kind.name)
        assert found == wanted, f"{kind.name} has other columns"

    def _results(self, kind: Kind) -> dict[Group, dict[str, Any]]:
        """The newest revision of each group. Fails where one is twice."""
        came = newest_revisions(self.mars.read(f"mars.results.{self.of(kind)}"), kind.group)
        return {
            kind.group(value): {name: value[name] for name in value.keys() - kind.not_computed}
            for _key, value, _headers in came
        }
