"""`mars tail`: a window is shown as soon as its rows have stopped coming."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from queue import Empty, SimpleQueue

import httpx
import msgspec
import pytest

from mars.cli import run
from mars.client.answers import ResultEvent, Task, WindowSource
from mars.client.blocking import Client
from mars.core.definitions import REGISTER_AGAIN
from mars.core.errors import Unavailable


def event(start_s: int, page: str, revision: int = 0, *, deleted: bool = False) -> ResultEvent:
    raw = f'{{"window_start":{start_s}000,"window_end":{start_s + 10}000,"page":"{page}"}}'
    source = WindowSource(0, 1, {}, revision, deleted)
    return ResultEvent(partition=0, offset=start_s, raw=raw.encode(), source=source)


TASK: dict[str, object] = {
    "name": "by_page",
    "version": 1,
    "state": "running",
    "detail": "",
    "sql": "",
    "options": {},
    "stream": "clicks",
    "created": 0,
    "plan": None,
    "output": None,
    "versions": [],
    "rates": {"rows_per_second": None, "messages_per_second": None},
    "lag": None,
    "watermark": None,
    "ledger": None,
    "log_bytes": None,
    "missing": [],
}


class Results:
    """Stands in for a client: some events, and then silence, or the end."""

    events: tuple[ResultEvent, ...] = ()
    ends = False
    changes: Mapping[str, object] = {}
    """What the task is, other than TASK."""

    def __init__(self, _address: str) -> None:
        self._gone = threading.Event()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self._gone.set()

    def task(self, _name: str) -> Task:
        return msgspec.convert({**TASK, **self.changes}, Task)

    def tail(self, _name: str, **_more: object) -> Iterator[ResultEvent]:
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


CUMULATING: dict[str, object] = {
    "stream": "clicks",
    "topic": "clicks",
    "window": {"kind": "cumulating", "size_ms": 60_000, "slide_ms": 10_000, "step_ms": 10_000},
    "fields": [],
    "filter": None,
    "keys": [],
    "aggregates": [],
    "having": None,
    "order_by": [],
    "limit": None,
    "outputs": [],
    "options": {},
}


def test_windows_that_begin_together_are_tables_of_their_own_named_by_their_ends(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    values = (f'{{"window_start":0,"window_end":{end}0000,"page":"/a"}}' for end in (1, 2))
    results.events = tuple(ResultEvent(0, 0, raw.encode()) for raw in values)
    results.changes = {"plan": CUMULATING}
    assert run(["tail", "by_page", "--windows", "2", "--api", "http://mars"]) == 0
    told = capsys.readouterr().out
    first, second = (f"1970-01-01 00:00:00 to 00:00:{end}  1 row\n" for end in (10, 20))
    assert told.index(first) < told.index(second)


def test_groups_of_a_window_that_counts_rows_are_one_table_whatever_their_times(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    values = (
        f'{{"window_start":{start},"window_end":9,"partition":1,"window_number":{number},'
        f'"window_first_offset":0,"window_last_offset":7,"page":"/a"}}'
        for start, number in ((1, 4), (2, 4), (3, 5))
    )
    results.events = tuple(ResultEvent(0, 0, raw.encode()) for raw in values)
    assert run(["tail", "by_page", "--windows", "2", "--api", "http://mars"]) == 0
    told = capsys.readouterr().out
    first, second = "window 4 of partition 1  2 rows\n", "window 5 of partition 1  1 row\n"
    assert told.index(first) < told.index(second)
    assert told.count(" 1970-01-01 00:00:00   1970-01-01 00:00:00 ") == 3


def test_each_revision_of_a_window_is_a_table_of_its_own(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results.events = (event(10, "/a"), event(10, "/a", 1), event(10, "/b", 1, deleted=True))
    assert run(["tail", "by_page", "--windows", "3", "--api", "http://mars"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "00:00:10" in line]
    assert [line.partition("  ")[2] for line in told] == [
        "1 row",
        "1 row (revision 1, for late rows)",
        "1 row taken back, which HAVING no longer lets pass (revision 1, for late rows)",
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


@pytest.mark.parametrize(
    ("state", "detail", "how"),
    [("paused", "", "is paused"), ("failed", "too many groups.", "has failed (too many groups)")],
)
def test_task_that_takes_no_rows_is_told_and_waited_for(
    results: type[Results],
    state: str,
    detail: str,
    how: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results.changes = {"state": state, "detail": detail}
    results.events = (event(10, "/a"),)
    assert run(["tail", "by_page", "--windows", "1", "--api", "http://mars"]) == 0
    told = capsys.readouterr()
    sentence = f"Task by_page {how} and takes no rows until `mars task resume by_page`."
    assert told.err.splitlines()[0] == sentence
    assert '"/a"' in told.out


def test_task_that_no_resume_mends_is_to_be_added_again(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results.changes = {"state": "failed", "detail": f"another topic: {REGISTER_AGAIN}."}
    results.events = (event(10, "/a"),)
    assert run(["tail", "by_page", "--windows", "1", "--api", "http://mars"]) == 0
    told = capsys.readouterr().err.splitlines()[0]
    assert told.endswith("until it is removed (`mars task rm by_page`) and added again.")
    assert "resume" not in told


@pytest.mark.parametrize(("windows", "wanted"), [(1, "1 window of"), (2, "2 windows of")])
def test_windows_that_are_waited_for_are_told(
    results: type[Results], windows: int, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results.events = (event(10, "/a"), event(20, "/b"))
    assert run(["tail", "by_page", "--windows", str(windows), "--api", "http://mars"]) == 0
    said = capsys.readouterr().err
    assert said == f"Waiting for {wanted} by_page; Ctrl-C ends this sooner.\n"


Answer = Callable[[httpx.Request], httpx.Response]


def stream(*parts: str) -> Answer:
    return lambda _request: httpx.Response(200, text="".join(f"{part}\n\n" for part in parts))


def refuse(status: int) -> Answer:
    body = {"status": status, "detail": "there is no task by_page any more"}
    return lambda _request: httpx.Response(status, json=body)


def nobody(_request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


def result(start: int, at: int | None = None) -> str:
    offset = start if at is None else at
    return f'event: result\nid: 0:{offset}/{offset + 1}\ndata: {{"window_start":{start}}}'


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """What the API answers to one who follows, one after the other; each knows from where."""
    wanted: list[Answer] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/results"):
            return httpx.Response(200, json=TASK)
        return wanted.pop(0)(request)

    made = partial(Client, transport=httpx.MockTransport(answer))
    monkeypatch.setattr("mars.cli.tail.Client", made)
    monkeypatch.setattr("mars.cli.tail.AGAIN_S", 0)
    return wanted


def test_rows_that_kafka_has_deleted_are_told_of(
    answers: list[Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    gap = 'id: /9\nevent: gap\ndata: {"partition":0,"first":5,"next":9}'
    answers += [stream(gap, result(9)), refuse(404)]
    assert run(["tail", "by_page", "--json", "--api", "http://mars"]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "has deleted offsets 5 to 8 of partition 0 before they were read" in said


def test_api_that_comes_back_goes_on_behind_the_last_row(
    answers: list[Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str | None] = []

    def noted(then: Answer) -> Answer:
        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request.headers.get("last-event-id"))
            return then(request)

        return answer

    away = (nobody, refuse(503), refuse(429))
    steps = (stream(": hello\nid: /0"), *away, stream(result(0)), stream(result(1)), refuse(404))
    answers += [noted(step) for step in steps]
    assert run(["tail", "by_page", "--json", "--api", "http://mars"]) == 3
    told = capsys.readouterr()
    assert told.out.splitlines() == ['{"window_start":0}', '{"window_start":1}']
    assert asked == [None, "/0", "/0", "/0", "/0", "0:0/1", "0:1/2"]
    assert told.err.count("it has ended the stream of results; asking again.") == 3
    assert "there is no task by_page any more" in told.err


def test_window_is_not_taken_for_complete_while_the_api_is_away(
    answers: list[Answer],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quiet = threading.Event()

    class Watched(SimpleQueue[object]):
        def get(self, block: bool = True, timeout: float | None = None) -> object:
            try:
                return super().get(block, timeout)
            except Empty:
                quiet.set()
                raise

    def later(_request: httpx.Request) -> httpx.Response:
        assert quiet.wait(5)
        return stream(result(0, at=1))(_request)

    monkeypatch.setattr("mars.cli.tail.QUIET_S", 0.05)
    monkeypatch.setattr("queue.SimpleQueue", Watched)
    answers += [stream(result(0, at=0)), later, refuse(404)]
    assert run(["tail", "by_page", "--api", "http://mars"]) == 3
    assert "00:00:00  2 rows" in capsys.readouterr().out


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 3)])
def test_what_waiting_does_not_help_ends_it(
    answers: list[Answer], status: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    answers += [stream(": hello\nid: /0"), refuse(status)]
    assert run(["tail", "by_page", "--api", "http://mars"]) == code
    assert "there is no task by_page any more" in capsys.readouterr().err


def test_end_of_the_stream_is_told_behind_its_rows(
    results: type[Results], capsys: pytest.CaptureFixture[str]
) -> None:
    results.events, results.ends = (event(10, "/a"),), True
    assert run(["tail", "by_page", "--api", "http://mars"]) == 1
    told = capsys.readouterr()
    assert "it went away" in told.err
    assert '"/a"' in told.out
