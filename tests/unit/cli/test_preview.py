"""`mars task preview`, against the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mars.cli import run
from mars.client.blocking import Client
from tests.unit.api.twins import World
from tests.unit.cli.test_query import Kept

SQL = "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 10 s"
ROWS = '{"timestamp": 1000, "sip": "a"}\n\n{"timestamp": 2000, "sip": "[b]"}\n{"timestamp": "x"}\n'


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.ndjson"
    path.write_text(ROWS)
    return str(path)


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    assert made.declare().status_code == 201
    monkeypatch.setattr("mars.cli.tasks.Client", partial(Client, transport=Kept(made.transport)))
    yield made
    made.close()


def preview(*arguments: str) -> int:
    return run(["task", "preview", "--api", "http://mars", *arguments])


def test_preview_shows_windows_and_says_what_to_know(
    rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert preview("--sql", SQL, "--rows", rows) == 0
    shown = capsys.readouterr().out
    assert "1970-01-01 00:00:00  2 groups" in shown
    assert '"[b]"' in shown
    assert "3 rows read: 2 counted, 0 filtered, 1 bad, 0 future." in shown
    assert "Rows are in order within their partitions" in shown
    assert "wrong_type" in shown


def test_values_and_bad_rows_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "rows"
    path.write_text('{"timestamp": 1000, "sip": "2001:db8:a:b::1"}\n{"timestamp": ":id:[/x]"}\n')
    assert preview("--sql", SQL, "--rows", str(path)) == 0
    shown = capsys.readouterr().out
    assert '"2001:db8:a:b::1"' in shown
    assert '{"timestamp":":id:[/x]"}' in shown.replace(": ", ":")


def test_preview_gives_json(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert preview("--sql", SQL, "--rows", rows, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["counted"] == 2
    assert [row["sip"] for row in found["windows"][0]["rows"]] == ["[b]", "a"]


def test_wrong_query_is_told_at_its_place(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert preview("--sql", "SELECT nothing FROM flows", "--rows", rows) == 4
    assert "line 1, column 8" in capsys.readouterr().err


def test_line_that_is_no_json_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows"
    path.write_text('{"timestamp": 1}\nnot json\n')
    assert preview("--sql", SQL, "--rows", str(path)) == 4
    assert "line 2: this is not a JSON value" in " ".join(capsys.readouterr().err.split())


def test_windows_that_count_rows_are_named_by_their_numbers(
    rows: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    sql = SQL.replace("10 s", "1 ROWS")
    assert preview("--sql", sql, "--rows", rows) == 0
    shown = capsys.readouterr().out
    assert "window 0 of partition 0  1 group\n" in shown
    assert "window 1 of partition 0  1 group\n" in shown
    assert "1970-01-01 00:00:02" in shown
    assert "No row is late" in shown
    assert preview("--sql", SQL.replace("10 s", "3 ROWS"), "--rows", rows) == 0
    assert "window 0 of partition 0  2 groups, not full\n" in capsys.readouterr().out


def test_sessions_are_one_table(
    rows: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert preview("--sql", SQL.replace("10 s", "SESSION 500 ms"), "--rows", rows) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["begins", "ends", "sip", "count"] in lines
    day = "1970-01-01"
    assert [day, "00:00:01", day, "00:00:01", '"a"', "1"] in lines
    more = ["may", "have", "more", "rows"]
    assert [day, "00:00:02", day, "00:00:02", '"[b]"', "1", *more] in lines
