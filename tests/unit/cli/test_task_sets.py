"""`mars task apply DIR`, and the same by the Python client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mars.cli import run
from mars.client.blocking import Client
from mars.core.definitions import TaskState
from mars.core.errors import Rejected
from tests.unit.api.twins import BY_SIP, World
from tests.unit.cli.test_people import API, Kept

COUNT = "SELECT count(*) FROM flows WINDOWING 10 s"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    assert made.declare().status_code == 201
    client = partial(Client, transport=Kept(made.transport))
    monkeypatch.setattr("mars.cli.task_changes.Client", client)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three tasks, and what is none."""
    folder = tmp_path / "flow_tasks"
    (folder / "more").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "by_sip.sql").write_text(BY_SIP)
    (folder / "more" / "total.json").write_text(
        json.dumps({"sql": COUNT, "start": "earliest", "options": {"delay": "1s"}})
    )
    (folder / "other.json").write_text(json.dumps({"name": "named", "sql": COUNT}))
    (folder / "README.md").write_text("no task")
    (folder / ".git" / "old.sql").write_text("SELECT")
    return folder


def test_the_files_of_a_folder_become_tasks(
    world: World, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["task", "apply", str(folder), "--dry-run", *API]) == 0
    assert "Tasks: would be 3 created." in capsys.readouterr().err
    assert world.registry.tasks() == {}
    assert run(["task", "apply", str(folder), *API]) == 0
    told = capsys.readouterr().err
    assert "create by_sip" in told
    assert "Tasks: 3 created." in told
    assert set(world.registry.tasks()) == {"by_sip", "total", "named"}
    assert world.definition("total").current.options == {"delay": "1s"}
    assert world.definition("total").current.complete_from_ms is None
    assert world.definition("total").set_name == "flow_tasks"
    assert run(["task", "apply", str(folder), *API]) == 0
    assert "Tasks: 3 unchanged." in capsys.readouterr().err


def test_a_file_may_begin_with_a_mark_and_its_ending_may_be_of_capitals(
    world: World, folder: Path
) -> None:
    (folder / "by_sip.sql").rename(folder / "by_sip.SQL")
    (folder / "by_sip.SQL").write_text("\ufeff" + BY_SIP)
    assert run(["task", "apply", str(folder), *API]) == 0
    assert world.definition("by_sip").current.sql == BY_SIP


def test_what_cannot_be_read_is_named_and_its_task_is_not_pruned(
    world: World, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prune = ["task", "apply", str(folder), "--prune", *API]
    assert run(prune) == 0
    file = folder / "by_sip.sql"
    file.unlink()
    file.symlink_to(folder / "nowhere")
    assert run(prune) == 2
    assert "there is no file" in capsys.readouterr().err
    file.unlink()
    os.mkfifo(file)
    assert run(prune) == 2
    assert f"{file.name} is not a file" in " ".join(capsys.readouterr().err.split())
    assert world.definition("by_sip").state is TaskState.RUNNING


def test_a_change_is_shown(world: World, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["task", "apply", str(folder), *API]) == 0
    capsys.readouterr()
    (folder / "by_sip.sql").write_text(COUNT)
    (folder / "more" / "total.json").unlink()
    assert run(["task", "apply", str(folder), "--prune", "--output-topic", "all", *API]) == 0
    told = capsys.readouterr().err
    for line in (
        "change by_sip",
        "--- by_sip version 1",
        f"-{BY_SIP}",
        f"+{COUNT}",
        "+option output_topic = all",
        "remove total",
        "Tasks: 2 changed, 1 removed.",
    ):
        assert line in told
    assert world.definition("total").state is TaskState.DELETED
    assert world.definition("named").current.options == {"output_topic": "all"}


def test_the_answer_is_for_programs_too(
    world: World, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["task", "apply", str(folder), "--set", "ours", "--dry-run", "--json", *API]
    assert run(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["set"] == "ours"
    assert {task["action"] for task in answer["tasks"]} == {"create"}
    assert world.registry.tasks() == {}


def test_all_that_is_wrong_is_told(
    world: World, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.sql").write_text("SELECT")
    (folder / "b.json").write_text(json.dumps({"sql": COUNT, "options": {"delay": "long"}}))
    assert run(["task", "apply", str(folder), *API]) == 4
    told = capsys.readouterr().err
    assert "task a (" in told
    assert "task b (" in told
    assert world.registry.tasks() == {}
    (folder / "b.json").write_text("[]")
    assert run(["task", "apply", str(folder), *API]) == 4
    assert "b.json" in capsys.readouterr().err


def test_two_files_that_say_one_task_are_both_named(
    world: World, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "more").mkdir(exist_ok=True)
    (folder / "more" / "x.json").write_text(json.dumps({"name": "twice", "sql": COUNT}))
    (folder / "twice.sql").write_text(COUNT)
    assert run(["task", "apply", str(folder), *API]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "twice.sql" in told
    assert "x.json" in told
    assert "both define the task twice: rename or remove one of them" in told
    assert world.registry.tasks() == {}


def test_a_folder_without_tasks_is_a_set_without_any(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["task", "apply", str(tmp_path), "--set", "ours", *API]) == 0
    assert "Tasks: none." in capsys.readouterr().err
    assert world.registry.tasks() == {}
    assert run(["task", "apply", str(tmp_path / "nowhere"), *API]) == 2


def test_a_topic_without_a_set_is_refused(world: World) -> None:
    client = Client("http://mars", transport=Kept(world.transport))
    with pytest.raises(Rejected, match=r"set\.name"):
        client.apply_tasks([], output_topic="all")
    assert client.apply_tasks([{"name": "a", "sql": COUNT}]).tasks[0].action == "create"
