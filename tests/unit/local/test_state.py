"""cluster.json, the lock of a data folder, and processes left over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from mars.client.cluster_file import (
    ClusterFile,
    ProcessEntry,
    cluster_path,
    find_kafka,
    is_locked,
    read_cluster,
    running_cluster,
)
from mars.core.errors import LocalClusterError
from mars.local.control import stop_cluster
from mars.local.state import end_leftovers, lock_holder, locked, write_cluster
from tests.unit.local.conftest import Script, started


def cluster(*processes: ProcessEntry) -> ClusterFile:
    return ClusterFile(
        api="http://127.0.0.1:8080",
        kafka="127.0.0.1:9092",
        zookeeper="127.0.0.1:2181",
        redis="redis://127.0.0.1:6379/0",
        namespace="default",
        supervisor=1,
        processes=processes,
    )


def test_the_file_has_the_documented_form(tmp_path: Path) -> None:
    write_cluster(tmp_path, cluster(ProcessEntry("mapper-1", "mapper", 4711, 0)))
    table = json.loads((tmp_path / "cluster.json").read_text("utf-8"))
    assert (
        table.items()
        >= {
            "api": "http://127.0.0.1:8080",
            "kafka": "127.0.0.1:9092",
            "zookeeper": "127.0.0.1:2181",
            "redis": "redis://127.0.0.1:6379/0",
            "namespace": "default",
        }.items()
    )
    assert table["processes"] == [
        {"name": "mapper-1", "role": "mapper", "pid": 4711, "restarts": 0}
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_kafka_is_that_of_the_cluster_that_runs_if_the_api_is_its_own(tmp_path: Path) -> None:
    written = replace(cluster(), kafka="127.0.0.1:40404")
    write_cluster(tmp_path, written)
    assert find_kafka(written.api, tmp_path) is None, "it does not run"
    with locked(tmp_path):
        assert find_kafka(written.api, tmp_path) == "127.0.0.1:40404"
        assert find_kafka("http://elsewhere:8080", tmp_path) is None


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = cluster(ProcessEntry("kafka", "kafka", 1, 2))
    write_cluster(tmp_path, written)
    assert read_cluster(tmp_path) == written


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"api": 1}'])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        cluster_path(tmp_path).write_bytes(content)
    assert read_cluster(tmp_path) is None


def test_only_one_has_the_lock_and_the_other_is_told_who(tmp_path: Path) -> None:
    holder = "from pathlib import Path; from mars.local.state import locked; import sys, time\n"
    holder += "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert is_locked(tmp_path)
        assert lock_holder(tmp_path) == process.pid
        with pytest.raises(LocalClusterError, match=f"process {process.pid}"), locked(tmp_path):
            pass
        process.kill()
        process.wait()
    assert not is_locked(tmp_path)  # without anybody having cleaned up
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_a_cluster_whose_supervisor_is_gone_does_not_run(tmp_path: Path) -> None:
    write_cluster(tmp_path, cluster())
    assert running_cluster(tmp_path) is None
    with locked(tmp_path):
        assert running_cluster(tmp_path) == cluster()


def test_leftovers_are_killed_and_the_file_removed(
    script: Callable[..., Script], tmp_path: Path
) -> None:
    left = script()
    pid = started(left)
    write_cluster(tmp_path, cluster(ProcessEntry("left", "mapper", pid, 0)))
    end_leftovers(tmp_path)
    left.wait_ended(10)
    assert left.exit_code == -9
    assert not cluster_path(tmp_path).exists()


def test_a_process_that_does_not_name_the_folder_is_not_ours(
    script: Callable[..., Script], tmp_path: Path
) -> None:
    other = script()
    other.folder = tmp_path.parent / "elsewhere"
    pid = started(other)
    write_cluster(tmp_path, cluster(ProcessEntry("other", "mapper", pid, 0)))
    end_leftovers(tmp_path)
    assert other.running


def test_stopping_what_does_not_run_is_no_error(tmp_path: Path) -> None:
    assert stop_cluster(tmp_path) is None
    with locked(tmp_path):
        pass
    write_cluster(tmp_path, cluster())
    assert stop_cluster(tmp_path) is None
    assert not cluster_path(tmp_path).exists()


def refuse_to_kill(_pid: int, _number: int) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_a_cluster_of_another_user_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", refuse_to_kill)
    wanted = rf"process {os.getpid()}\) cannot be stopped \(Operation not permitted\)"
    with locked(tmp_path), pytest.raises(LocalClusterError, match=wanted):
        stop_cluster(tmp_path)


def test_leftovers_of_another_user_are_told_in_a_sentence(
    script: Callable[..., Script], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = script()
    pid = started(left)
    write_cluster(tmp_path, cluster(ProcessEntry("left", "mapper", pid, 0)))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "kill", refuse_to_kill)
        with pytest.raises(LocalClusterError, match=f"left .process {pid}. of an earlier run"):
            end_leftovers(tmp_path)


def test_a_lock_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()  # refused to everybody, root too
    with pytest.raises(LocalClusterError, match="lock cannot be written"):
        stop_cluster(tmp_path)
