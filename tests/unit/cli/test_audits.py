"""What `mars dead` shows, and that it says so where there is more."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

import mars.client.blocking
from mars.cli import run
from mars.client.answers import DeadRow, DeadRows
from mars.core.types import Reason

ROWS = tuple(
    DeadRow(
        partition=0,
        lane=None,
        topic="flows",
        offset=number,
        next=number + 1,
        rows=1,
        reason=Reason.LATE,
        version=1,
        window_start=0,
        detail="",
        sample=None,
    )
    for number in range(5)
)


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers as the API would."""

    def dead(
        _client: object, _name: str, *, reason: str | None, after: str | None, limit: int
    ) -> DeadRows:
        assert reason is None
        first = int(after or 0)
        end = min(first + limit, len(ROWS))
        return DeadRows(list(ROWS[first:end]), str(end) if end < len(ROWS) else None)

    monkeypatch.setattr(mars.client.Client, "dead", dead)


@pytest.mark.parametrize(
    ("asked", "shown", "more"),
    [(["--limit", "3"], 3, True), (["--limit", "5"], 5, False), (["--all"], 5, False)],
)
def test_a_list_that_is_cut_says_so(
    asked: list[str], shown: int, more: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["dead", "one", *asked, "--api", "http://api"]) == 0

    said = capsys.readouterr().out
    assert said.count("flows[0]") == shown
    assert ("--all" in said) is more


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        ("\\[/x]", "\\[/x]"),
        ('{"ip": "2001:db8:a:b::1", "n": ":100:"}', '{"ip": "2001:db8:a:b::1", "n": ":100:"}'),
        ("\x1b[2J\r\x9b", "\\x1b[2J\\x0d\\x9b"),
    ],
)
def test_sample_of_a_bad_row_is_shown_as_it_is_and_not_obeyed(
    sample: str,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = DeadRows([structs.replace(ROWS[0], detail="no JSON", sample=sample)], None)
    monkeypatch.setattr(mars.client.Client, "dead", lambda *_asked, **_more: found)
    monkeypatch.setenv("COLUMNS", "200")

    assert run(["dead", "one", "--api", "http://api"]) == 0

    assert f"no JSON: {shown}" in capsys.readouterr().out


def test_as_json_there_are_rows_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dead", "one", "--limit", "3", "--json", "--api", "http://api"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([], "No row was left out so far, except by WHERE."),
        (["--reason", "late"], "No row was left out as late so far."),
    ],
)
def test_an_empty_list_says_for_what_reason_no_row_is_in_it(
    asked: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mars.client.Client, "dead", lambda *_a, **_b: DeadRows([], None))

    assert run(["dead", "one", *asked, "--api", "http://api"]) == 0
    assert capsys.readouterr().out.strip() == told
