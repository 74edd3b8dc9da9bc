"""`mars windows`, against the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from mars.cli import run
from mars.client.blocking import Client
from tests.unit.api.twins import World
from tests.unit.cli.test_query import Kept

ROWS = [{"timestamp": 60_000 + at, "sip": sip} for at, sip in enumerate("aab")]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    assert made.declare().status_code == 201
    monkeypatch.setattr("mars.cli.why.Client", partial(Client, transport=Kept(made.transport)))
    monkeypatch.setenv("COLUMNS", "200")
    yield made
    made.close()


def filled(world: World, form: str) -> None:
    sql = f"SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING {form}"
    assert world.register(sql=sql, start="earliest").status_code == 201
    world.start_in_store()
    for number in (0, 1):
        world.run_batch(ROWS, partition=number)


def windows(*arguments: str) -> int:
    return run(["windows", "by_sip", "--api", "http://mars", *arguments])


def test_rows_of_open_windows_are_one_table(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(world, "60 s")
    assert windows() == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    day = "1970-01-01"
    assert ["window_start", "window_end", "sip", "count"] in lines
    assert [day, "00:01:00", day, "00:02:00", '"a"', "4"] in lines
    assert "1 open window." in shown
    assert windows("--key", "b", "--json") == 0
    (window,) = json.loads(capsys.readouterr().out)["windows"]
    assert [row["sip"] for row in window["rows"]] == ["b"]


def test_windows_that_count_the_rows_of_one_partition(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(world, "2 ROWS")
    assert windows("--partition", "1", "--limit", "1") == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if "1970" in line]
    assert [row[4:6] for row in rows] == [["1", "0"], ["1", "1"]]
    assert "2 open windows.\n" in shown
    assert windows("--limit", "1", "--order", "-count") == 0
    assert "4 open windows.\n" in capsys.readouterr().out


def test_a_task_without_open_windows_says_so(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.register().status_code == 201
    assert windows() == 0
    assert capsys.readouterr().out == "0 open windows.\n"
    assert windows("--partition", "1") == 4
    assert "go by time" in " ".join(capsys.readouterr().err.split())
