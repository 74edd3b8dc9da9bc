"""Flows with ids, out of order within a delay, and what a batch engine makes of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

Group = tuple[Any, ...]
"""Window start and keys."""

Result = tuple[bytes, dict[str, Any], dict[str, str]]

FIELDS = {
    "timestamp": "timestamp_ms",
    "sip": "string",
    "type": "string",
    "bytes": "int64",
    "id": "int64",
    "hash": "int64",
}

QUERY = (
    "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
    "sum(hash) AS hashes FROM flows GROUP BY sip, type, timestamp WINDOWING 5 s"
)
"""Sums of ids and of their hashes: one lost and one doubled row do not cancel out."""

CLOSING = "closing"
"""Type of the rows that only let windows close."""

KEY = ("sip", "type")


def flow_rows(
    first: int, count: int, start_ms: int, *, rows_per_s: int, disorder_ms: int = 500, seed: int = 1
) -> list[dict[str, Any]]:
    """Rows with ids from `first`; event time goes on, rows are up to `disorder_ms` behind it."""
    chance = random.Random(seed * 1_000_003 + first)
    return [
        {
            "timestamp": start_ms + number * 1000 // rows_per_s - chance.randrange(disorder_ms + 1),
            "sip": f"10.0.{chance.randrange(4)}.{int(chance.paretovariate(1.1)) % 100}",
            "type": chance.choice(("dns", "http", "tls")),
            "bytes": chance.randrange(40, 1500),
            "id": first + number,
            "hash": (first + number) * 0x9E3779B97F4A7C15 % 2**31,
        }
        for number in range(count)
    ]


def closing_rows(
    rows: Sequence[Mapping[str, Any]], partitions: int, window_ms: int
) -> list[dict[str, Any]]:
    """One more for each partition, past the last window and a delay of a second.

    They close the windows of `rows` without any lane being called idle.
    """
    end_ms = max(row["timestamp"] for row in rows) + window_ms + 1000
    last = rows[-1]
    return [
        {**last, "id": last["id"] + 1 + number, "type": CLOSING, "timestamp": end_ms}
        for number in range(partitions)
    ]


def messages(rows: Sequence[Mapping[str, Any]], partitions: int) -> list[tuple[int, bytes | None]]:
    """(partition, JSON) of each row, round robin."""
    return [(row["id"] % partitions, msgspec.json.encode(row)) for row in rows]


def computed(query: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines of a query of DuckDB over the rows, which are its table `arrived`."""
    arrived = pa.Table.from_pylist([dict(row) for row in rows])  # noqa: F841 -- DuckDB finds it
    cursor = duckdb.sql(query)
    assert cursor is not None
    names = cursor.columns
    return [dict(zip(names, line, strict=True)) for line in cursor.fetchall()]


def expected(
    rows: Sequence[Mapping[str, Any]], window_ms: int = 5_000
) -> dict[Group, dict[str, Any]]:
    """What DuckDB computes for `QUERY` over the rows, by (window_start, sip, type)."""
    found = computed(
        f"SELECT timestamp // {window_ms} * {window_ms} AS window_start, sip, type, "
        "count(*)::BIGINT AS count, sum(bytes)::BIGINT AS bytes, sum(id)::BIGINT AS ids, "
        "sum(hash)::BIGINT AS hashes FROM arrived GROUP BY ALL",
        rows,
    )
    return {(line["window_start"], *(line[name] for name in KEY)): line for line in found}


def assert_exactly_once(
    results: Sequence[Result], wanted: Mapping[Group, Mapping[str, Any]]
) -> None:
    """Each (window, key) once, no other, with the wanted values."""
    emitted: dict[Group, dict[str, Any]] = {}
    doubled = []
    for _key, value, _headers in results:
        at = (value["window_start"], *(value[name] for name in KEY))
        if at in emitted:
            doubled.append(at)
        emitted[at] = value
    assert not doubled, f"{len(doubled)} emitted twice: {doubled[:5]}"
    assert_same_groups(emitted, wanted)


def assert_same_groups(
    emitted: Mapping[Group, Mapping[str, Any]],
    wanted: Mapping[Group, Mapping[str, Any]],
    task: str = "",
) -> None:
    """Each wanted group, no other, with the wanted values. `task` says whose they are."""
    lost = wanted.keys() - emitted.keys()
    assert not lost, (
        f"{task} {len(lost)} of {len(wanted)} never emitted: {sorted(lost, key=str)[:5]}"
    )
    made_up = emitted.keys() - wanted.keys()
    assert not made_up, f"{task} {len(made_up)} not in the data: {sorted(made_up, key=str)[:5]}"
    wrong = {
        at: (emitted[at], dict(line))
        for at, line in wanted.items()
        if any(emitted[at][name] != value for name, value in line.items())
    }
    assert not wrong, f"{task} {len(wrong)} of {len(wanted)} wrong: {list(wrong.items())[:3]}"
