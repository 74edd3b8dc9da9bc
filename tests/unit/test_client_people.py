"""What the client offers programs and notebooks: waiting, frames, event loops, one-call queries."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from traceback import format_exception
from typing import Any

import httpx
import polars as pl
import pytest
from msgspec import structs

import mars
from mars.aio import AsyncClient
from mars.client import answers
from mars.client.blocking import Client
from mars.client.calls.queries import trouble_of
from mars.client.cluster_file import DATA
from mars.client.notebook import address
from mars.core.errors import (
    Forbidden,
    JobCancelled,
    JobFailed,
    MarsError,
    NotAuthenticated,
    NotFound,
    Rejected,
    SettingsError,
    Unavailable,
    WaitedTooLong,
)
from mars.engine.frames import frame_of_rows
from mars.local.state import locked, write_cluster
from mars.protocol.ports import QueryState
from tests.unit.api.test_queries import alter, finish
from tests.unit.api.twins import BY_SIP, FLOWS, World
from tests.unit.local.test_state import cluster


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    assert made.declare().status_code == 201
    yield made
    made.close()


@pytest.fixture
def client(world: World) -> Client:
    return Client("http://mars", transport=world.transport)


@pytest.fixture
def between_looks(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens while the client waits: one step a look."""
    steps: list[Callable[[], None]] = []

    def sleep(_seconds: float) -> None:
        assert steps, "the client waits for something that does not come"
        steps.pop(0)()

    monkeypatch.setattr("mars.client.calls.waiting.sleep", sleep)
    return steps


def newest(world: World) -> str:
    return max(world.queries.all(), key=lambda each: each.query.created_ms).query.id


# ------------------------------------------------------------------------------ queries


def test_question_is_answered_by_a_frame(
    world: World, client: Client, between_looks: list[Callable[[], None]]
) -> None:
    between_looks += [lambda: None, lambda: finish(world, newest(world))]
    answer = client.ask(BY_SIP, from_ms=0, rows_max=5)
    frame = answer.df()
    assert frame.columns == ["window_start", "window_end", "sip", "count", "sum_bytes"]
    assert frame["window_start"][0] == datetime(1970, 1, 1, tzinfo=UTC)
    assert frame["sum_bytes"].to_list() == [2**64 - 2, None]
    assert frame.schema["count"] == pl.Int64
    assert frame.height == answer.query.rows
    assert answer.rows == frame.to_dicts()
    assert "<table" in answer._repr_html_()
    assert answer.pandas().columns.tolist() == frame.columns
    assert answer.pandas()["sum_bytes"][0] == 2**64 - 2


@pytest.mark.parametrize(
    ("state", "error"), [(QueryState.FAILED, JobFailed), (QueryState.CANCELLED, JobCancelled)]
)
def test_question_without_an_answer_says_why(
    world: World,
    client: Client,
    between_looks: list[Callable[[], None]],
    state: QueryState,
    error: type[MarsError],
) -> None:
    between_looks += [lambda: alter(world, newest(world), state=state, detail="of a test")]
    with pytest.raises(error):
        client.ask(BY_SIP)


