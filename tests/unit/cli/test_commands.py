"""All commands: the options that they share, what they complete, what they say of bad input."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import pytest

from mars.cli import cli, run
from mars.client.blocking import Client
from mars.protocol.ports import Role
from mars.protocol.ports.access import make_key
from tests.unit.api.test_queries import asked, finish
from tests.unit.api.twins import BY_SIP, FLOWS, World
from tests.unit.cli.test_people import Kept

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "commands.md"
DECISION = next((ROOT / "docs" / "decisions").glob("*-options-of-commands.md"))

PROCESSES = {"mapper", "reducer", "api", "bulk"}
"""They run until they are told to end."""

ASK_NO_API = {"up", "down", "completion"}
"""They are about this machine; so is all of `mars bench`."""

FAMILIES = {"bench", "completion"}
"""The page names them alone: what follows is told by `--help`."""

PRINT_NO_VALUE = {"completion"}

API = ["--api", "http://mars"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    assert made.declare().status_code == 201
    for command in ("tasks", "completion", "streams", "keys"):
        monkeypatch.setattr(
            f"mars.cli.{command}.Client", partial(Client, transport=Kept(made.transport))
        )
    yield made
    made.close()


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(commands(cli))


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_takes_the_options_that_all_take(path: tuple[str, ...]) -> None:
    taken = options(COMMANDS[path])
    asks_no_api = path[0] in PROCESSES | ASK_NO_API | {"bench"}
    assert ("--api" in taken) is not asks_no_api
    assert ("--json" in taken) is not (path[0] in PROCESSES | PRINT_NO_VALUE)
    assert ("--config" in taken) >= (path[0] in PROCESSES)


def test_exceptions_are_told_where_the_rule_is() -> None:
    decision, page = DECISION.read_text("utf-8"), PAGE.read_text("utf-8")
    for name in PROCESSES | ASK_NO_API | {"bench"}:
        assert f"`{name}`" in decision
    assert DECISION.name in page


def test_page_names_every_command() -> None:
    named = set[tuple[str, ...]]()
    for first, rest in re.findall(r"`mars (\w+)(?: ([^`]+))?`", PAGE.read_text("utf-8")):
        named |= {(first, *last.split()) for last in rest.split(r"\|")}
    assert {path for path in COMMANDS if path[0] not in FAMILIES} <= named
    assert {first for first, *_rest in named} >= FAMILIES


NAMED = [
    path
    for path, command in COMMANDS.items()
    if "name" in {parameter.name for parameter in command.params[:1]}
]


def completed(path: tuple[str, ...], parameter: str, begun: str) -> list[str]:
    command = COMMANDS[path]
    context = click.Context(command)
    context.params["api"] = "http://mars"
    (wanted,) = [each for each in command.params if each.name == parameter]
    return [item.value for item in wanted.shell_complete(context, begun)]


@pytest.mark.parametrize("path", NAMED, ids=" ".join)
def test_shell_completes_the_name_of_a_task_or_stream(world: World, path: tuple[str, ...]) -> None:
    assert world.register().status_code == 201
    begun, name = ("fl", "flows") if path[0] == "stream" else ("by", "by_sip")
    assert completed(path, "name", begun) == [name]
    assert completed(path, "name", "x") == []


def test_shell_completes_keys_and_queries_that_go_on(world: World) -> None:
    key, _text = make_key(Role.READER, 0)
    assert world.keys.create(key)
    assert completed(("key", "rm"), "key_id", key.id[:2]) == [key.id]
    waiting, ended = asked(world)["id"], asked(world)["id"]
    finish(world, ended)
    assert completed(("query",), "cancel", "q-") == [waiting]


def test_a_stream_of_a_topic_that_is_not_there_yet_is_told_of(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "early.json"
    file.write_text(json.dumps({**FLOWS, "topic": "nowhere"}))
    assert run(["stream", "put", str(file), *API]) == 0
    said = told(capsys)
    assert "Stream early reads topic nowhere" in said
    assert "Warning: Kafka has no topic nowhere yet: create it" in said


# ------------------------------------------------------------------------ what cannot be read


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["q.sql", "q.json"])
@pytest.mark.parametrize("command", ["add", "validate", "preview"])
def test_file_that_is_no_text_is_told_in_a_sentence(
    tmp_path: Path, command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_bytes("SELECT 'ü'".encode("latin-1"))
    assert run(["task", command, str(file), *API]) == 4
    assert f"{file} is not UTF-8: see byte 8" in told(capsys)


@pytest.mark.parametrize("name", ["q.sql", "q.json"])
def test_file_that_cannot_be_read_is_told_in_a_sentence(
    tmp_path: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / name
    file.touch()
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert run(["task", "validate", str(file), *API]) == 2
    assert f"{file} cannot be read (Permission denied)" in told(capsys)


@pytest.mark.parametrize(
    ("content", "code", "sentence"),
    [
        (b'{"sip": "\xff"}', 4, "is not UTF-8: see byte 9"),
        (b"\n" + b"[" * 100_000, 4, "line 2: this is not a JSON value"),
    ],
)
def test_rows_that_cannot_be_read_are_told_in_a_sentence(
    tmp_path: Path,
    content: bytes,
    code: int,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = tmp_path / "rows"
    rows.write_bytes(content)
    assert run(["task", "preview", "--sql", BY_SIP, "--rows", str(rows), *API]) == code
    assert sentence in told(capsys)


def test_only_line_feeds_end_the_rows_of_a_file(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows"
    rows.write_text('{"timestamp": 1, "sip": "a\u2028\x85b"}\n', encoding="utf-8")
    assert run(["task", "preview", "--sql", BY_SIP, "--rows", str(rows), *API]) == 0
    assert "1 rows read: 1 counted" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["add", "change by_sip", "validate", "preview"])
def test_file_that_is_none_is_told_as_what_it_is(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone.sql"
    sentences = {
        str(gone): f"there is no file {gone}",
        str(tmp_path): f"{tmp_path} is a folder, not a file",
        "": "the name of the file is empty",
    }
    for named, sentence in sentences.items():
        assert run(["task", *command.split(), named, *API]) == 2
        assert sentence in told(capsys)


def test_query_may_come_through_a_pipe(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for command, code in (("validate", 0), ("add", 2)):
        read_end, write_end = os.pipe()
        os.write(write_end, BY_SIP.encode())
        os.close(write_end)
        assert run(["task", command, f"/dev/fd/{read_end}", *API]) == code
        os.close(read_end)
    assert "name the task with --name" in told(capsys)


def test_standard_input_that_is_no_text_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"SELECT '\xff'")
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as piped:
        monkeypatch.setattr("sys.stdin", piped)
        assert run(["task", "validate", "-", *API]) == 4
    assert "standard input is not UTF-8: see byte 8" in told(capsys)


# --------------------------------------------------------------------------------- numbers

FLOATS = [
    (path, parameter.opts[0])
    for path, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter.type, (click.FloatRange, type(click.FLOAT)))
]


def test_options_with_seconds_are_found() -> None:
    assert (("top",), "--interval") in FLOATS
    assert (("query",), "--timeout") in FLOATS


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(("path", "option"), FLOATS)
def test_number_that_is_not_finite_is_wrong_usage(
    path: tuple[str, ...], option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path, option, value, *API]) == 2
    said = told(capsys)
    assert f"Invalid value for '{option}'" in said
    assert "finite" in said or "range" in said


# ---------------------------------------------------------------------- addresses and keys


@pytest.mark.parametrize("command", ["status", "top", "why t"])
@pytest.mark.parametrize(
    "address", ["http://here:80x80", "http://here:99999", "here:8080", "ftp://here"]
)
def test_address_that_is_none_is_told_in_a_sentence(
    command: str,
    address: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run([*command.split(), "--api", address]) == 2
    sentence = f"{address!r} is not the address of an API"
    assert sentence in told(capsys)
    monkeypatch.setenv("MARS_API", address)
    assert run(command.split()) == 2
    assert sentence in told(capsys)


@pytest.mark.parametrize("command", ["status", "stream list"])
@pytest.mark.parametrize(
    "key", ["mars_secret\nmore", "mars_sécret", "mars_secret more", "\udcffsecret"]
)
def test_key_that_is_none_is_told_without_it(
    command: str,
    key: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MARS_KEY", key)
    assert run([*command.split(), "--api", "http://127.0.0.1:9"]) == 2
    said = told(capsys)
    assert "MARS_KEY" in said
    assert "secret" not in said
    assert "cret" not in said


@pytest.mark.parametrize("command", ["status", "stream list"])
def test_what_stands_before_a_host_is_not_told(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), "--api", "http://me:secret@127.0.0.1:9"]) == 1
    said = told(capsys)
    assert "http://127.0.0.1:9" in said
    assert "secret" not in said


def test_without_a_clone_there_is_no_bench(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec

    def of_a_wheel(name: str) -> object:
        if name.startswith("bench"):
            raise ModuleNotFoundError(name)
        return found(name)

    monkeypatch.setattr(importlib.util, "find_spec", of_a_wheel)

    assert run(["--help"]) == 0
    assert "bench" not in capfd.readouterr().out
    assert run(["bench", "throughput"]) == 2
    assert "No such command 'bench'" in capfd.readouterr().err
