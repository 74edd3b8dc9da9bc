"""Operators without brackets bind as they do in DuckDB."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import StreamName, TaskName
from mars.engine.evaluate import to_polars
from mars.sql import compile_task

S = Stream(
    name=StreamName("S"),
    topic="s",
    format=Format.JSON,
    fields=(
        Field("ts", FieldType.TIMESTAMP_MS),
        *(Field(name, FieldType.INT64) for name in "ij"),
        *(Field(name, FieldType.BOOL) for name in "bc"),
        Field("s", FieldType.STRING),
    ),
    event_time="ts",
)
ROWS = pl.DataFrame(
    {
        "i": [0, 1, 2, -3, None, 5, 7, 4],
        "j": [3, None, -1, 2, 1, 0, 7, -4],
        "b": [True, False, None, True, False, None, True, False],
        "c": [True, True, True, False, False, False, None, None],
        "s": ["a", "ab", None, "b", "", "ba", "aa", "abc"],
    }
)

numbers = st.recursive(
    st.sampled_from(["i", "j", "1", "2", "- 3"]),
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*"), inner),
        inner.map("- {}".format),
    ),
    max_leaves=4,
)
texts = st.recursive(
    st.sampled_from(["s", "'a'", "'b'"]),
    lambda inner: st.builds("{} || {}".format, inner, inner),
    max_leaves=3,
)
predicates = st.recursive(
    st.one_of(
        st.sampled_from(["b", "c", "TRUE", "NULL", "b IS NULL"]),
        st.builds("{} {} {}".format, numbers, st.sampled_from(["=", "<>", "<", ">="]), numbers),
        st.builds("{} = {}".format, texts, texts),
        st.builds("{} {}BETWEEN {} AND {}".format, numbers, st.sampled_from(["", "NOT "]), numbers,
                  numbers),
        st.builds("{} {}IN ({}, {})".format, numbers, st.sampled_from(["", "NOT "]), numbers,
                  numbers),
        st.builds("{} {}LIKE '{}'".format, texts, st.sampled_from(["", "NOT "]),
                  st.sampled_from(["a%", "_", "%b%"])),
        st.builds("{} IS {}NULL".format, numbers, st.sampled_from(["", "NOT "])),
        st.builds("CASE WHEN {} > 1 THEN b ELSE c END".format, numbers),
    ),
    lambda inner: st.one_of(
        inner.map("NOT {}".format),
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR"]), inner),
    ),
    max_leaves=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("given_rows", ROWS.with_row_index("line").to_arrow())
        yield connection


@settings(max_examples=100)
@given(predicates)
def test_predicate_selects_the_rows_that_it_selects_in_duckdb(
    duck: duckdb.DuckDBPyConnection, predicate: str
) -> None:
    plan = compile_task(
        f"SELECT count(*) FROM S WHERE {predicate} WINDOWING 60 s",
        task=TaskName("t"),
        version=1,
        stream_of=lambda _: S,
        options={},
    )
    assert plan.filter is not None
    ours = ROWS.with_columns(to_polars(plan.filter).alias("found"))["found"].to_list()
    query = f"SELECT CAST(({predicate}) AS BOOLEAN) FROM given_rows ORDER BY line"
    assert ours == [found for (found,) in duck.execute(query).fetchall()]