def test_interrupted_question_is_cancelled(
    world: World, client: Client, between_looks: list[Callable[[], None]]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    between_looks += [interrupt]
    with pytest.raises(KeyboardInterrupt):
        client.ask(BY_SIP)
    (record,) = world.queries.all()
    assert record.state is QueryState.CANCELLED


def test_question_is_given_up_in_time_with_what_it_waited_for(world: World, client: Client) -> None:
    with pytest.raises(WaitedTooLong, match="to end \\(no bulk process runs"):
        client.ask(BY_SIP, wait_s=0)
    (record,) = world.queries.all()
    assert record.state is QueryState.CANCELLED


def test_caller_of_a_question_that_nobody_runs_is_warned_once(
    world: World,
    client: Client,
    between_looks: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mars.client.calls.queries.PATIENCE_S", 0)
    between_looks += [lambda: None, lambda: None, lambda: finish(world, newest(world))]
    with pytest.warns(UserWarning, match="no bulk process runs") as told:
        assert client.ask(BY_SIP).rows
    assert len(told) == 1


def test_trouble_is_told_of_queries_that_should_have_ended(world: World, client: Client) -> None:
    asked = client.create_query(BY_SIP, timeout=20)
    alter(world, asked.id, state=QueryState.RUNNING)
    running = client.query(asked.id)
    assert [trouble_of(running, waited_s) for waited_s in (6, 20)] == ["", ""]
    assert "still running after more than 20 s" in trouble_of(running, 21)
    finish(world, asked.id)
    assert trouble_of(client.query(asked.id), 21) == ""


def test_one_call_asks_the_api_that_is_named(
    world: World, between_looks: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(url: str, key: str | None) -> Client:
        assert (url, key) == ("http://mars", None)
        return Client(url, transport=world.transport)

    monkeypatch.setattr("mars.client.notebook.Client", connect)
    monkeypatch.setenv("MARS_API", "http://mars")
    between_looks += [lambda: finish(world, newest(world))]
    assert mars.query(BY_SIP).df().height > 0


def test_one_call_without_a_cluster_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delenv("MARS_API", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MarsError, match="mars up"):
        mars.query(BY_SIP)


# ------------------------------------------------------------------------------- frames


def test_windows_are_frames(world: World, client: Client) -> None:
    client.create_task("by_sip", BY_SIP, start="earliest")
    world.start_in_store()
    world.run_batch([{"timestamp": 5_000, "sip": "a", "bytes": 2**63 - 1}] * 3)
    frame = client.windows("by_sip").df()
    assert frame.columns[:2] == ["window_start", "window_end"]
    assert frame.schema["sum_bytes"] == pl.Int128
    assert frame["sum_bytes"][0] == 3 * (2**63 - 1)
    assert frame["window_end"][0] == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert client.results("by_sip").df().is_empty()


def test_numbers_of_both_kinds_are_floats_and_nothing_is_null() -> None:
    frame = frame_of_rows([{"a": 1, "b": None}, {"a": 0.5, "b": "x"}, {"a": None, "b": None}])
    assert frame.schema == {"a": pl.Float64, "b": pl.String}
    assert frame["a"].to_list() == [1.0, 0.5, None]


# ------------------------------------------------------------------------------ waiting


def test_task_is_waited_for_until_it_has_read_its_topic(
    world: World, client: Client, between_looks: list[Callable[[], None]]
) -> None:
    client.create_task("by_sip", BY_SIP, start="earliest")
    world.start_in_store()
    world.kafka.end_offsets["flows"][0] = 1

    def read() -> None:
        world.run_batch([{"timestamp": 5_000, "sip": "a"}])

    between_looks += [lambda: None, read]
    assert client.wait_until_read("by_sip").name == "by_sip"
    with pytest.raises(NotFound):
        client.wait_until_read("none")
    world.alter(state="failed", detail="of a test")
    with pytest.raises(JobFailed, match="of a test"):
        client.wait_until_read("by_sip")


def test_waiting_ends_in_time(client: Client) -> None:
    asked = client.create_query(BY_SIP)
    with pytest.raises(WaitedTooLong, match=f"query {asked.id}"):
        client.wait_for_query(asked.id, timeout_s=0)


def test_api_is_waited_for(
    world: World, client: Client, between_looks: list[Callable[[], None]]
) -> None:
    def answer() -> None:
        for service in ("kafka", "redis"):
            world.health.check(service)

    between_looks += [answer]
    client.wait_until_ready()


# --------------------------------------------------------------------------------- keys


def test_key_is_shown_to_the_api_and_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"tasks": []})

    transport = httpx.MockTransport(answer)
    monkeypatch.setenv("MARS_KEY", "from-the-environment")
    Client("http://mars", transport=transport).tasks()
    given = Client("http://mars", key="given", transport=transport)
    given.tasks()
    monkeypatch.delenv("MARS_KEY")
    Client("http://mars", transport=transport).tasks()
    assert seen == ["Bearer from-the-environment", "Bearer given", None]
    assert "given" not in repr(given)


@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", "  {}\t", "\n{}"])
def test_key_is_shown_without_what_a_file_has_around_it(
    around: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"tasks": []})

    transport = httpx.MockTransport(answer)
    Client("http://mars", key=around.format("given"), transport=transport).tasks()
    monkeypatch.setenv("MARS_KEY", around.format("kept"))
    Client("http://mars", transport=transport).tasks()
    monkeypatch.setenv("MARS_KEY", around.format(""))
    Client("http://mars", transport=transport).tasks()
    assert seen == ["Bearer given", "Bearer kept", None]


@pytest.mark.parametrize("key", ["mars_secret\nx", "mars_sécret", "mars_secret x", "\udcffsecret"])
def test_key_that_is_none_is_refused_without_being_told(key: str) -> None:
    with pytest.raises(SettingsError, match="MARS_KEY") as refused:
        Client("http://mars", key=key)
    assert "cret" not in "".join(format_exception(refused.value)).partition("SettingsError")[2]


