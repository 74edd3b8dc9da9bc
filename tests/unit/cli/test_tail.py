"""`mars tail`: a window is shown as soon as its rows have stopped coming."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mars.answers import ResultEvent, WindowSource
from mars.cli import run
from mars.errors import Unavailable


def event(start_s: int, page: str, revision: int = 0, *, deleted: bool = False) -> ResultEvent:
    raw = f'{{"window_start":{start_s}000,"window_end":{start_s + 10}000,"page":"{page}"}}'
    source = WindowSource(0, 1, {}, revision, deleted)
    return ResultEvent(partition=0, offset=start_s, raw=raw.encode(), source=source)


class Results:
    """Stands in for a client: some events, and then silence, or the end."""

    events: tuple[ResultEvent, ...] = ()
    ends = False

    def __init__(self, _address: str) -> None:
        self._gone = threading.Event()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self._gone.set()

    def task(self, _name: str) -> None:
        return None

    def tail(self, _name: str) -> Iterator[ResultEvent]:
        yield from self.events
        if not self.ends:
            self._gone.wait()
        raise Unavailable("api", "it went away")


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> type[Results]:
    class Ours(Results):
        pass

    monkeypatch.setattr("mars.cli.tail.Client", Ours)
    monkeypatch.setattr("mars.cli.tail.QUIET_S", 0.05)
    return Ours


def test_window_is_shown_when_its_rows_stop_coming(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results.events = (event(10, "/a"), event(10, "/b"))
    assert run(["tail", "by_page", "--windows", "1", "--api", "http://mars"]) == 0
    told = capsys.readouterr().out
    assert "1970-01-01 00:00:10  2 rows" in told
    assert '"/b"' in told


def test_window_is_shown_when_the_next_one_begins_which_is_kept(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results.events = (event(10, "/a"), event(20, "/b"))
    assert run(["tail", "by_page", "--windows", "2", "--api", "http://mars"]) == 0
    told = capsys.readouterr().out
    assert told.index("00:00:10  1 row\n") < told.index("00:00:20  1 row\n")


def test_each_revision_of_a_window_is_a_table_of_its_own(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results.events = (event(10, "/a"), event(10, "/a", 1), event(10, "/b", 1, deleted=True))
    assert run(["tail", "by_page", "--windows", "3", "--api", "http://mars"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "00:00:10" in line]
    assert [line.partition("  ")[2] for line in told] == [
        "1 row",
        "1 row (revision 1, for late rows)",
        "1 row taken back, which HAVING lets pass no more (revision 1, for late rows)",
    ]


@pytest.mark.parametrize("page", ["2001:db8:a:b::1", ":100:", "[/x]", "[red]"])
def test_values_are_shown_as_they_are(
    results: type[Results], page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results.events = (event(10, page),)
    assert run(["tail", "by_page", "--windows", "1", "--api", "http://mars"]) == 0
    assert f'"{page}"' in capsys.readouterr().out


def test_rows_come_as_lines_of_json(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results.events = (event(10, "/a"),)
    arguments = ["--windows", "1", "--json", "--sources", "--api", "http://mars"]
    assert run(["tail", "by_page", *arguments]) == 0
    assert capsys.readouterr().out.startswith('{"row":{"window_start":10000,')


def test_end_of_the_stream_is_told(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results.ends = True
    assert run(["tail", "by_page", "--api", "http://mars"]) == 1
    assert "it went away" in capsys.readouterr().err
