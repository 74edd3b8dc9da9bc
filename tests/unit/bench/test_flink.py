"""What Flink is given."""

from __future__ import annotations

import re
from pathlib import Path

from bench.flink.parts import CONNECTOR_VERSION, VERSION
from bench.flink.query import Query, Tuning, configuration, statements
from mars.core.plan import Format
from mars.local.flows import FIELDS
from mars.local.jars import LISTS


def query(format_: Format, *, earliest: bool = True) -> Query:
    return Query("run_1", "127.0.0.1:9", "flows", "out", format_, 60, 1, earliest)


def test_statements_leave_no_placeholder_and_declare_every_field() -> None:
    text = statements(query(Format.JSON))
    assert "$" not in text
    assert all(f"`{field.name}`" in text for field in FIELDS)


def test_ndjson_is_read_with_the_format_of_lines() -> None:
    assert "'format' = 'json-lines'" in statements(query(Format.NDJSON))
    assert "json-lines" not in statements(query(Format.JSON))


def test_a_query_starts_at_the_beginning_or_at_the_end() -> None:
    assert "'earliest-offset'" in statements(query(Format.JSON))
    assert "'latest-offset'" in statements(query(Format.JSON, earliest=False))


def test_checkpoints_are_exactly_once_at_the_interval_asked_for() -> None:
    settings = configuration(Tuning(checkpoint_s=0.5), Path("/x"), 1, 2)
    assert settings["execution.checkpointing.mode"] == "EXACTLY_ONCE"
    assert settings["execution.checkpointing.interval"] == "500 ms"


def test_versions_are_those_of_the_jars() -> None:
    listed = (LISTS / "flink.ivy.xml").read_text("utf-8")
    assert re.search(rf'name="flink-runtime" rev="{re.escape(VERSION)}"', listed)
    assert re.search(rf'name="flink-sql-connector-kafka" rev="{CONNECTOR_VERSION}"', listed)


def test_every_jar_of_the_list_has_a_checksum() -> None:
    listed = (LISTS / "flink.ivy.xml").read_text("utf-8")
    wanted = {
        f"{name}-{revision}.jar"
        for name, revision in re.findall(r'name="([^"]+)" rev="([^"]+)"', listed)
    }
    checked = {line.split()[1] for line in (LISTS / "flink.sha256").read_text("utf-8").splitlines()}
    assert checked == wanted
