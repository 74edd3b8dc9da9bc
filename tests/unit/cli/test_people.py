"""`mars task add` where the task exists, `mars top`, `mars key`, completion, misspelt names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from api.services.access import AccessPolicy
from mars.cli import cli, run
from mars.cli.completion import SHELLS
from mars.client.answers import Task
from mars.client.blocking import Client
from mars.core.definitions import TaskState
from mars.core.errors import Unavailable
from mars.protocol.ports import ApiKey, Role
from mars.protocol.ports.access import make_key
from tests.unit.api.twins import BY_SIP, World

API = ["--api", "http://mars"]
OTHER = "SELECT sip,\ncount(*) FROM flows GROUP BY sip WINDOWING 10 s"


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
    for command in ("tasks", "top", "keys", "completion", "why", "streams"):
        monkeypatch.setattr(
            f"mars.cli.{command}.Client", partial(Client, transport=Kept(made.transport))
        )
    yield made
    made.close()


def version(world: World) -> int:
    return world.definition().current.version


# ---------------------------------------------------------------------------- as it is


def test_names_and_queries_are_shown_as_they_are(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {"[/t]": "timestamp_ms", ":id:": "string"}
    declared = {"topic": "flows", "format": "json", "fields": fields, "event_time": "[/t]"}
    assert world.http.put("/v1/streams/odd", json=declared).status_code == 201
    assert run(["stream", "show", "odd", *API]) == 0
    shown = capsys.readouterr().out
    assert "time [/t]\n" in shown
    of_record = {"who": {"type": "string", "from": "$key"}, **fields}
    declared = {**declared, "fields": of_record, "event_time": "$timestamp"}
    assert world.http.put("/v1/streams/rich", json=declared).status_code == 201
    assert run(["stream", "show", "rich", *API]) == 0
    assert "string from $key" in capsys.readouterr().out
    assert ":id:" in shown
    sql = "SELECT ':100:[/x]' AS a, count(*) FROM flows WINDOWING 10 s"
    assert run(["task", "add", "--name", "odd", "--sql", sql, *API]) == 0
    assert run(["task", "show", "odd", *API]) == 0
    assert sql in capsys.readouterr().out


# ------------------------------------------------------------------------- mars task add


def add(sql: str, *arguments: str) -> int:
    return run(["task", "add", "--name", "by_sip", "--sql", sql, *arguments, *API])


def test_change_of_a_task_is_shown_and_refused_where_nobody_can_be_asked(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(BY_SIP) == 0
    capsys.readouterr()
    assert add(OTHER, "--option", "delay=2s") == 4
    told = capsys.readouterr().err
    assert f"-{BY_SIP}" in told
    assert "+SELECT sip," in told
    assert "+option delay = 2s" in told
    assert "--yes" in told
    assert "\x1b[" not in told
    assert version(world) == 1


def test_change_that_was_agreed_to_makes_a_version(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert add(BY_SIP) == 0
    world.begin_newest()
    assert add(OTHER, "--yes") == 0
    assert "is at version 2" in capsys.readouterr().err
    world.begin_newest()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    for answer, code, wanted in (("n", 1, 2), ("y", 0, 3)):
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda _text, said=answer: said)
        assert add(BY_SIP) == code
        assert version(world) == wanted


def test_task_that_is_like_that_already_stays_as_it_is(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(BY_SIP) == 0
    capsys.readouterr()
    assert add(BY_SIP, "--json") == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1


def test_history_is_for_new_tasks_only(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(BY_SIP) == 0
    assert add(OTHER, "--start", "earliest", "--yes") == 4
    assert "there is a task by_sip" in capsys.readouterr().err
    assert version(world) == 1


# ---------------------------------------------------------------------- mars task change


def change(sql: str, *arguments: str) -> int:
    return run(["task", "change", "by_sip", "--sql", sql, *arguments, *API])


def test_options_that_are_not_named_stay_and_the_change_is_shown(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(BY_SIP, "--option", "idle_after=1min", "--option", "output_topic=mine") == 0
    world.begin_newest()
    capsys.readouterr()
    assert change(BY_SIP, "--option", "delay=1min") == 0
    told = capsys.readouterr().err
    assert "+option delay = 1min" in told
    assert "-option" not in told
    assert "is at version 2" in told
    kept = {"idle_after": "1min", "output_topic": "mine", "delay": "1min"}
    assert world.definition().current.options == kept


def test_options_alone_leave_the_query_as_it_is(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(BY_SIP) == 0
    world.begin_newest()
    assert run(["task", "change", "by_sip", "--option", "buckets=one", *API]) == 0
    told = capsys.readouterr().err
    assert "+option buckets = one" in told
    current = world.definition().current
    assert (current.version, current.sql, current.options) == (2, BY_SIP, {"buckets": "one"})
    assert run(["task", "change", "by_sip", *API]) == 2
    assert "give either a file or --sql" in capsys.readouterr().err


def test_option_that_is_named_without_a_value_returns_to_its_default(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(BY_SIP, "--option", "delay=2s", "--option", "idle_after=1min") == 0
    world.begin_newest()
    file = tmp_path / "by_sip.json"
    file.write_text(json.dumps({"sql": BY_SIP, "options": {"delay": "1s"}}))
    assert run(["task", "change", "by_sip", str(file), "--option", "idle_after=", *API]) == 0
    assert "-option idle_after = 1min" in capsys.readouterr().err
    assert world.definition().current.options == {"delay": "1s"}


@pytest.mark.parametrize("command", ["add --name second", "validate"])
def test_a_task_that_writes_the_keys_of_another_one_is_warned(
    world: World, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    query = ["--sql", BY_SIP, "--option", "output_topic=alerts", *API]
    assert run(["task", "add", "--name", "first", *query]) == 0
    assert "Warning" not in capsys.readouterr().err
    assert run(["task", *command.split(), *query]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Warning: task first writes into the output topic alerts" in said
    assert run(["task", "show", "first", *API]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert ("Warning: task second" in shown) is command.startswith("add")


@pytest.mark.parametrize("state", [TaskState.PAUSED, TaskState.FAILED])
@pytest.mark.parametrize("command", ["change", "add"])
def test_change_of_a_task_that_takes_no_rows_says_that_it_stays_so(
    world: World, command: str, state: TaskState, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(BY_SIP) == 0
    world.begin_newest()
    world.alter(state=state, detail="")
    assert (change(OTHER) if command == "change" else add(OTHER, "--yes")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"is at version 2; it stays {state} until `mars task resume by_sip`." in said


def test_change_of_a_version_that_is_not_the_expected_one_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert add(BY_SIP) == 0
    assert change(OTHER, "--expect", "7") == 4
    real = Client.task

    def changed_meanwhile(client: Client, name: str) -> Task:
        found = real(client, name)
        client.change_task(name, OTHER)
        return found

    monkeypatch.setattr(Client, "task", changed_meanwhile)
    assert change(BY_SIP, "--option", "delay=1s") == 4
    assert world.definition().current.options == {}


# ------------------------------------------------------------------------------ mars top


def test_top_shows_members_and_tasks_once_where_there_is_no_terminal(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert add(BY_SIP, "--option", "delay=1s") == 0
    world.start_in_store()
    world.run_batch([{"timestamp": 5_000, "sip": "a"}, b"no json"])
    world.commit(0, read=2, counted=1, bad=1)
    world.join_mapper("reading", "reading")
    world.join_reducer()
    capsys.readouterr()
    assert run(["top", *API]) == 0
    told = capsys.readouterr().out
    assert "reducer-1 leads" in told
    assert "2 partitions" in told
    assert "4 buckets" in told
    (line,) = [line for line in told.splitlines() if line.split()[:1] == ["by_sip"]]
    assert line.split()[1] == "running"
    assert line.split()[-2:] == ["1", "1"]
    assert "\x1b[" not in told


def test_top_puts_tasks_in_trouble_first(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "c"):
        assert world.register(name).status_code == 201
    assert world.http.post("/v1/tasks/a/pause").status_code == 200
    world.alter("c", state="failed", detail="of a test")
    assert run(["top", "--once", "--json", *API]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [task["name"] for task in found["tasks"]] == ["c", "b", "a"]
    assert found["tasks_total"] == 3
    assert found["cluster"]["namespace"] == "default"


def test_top_on_a_terminal_goes_on_while_the_api_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    from mars.cli import top

    looks = [Unavailable("api", "gone for a moment"), None]
    real = top._look

    def look(client: Client) -> top.ScreenLook:
        problem = looks.pop(0)
        if problem is not None:
            raise problem
        return real(client)

    def sleep(_seconds: float) -> None:
        if not looks:
            raise KeyboardInterrupt

    monkeypatch.setattr(top, "_look", look)
    monkeypatch.setattr(top, "sleep", sleep)
    monkeypatch.setattr(top, "output", lambda: Console(force_terminal=True, width=120))
    assert run(["top", *API]) == 1
    told = capsys.readouterr().out
    assert "gone for a moment" in told
    assert "namespace default" in told


# ------------------------------------------------------------------------------ mars key


@pytest.fixture
def admin(world: World, monkeypatch: pytest.MonkeyPatch) -> ApiKey:
    """Keys are asked for, and the command line shows this one."""
    key, text = make_key(Role.ADMIN, 0)
    assert world.keys.create(key)
    world.services.access.policy = AccessPolicy(on=True)
    monkeypatch.setenv("MARS_KEY", text)
    return key


def test_key_is_shown_once_and_listed_without_its_secret(
    world: World, admin: ApiKey, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ["key", "create", "--role", "operator", "--topics", "flows", "--read", "/data/*"]
    assert run([*made, "--note", "team A", *API]) == 0
    told = capsys.readouterr()
    text = told.out.strip()
    assert text.startswith("mars_")
    assert "never again" in told.err
    (kept,) = [key for key in world.keys.all() if key != admin]
    assert (kept.reads, kept.writes, kept.note) == (("flows", "/data/*"), ("flows",), "team A")
    assert run(["key", "list", *API]) == 0
    listed = capsys.readouterr().out
    assert kept.id in listed
    assert text.rpartition("_")[2] not in listed
    assert run(["key", "rm", kept.id, *API]) == 0
    assert world.keys.all() == [admin]
    assert run(["key", "rm", kept.id, *API]) == 3


def test_key_without_topics_is_limited_to_none(world: World, admin: ApiKey) -> None:
    assert run(["key", "create", "--role", "reader", "--json", *API]) == 0
    (kept,) = [key for key in world.keys.all() if key != admin]
    assert (kept.reads, kept.writes) == (("*",), ("*",))


# --------------------------------------------------------------------------- small helps


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(["taks"], "task"), (["task", "lsit"], "list"), (["top", "--onse"], "--once")],
)
def test_misspelt_command_is_told_the_nearest(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr().err.rpartition("Did you mean")[2]
    assert f"'{hint}'" in told


def test_misspelt_name_is_told_the_nearest(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.register().status_code == 201
    assert run(["why", "by_spi", *API]) == 3
    assert "did you mean by_sip?" in capsys.readouterr().err
    assert run(["stream", "show", "flow", *API]) == 3
    assert "did you mean flows?" in capsys.readouterr().err


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_asks_mars(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_MARS_COMPLETE" in capsys.readouterr().out


def test_shell_completes_commands_and_names_of_tasks(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.register().status_code == 201
    monkeypatch.setenv("_MARS_COMPLETE", "fish_complete")
    for words, word, expected in (
        ("mars ta", "ta", ["task", "tail"]),
        ("mars why --api http://mars by", "by", ["by_sip"]),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", word)
        with pytest.raises(SystemExit):
            cli.main(prog_name="mars")
        told = capsys.readouterr().out
        for name in expected:
            assert name in told


def test_no_colour_where_nobody_wants_it(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert add(BY_SIP) == 0
    assert add(OTHER) == 4
    assert "\x1b[3" not in capsys.readouterr().err


def test_definition_comes_from_a_file(world: World, tmp_path: Path) -> None:
    file = tmp_path / "by_sip.sql"
    file.write_text(BY_SIP)
    assert run(["task", "add", str(file), *API]) == 0
    assert world.definition().current.sql == BY_SIP
