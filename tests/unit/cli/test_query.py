"""`mars query`, `mars backfill` and the history options of `mars task add`, against the API."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from mars.cli import run
from mars.client.blocking import Client
from mars.core.definitions import TaskState
from mars.core.types import Lane, Mapped, Range, TaskName, live_lane
from mars.protocol.ports import Applied, QueryId, QueryState
from tests.unit.api.test_queries import alter, asked, finish
from tests.unit.api.twins import BY_SIP, EPOCH, World

API = ["--api", "http://mars"]


class Kept(httpx.BaseTransport):
    """A transport that many clients use, one after the other."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._inner.handle_request(request)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    assert made.declare().status_code == 201
    for command in ("query", "backfill", "tasks"):
        monkeypatch.setattr(
            f"mars.cli.{command}.Client", partial(Client, transport=Kept(made.transport))
        )
    yield made
    made.close()


@pytest.fixture
def between_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens while a command waits: one step a look."""
    steps: list[Callable[[], None]] = []

    def sleep(_seconds: float) -> None:
        assert steps, "the command waits for something that does not come"
        steps.pop(0)()

    for command in ("query", "backfill"):
        monkeypatch.setattr(f"mars.cli.{command}.sleep", sleep)
    return steps


def newest(world: World) -> str:
    (record,) = world.queries.all()
    return record.query.id


# --------------------------------------------------------------------------------- query


def test_rows_are_a_table_with_what_became_of_the_rows_read(
    world: World,
    between_looks: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    between_looks += [
        lambda: alter(world, newest(world), state=QueryState.RUNNING, started_ms=0),
        lambda: finish(world, newest(world)),
    ]
    assert run(["query", BY_SIP, *API]) == 0
    captured = capsys.readouterr()
    assert "1970-01-01 00:00:00" in captured.out
    assert '"a"' in captured.out
    assert "of 6 rows read 3 counted, 2 filtered, 1 bad" in captured.err


def test_rows_are_lines_of_json_if_asked_for(
    world: World,
    between_looks: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    between_looks.append(lambda: finish(world, newest(world)))
    assert run(["query", BY_SIP, "--json", *API]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["sip"], row["sum_bytes"]) for row in rows] == [("a", 2**64 - 2), (None, None)]


def test_options_become_members_of_the_request(
    world: World, between_looks: list[Callable[[], None]], tmp_path: Path
) -> None:
    world.files.sizes[str(tmp_path)] = 9
    between_looks.append(lambda: finish(world, newest(world)))
    options = {
        "--from": "1970-01-01T00:01:00",
        "--until": "120000",
        "--files": str(tmp_path),
        "--files-format": "csv",
        "--rows-max": "7",
        "--timeout": "2.5",
        "--output-topic": "mine",
    }
    flags = [part for pair in options.items() for part in pair]
    assert run(["query", BY_SIP, "--csv-header", *flags, *API]) == 0
    (record,) = world.queries.all()
    query = record.query
    assert (query.from_ms, query.until_ms, query.rows_max) == (60_000, 120_000, 7)
    assert (query.timeout_ms, query.output_topic) == (2_500, "mine")
    assert query.files is not None
    assert (query.files.format, query.files.csv_header) == ("csv", True)


def test_failed_query_ends_with_its_reason_and_code_1(
    world: World,
    between_looks: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    between_looks.append(
        lambda: alter(world, newest(world), state=QueryState.FAILED, detail="too many rows")
    )
    assert run(["query", BY_SIP, *API]) == 1
    assert "too many rows" in capsys.readouterr().err


def test_query_cancelled_by_somebody_ends_with_code_1(
    world: World, between_looks: list[Callable[[], None]]
) -> None:
    between_looks.append(lambda: alter(world, newest(world), state=QueryState.CANCELLED))
    assert run(["query", BY_SIP, *API]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_cancels_its_query(
    world: World, between_looks: list[Callable[[], None]], number: signal.Signals
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    between_looks.append(lambda: signal.raise_signal(number))
    assert run(["query", BY_SIP, *API]) == 1
    (record,) = world.queries.all()
    assert record.state is QueryState.CANCELLED
    assert signal.getsignal(signal.SIGTERM) is before


def test_query_that_nobody_runs_says_so_where_there_is_no_terminal(
    world: World,
    between_looks: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mars.client.calls.queries.PATIENCE_S", 0)
    between_looks += [lambda: None, lambda: None, lambda: finish(world, newest(world))]
    assert run(["query", BY_SIP, *API]) == 0
    assert capsys.readouterr().err.count("no bulk process runs") == 1


def test_query_is_waited_for_as_long_as_was_said_and_then_cancelled(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["query", BY_SIP, "--wait", "0", *API]) == 1
    assert "to end (no bulk process runs" in capsys.readouterr().err
    (record,) = world.queries.all()
    assert record.state is QueryState.CANCELLED


def test_wrong_query_ends_with_its_place_and_code_4(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["query", "SELECT nothing FROM flows WINDOWING 1 s", *API]) == 4
    assert "line 1, column 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [BY_SIP, "--list"],
        ["--list", "--cancel", "q-1"],
        [BY_SIP, "--from", "yesterday"],
        [BY_SIP, "--files-format", "csv"],
        [BY_SIP, "--files", "x", "--files-format", "xml"],
    ],
)
def test_wrong_usage_is_code_2(world: World, arguments: list[str]) -> None:
    assert run(["query", *arguments, *API]) == 2
    assert world.queries.all() == []


def test_queries_are_listed_and_cancelled(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    query = asked(world)["id"]
    assert run(["query", "--list", *API]) == 0
    assert query in capsys.readouterr().out
    assert run(["query", "--cancel", query, "--json", *API]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "cancelled"
    assert run(["query", "--cancel", "q-none", *API]) == 3


# ------------------------------------------------------------------------------ backfill


@pytest.fixture
def history(world: World, capsys: pytest.CaptureFixture[str]) -> World:
    """A task with 2,000 messages of history in partition 0."""
    world.kafka.end_offsets["flows"] = {0: 2_000, 1: 0}
    arguments = ["task", "add", "--sql", BY_SIP, "--name", "by_sip", "--start", "earliest"]
    assert run([*arguments, *API]) == 0
    assert "`mars backfill by_sip`" in capsys.readouterr().err
    return world


def map_all(world: World) -> None:
    """What the bulk process does."""
    whole = Range(Lane("0@b1"), 0, 2_000)
    batch = Mapped((whole,), {whole.lane: 5}, ())
    assert isinstance(world.log.append(TaskName("by_sip"), EPOCH, 1, batch), Applied)


def test_bar_ends_when_all_lanes_are_read(
    history: World,
    between_looks: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    history.start_in_store()
    between_looks.append(lambda: map_all(history))
    assert run(["backfill", "by_sip", *API]) == 0
    captured = capsys.readouterr()
    assert "No bulk process runs" in captured.err
    assert "2,000 rows of history, all computed" in captured.err


def test_each_look_is_a_line_of_json(
    history: World,
    between_looks: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    history.start_in_store()
    capsys.readouterr()
    between_looks.append(lambda: map_all(history))
    assert run(["backfill", "by_sip", "--json", *API]) == 0
    lines: list[dict[str, Any]] = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [(line["state"], line["backfill"]["percent"]) for line in lines] == [
        ("backfilling", 0.0),
        ("running", 100.0),
    ]
    assert lines[0]["backfill"]["lanes"] == [{"lane": "0@b1", "first": 0, "next": 0, "end": 2_000}]


def test_api_that_is_away_meanwhile_is_told_once_and_asked_again(
    history: World,
    between_looks: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    history.start_in_store()
    capsys.readouterr()

    def fail() -> None:
        history.registry.fail_next("task")

    between_looks += [fail, fail, lambda: map_all(history)]
    assert run(["backfill", "by_sip", "--json", *API]) == 0
    told = capsys.readouterr()
    assert told.err.count("asking again") == 1
    assert len(told.out.splitlines()) == 2


def test_task_without_history_is_done_at_once(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.register().status_code == 201
    world.start_in_store()
    assert run(["backfill", "by_sip", *API]) == 0
    assert "no history of its own" in capsys.readouterr().err


def test_failed_task_ends_the_bar_with_its_reason(
    history: World,
    between_looks: list[Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    history.start_in_store()
    between_looks.append(lambda: history.alter(state=TaskState.FAILED, detail="too many groups"))
    assert run(["backfill", "by_sip", *API]) == 1
    assert "too many groups" in capsys.readouterr().err


def test_backfill_of_an_unknown_task_is_code_3(world: World) -> None:
    assert run(["backfill", "nothing", *API]) == 3


# ------------------------------------------------------------------------------ task add


def test_files_are_handed_on_with_their_whole_path(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    world.files.sizes[str(tmp_path / "old")] = 5
    arguments = ["task", "add", "--sql", BY_SIP, "--name", "by_sip", "--files", "old"]
    assert run([*arguments, "--until", "2026-01-01T00:00:00+00:00", *API]) == 0
    (backfill,) = world.definition().backfills
    assert backfill.files is not None
    assert backfill.files.until_ms == 1_767_225_600_000
    assert world.definition().current.starts == {
        **dict.fromkeys(map(live_lane, range(2)), 0),
        next(iter(backfill.lanes)): 0,
    }


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("latest", "latest"),
        ("earliest", "earliest"),
        ("0", {"timestamp": 0}),
        ("60000", {"timestamp": 60_000}),
        ("1970-01-01T00:01", {"timestamp": 60_000}),
        ("1970-01-01T01:01:00+01:00", {"timestamp": 60_000}),
    ],
)
def test_task_starts_where_it_is_told_to(
    world: World, start: str, wanted: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[httpx.Request] = []

    class Noted(Kept):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request)
            return super().handle_request(request)

    monkeypatch.setattr("mars.cli.tasks.Client", partial(Client, transport=Noted(world.transport)))
    arguments = ["task", "add", "--sql", BY_SIP, "--name", "by_sip", "--start", start]
    assert run([*arguments, *API]) == 0
    (request,) = sent
    assert json.loads(request.content)["start"] == wanted


@pytest.mark.parametrize("start", ["yesterday", "", "Latest", "1.5", "-5", "1950-01-01", "9" * 20])
def test_start_that_is_none_is_wrong_usage(
    world: World, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["task", "add", "--sql", BY_SIP, "--name", "by_sip", "--start", start]
    assert run([*arguments, *API]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "write latest, earliest, epoch milliseconds, or a time in ISO 8601" in said


def test_until_without_files_is_wrong_usage(world: World) -> None:
    arguments = ["task", "add", "--sql", BY_SIP, "--name", "by_sip", "--until", "5"]
    assert run([*arguments, *API]) == 2


def test_definition_in_a_file_may_name_its_history(world: World, tmp_path: Path) -> None:
    world.files.sizes["/history"] = 5
    file = tmp_path / "by_sip.json"
    history = {"files": "/history", "format": "ndjson"}
    file.write_text(json.dumps({"sql": BY_SIP, "history": history}))
    assert run(["task", "add", str(file), *API]) == 0
    (backfill,) = world.definition().backfills
    assert backfill.files is not None
    assert backfill.files.format == "ndjson"


def test_query_ids_are_names_that_topics_and_tasks_may_have(world: World) -> None:
    query = QueryId(asked(world)["id"])
    assert query.startswith("q-")
    assert len(query) < 64
