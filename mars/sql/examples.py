"""How each operator, function and aggregate is written.

Complaints show it where something is written otherwise, and docs/reference/sql.md is made of it.
Fields are those of an example stream: `bytes` is a number, `sip` a text, `loss` a float, `ok` a
boolean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

OPERATORS: Final[Mapping[str, str]] = {
    "add": "bytes + 1",
    "div": "bytes / 2",
    "mod": "bytes % 2",
    "gte": "bytes >= 10",
    "and": "ok AND NOT bytes = 1",
    "in": "sip IN ('a', 'b')",
    "between": "bytes BETWEEN 1 AND 9",
    "like": "sip LIKE 'a_%' ESCAPE '!'",
    "is": "sip IS NOT NULL",
    "dpipe": "sip || '!'",
}
"""By the key of the parser's node; one for each kind of operator."""

SCALARS: Final[Mapping[str, str]] = {
    "abs": "ABS(bytes)",
    "case": "CASE WHEN ok THEN 'yes' ELSE 'no' END",
    "cast": "CAST(sip AS BIGINT)",
    "ceil": "CEIL(loss)",
    "coalesce": "COALESCE(sip, 'none')",
    "concat": "CONCAT(sip, ':', bytes)",
    "floor": "FLOOR(loss)",
    "length": "LENGTH(sip)",
    "lower": "LOWER(sip)",
    "nullif": "NULLIF(sip, '')",
    "round": "ROUND(loss, 2)",
    "substr": "SUBSTR(sip, 1, 3)",
    "upper": "UPPER(sip)",
}
"""Every scalar function, by its name."""

SPELLINGS: Final[Mapping[str, str]] = {
    "bytes == 1": "bytes = 1",
    "bytes != 1": "bytes <> 1",
    "bytes = 1_000": "bytes = 1000",
    "MOD(bytes, 2) = 1": "bytes % 2 = 1",
    "sip ISNULL": "sip IS NULL",
    "sip::BIGINT = 1": "CAST(sip AS BIGINT) = 1",
    "TRY_CAST(sip AS BIGINT) = 1": "CAST(sip AS BIGINT) = 1",
    "at > TIMESTAMP '2026-01-01'": "at > CAST('2026-01-01' AS TIMESTAMP)",
    "LEN(sip) = 1": "LENGTH(sip) = 1",
    "SUBSTRING(sip FROM 1 FOR 3) = 'a'": "SUBSTR(sip, 1, 3) = 'a'",
}
"""Conditions as other engines write them, and as this page does: both mean the same."""

AGGREGATES: Final[Mapping[str, Sequence[str]]] = {
    "any_value": ["any_value(sip)"],
    "avg": ["avg(bytes)"],
    "bool_and": ["bool_and(ok)"],
    "bool_or": ["bool_or(ok)"],
    "count": ["count(*)", "count(sip)", "count(DISTINCT sip)"],
    "count_if": ["count_if(ok)"],
    "max": ["max(sip)"],
    "min": ["min(loss)"],
    "stddev_pop": ["stddev_pop(bytes)"],
    "stddev_samp": ["stddev_samp(bytes)"],
    "sum": ["sum(bytes)", "sum(bytes) FILTER (WHERE ok)"],
    "var_pop": ["var_pop(bytes)"],
    "var_samp": ["var_samp(bytes)"],
}
"""Every form of every aggregate, by its name."""

_CLAUSES: Final[Mapping[str, str]] = {
    "table": "FROM flows",
    "tablealias": "FROM flows AS f",
    "group": "GROUP BY sip, type",
    "order": "ORDER BY count(*) DESC",
    "ordered": "ORDER BY count(*) DESC",
    "distinct": "count(DISTINCT sip)",
    "star": "count(*)",
}
_OTHER_KEYS: Final[Mapping[str, str]] = {"substring": "substr", "trycast": "cast"}


def written(key: str) -> str | None:
    """How a node of that key, or an aggregate of that name, is written; None if nothing says."""
    name = _OTHER_KEYS.get(key, key)
    if name in AGGREGATES:
        *most, last = AGGREGATES[name]
        return f"{', '.join(most)} or {last}" if most else last
    return {**OPERATORS, **SCALARS, **_CLAUSES}.get(name)