# ---------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "address",
    ["http://here:80x80", "http://here:0", "http://here:99999", "here:8080", "ftp://here"],
)
def test_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match=f"'{address}' is not the address of an API"):
        Client(address)


def test_errors_name_an_address_without_what_stands_before_the_host() -> None:
    def refuse(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    for answer in (refuse, lambda _request: httpx.Response(500)):
        client = Client("http://me:secret@mars", transport=httpx.MockTransport(answer))
        with pytest.raises(Unavailable, match="http://mars") as away:
            client.tasks()
        assert "secret" not in str(away.value)


def test_name_that_makes_no_address_is_refused(client: Client) -> None:
    with pytest.raises(Rejected, match="URL too long"):
        client.task("x" * 70_000)


def test_client_finds_the_cluster_that_runs_here_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.url.scheme}://{request.url.netloc.decode()}")
        return httpx.Response(200, json={"tasks": []})

    def ask(url: str | None = None) -> None:
        Client(url, transport=httpx.MockTransport(answer)).tasks()

    monkeypatch.delenv("MARS_API", raising=False)
    monkeypatch.chdir(tmp_path)
    ask()
    DATA.mkdir()
    write_cluster(DATA, structs.replace(cluster(), api="http://127.0.0.1:8181"))
    ask()
    with locked(DATA):
        ask()
        assert address() == "http://127.0.0.1:8181"
        monkeypatch.setenv("MARS_API", "http://named:1/\n")
        ask()
        assert address() == "http://named:1"
        ask("http://given:2")
    nowhere, found = "http://127.0.0.1:8080", "http://127.0.0.1:8181"
    assert asked == [nowhere, nowhere, found, "http://named:1", "http://given:2"]


@pytest.mark.parametrize(("status", "error"), [(401, NotAuthenticated), (403, Forbidden)])
def test_refusals_of_the_gate_are_errors_of_their_own(status: int, error: type[MarsError]) -> None:
    body = {"status": status, "title": "no", "detail": "because"}
    transport = httpx.MockTransport(lambda _request: httpx.Response(status, json=body))
    with pytest.raises(error, match="because"):
        Client("http://mars", transport=transport).tasks()


# -------------------------------------------------------------------------- event loops


def test_every_call_can_be_awaited() -> None:
    calls = {
        name
        for name, _ in inspect.getmembers(Client, inspect.isfunction)
        if not name.startswith("_")
    }
    made = AsyncClient("http://mars")
    iterators = {"tail", "consume"}
    for name in calls - iterators:
        call = getattr(made, name)
        assert inspect.iscoroutinefunction(call), name
        assert call.__doc__ == getattr(Client, name).__doc__
    for name in iterators:
        own, others = getattr(AsyncClient, name), getattr(Client, name)
        assert inspect.signature(own).parameters == inspect.signature(others).parameters


def test_client_for_event_loops_answers_as_the_other_does(world: World) -> None:
    async def run() -> list[str]:
        async with AsyncClient("http://mars", transport=world.transport) as client:
            await client.put_stream("flows", FLOWS)
            await client.create_task("by_sip", BY_SIP, options={"delay": "1s"})
            with pytest.raises(NotFound):
                await client.task("none")
            both = await asyncio.gather(client.task("by_sip"), client.ledger("by_sip"))
            assert isinstance(both[1], answers.Ledger)
            return [task.name for task in await client.tasks()]

    assert asyncio.run(run()) == ["by_sip"]


def test_question_whose_wait_is_cancelled_is_cancelled_itself(world: World) -> None:
    async def run() -> QueryState:
        loop, looked = asyncio.get_running_loop(), asyncio.Event()

        def handle(request: httpx.Request) -> httpx.Response:
            if request.url.path.startswith("/v1/queries/"):
                loop.call_soon_threadsafe(looked.set)
            return world.transport.handle_request(request)

        transport = httpx.MockTransport(handle)
        async with AsyncClient("http://mars", transport=transport) as client:
            asking = asyncio.create_task(client.ask(BY_SIP))
            await looked.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            (record,) = world.queries.all()
            return record.state

    assert asyncio.run(run()) is QueryState.CANCELLED


def test_event_loops_follow_results() -> None:
    text = b'event: result\nid: 3:14\ndata: {"a":1}\n\nevent: result\nid: 0:2\ndata: {}\n\n'
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, content=text))

    async def run() -> list[tuple[int, int]]:
        client = AsyncClient("http://mars", transport=transport)
        return [(event.partition, event.offset) async for event in client.tail("by_sip")]

    assert asyncio.run(run()) == [(3, 14), (0, 2)]
