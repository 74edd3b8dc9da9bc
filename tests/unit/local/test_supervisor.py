"""The supervisor with small children in the place of servers and roles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mars.client.cluster_file import ClusterFile, read_cluster
from mars.core.errors import LocalClusterError
from mars.local import supervisor as supervisor_module
from mars.local.child import tail
from mars.local.scaling import ScaleBounds, Target
from mars.local.state import write_cluster
from mars.local.supervisor import Addresses, Scaling, StopAsked, Supervisor
from tests.unit.local.conftest import SLEEP, Script, eventually

Make = Callable[..., Script]

NOTES_ITS_END = """
import signal, sys, time
def end(*_):
    with open(sys.argv[1] + "order", "a") as file:
        file.write("NAME ")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""


def supervisor_of(folder: Path, servers: list[Script], roles: list[Script]) -> Supervisor:
    addresses = Addresses("http://a", "k", "z", "redis://r", "default")
    return Supervisor(folder, addresses, servers, roles, report=lambda _line: None)


def entries(folder: Path) -> dict[str, tuple[int, int]]:
    """Name -> (pid, restarts), as cluster.json says."""
    cluster = read_cluster(folder)
    assert cluster is not None
    return {each.name: (each.pid, each.restarts) for each in cluster.processes}


@contextmanager
def watching(supervisor: Supervisor) -> Iterator[None]:
    supervisor.start()
    thread = threading.Thread(target=supervisor.watch)
    thread.start()
    try:
        yield
    finally:
        supervisor.stop_asked.set()
        thread.join()
        supervisor.stop()


def test_all_children_run_and_the_file_says_so(script: Make, tmp_path: Path) -> None:
    server, role = script(name="kafka"), script(name="mapper-1")
    with watching(supervisor_of(tmp_path, [server], [role])):
        assert entries(tmp_path) == {"kafka": (server.pid, 0), "mapper-1": (role.pid, 0)}
        cluster = read_cluster(tmp_path)
        assert isinstance(cluster, ClusterFile)
        assert (cluster.api, cluster.kafka) == ("http://a", "k")
    assert not any(child.running for child in [server, role])
    assert read_cluster(tmp_path) is None


def test_a_child_that_dies_is_started_again(script: Make, tmp_path: Path) -> None:
    server, role = script(name="kafka"), script(name="mapper-1")
    with watching(supervisor_of(tmp_path, [server], [role])):
        for restarts, child in [(1, role), (1, server), (2, role)]:
            old = child.pid
            child.kill()

            def is_back(child: Script = child, old: int | None = old, n: int = restarts) -> bool:
                return entries(tmp_path).get(child.name) == (child.pid, n) and child.pid != old

            eventually(is_back)


def test_the_wait_before_a_restart_doubles_and_begins_again_after_a_healthy_life(
    script: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    supervisor = supervisor_of(tmp_path, [], [script(SLEEP, "mapper-1")])
    supervisor.report = lines.append
    supervisor.start()
    watched = supervisor._watched[0]
    for _ in range(9):
        watched.child.kill()
        supervisor._note_death(watched, watched.started_at + 1.0)
    supervisor._note_death(watched, watched.started_at + supervisor_module.HEALTHY_S + 1)
    waits = [line.split(" in ")[1].split(" s")[0] for line in lines if "again in" in line]
    assert waits == ["0.1", "0.2", "0.4", "0.8", "1.6", "3.2", "6.4", "10.0", "10.0", "0.1"]
    supervisor.stop()


def test_our_processes_end_before_the_servers(script: Make, tmp_path: Path) -> None:
    names = ["kafka", "redis", "mapper-1", "api"]
    children = [script(NOTES_ITS_END.replace("NAME", name), name) for name in names]
    with watching(supervisor_of(tmp_path, children[:2], children[2:])):
        eventually(lambda: all(tail(child.log) == ["up"] for child in children))
    order = (tmp_path / "order").read_text("utf-8").split()
    assert [set(order[:2]), set(order[2:])] == [{"mapper-1", "api"}, {"kafka", "redis"}]


def test_a_child_that_dies_at_the_start_fails_it(script: Make, tmp_path: Path) -> None:
    server = script("import sys; sys.exit('disk full')", "kafka")
    server.missing = lambda: "it starts"  # type: ignore[method-assign]
    supervisor = supervisor_of(tmp_path, [script(name="redis"), server], [script(name="api")])
    with pytest.raises(LocalClusterError, match=r"kafka ended(?s:.*)disk full"):
        supervisor.start()
    supervisor.stop()
    assert not any(child.running for child in [*supervisor.servers, *supervisor.roles])
    assert read_cluster(tmp_path) is None


def test_a_child_that_is_not_ready_in_time_fails_the_start(
    script: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "READY_S", 0.2)
    server = script(name="kafka")
    server.missing = lambda: "it thinks"  # type: ignore[method-assign]
    supervisor = supervisor_of(tmp_path, [server], [])
    with pytest.raises(LocalClusterError, match="it thinks"):
        supervisor.start()
    supervisor.stop()


def test_a_stop_during_the_start_is_heard(script: Make, tmp_path: Path) -> None:
    server = script(name="kafka")
    supervisor = supervisor_of(tmp_path, [server], [script(name="api")])

    def starts() -> str:
        supervisor.stop_asked.set()
        return "it starts"

    server.missing = starts  # type: ignore[method-assign]
    with pytest.raises(StopAsked):
        supervisor.start()
    supervisor.stop()
    assert not server.running


def test_a_second_request_stops_waiting(script: Make, tmp_path: Path) -> None:
    stubborn = script(NOTES_ITS_END.replace("sys.exit(0)", "return"), "mapper-1")
    supervisor = supervisor_of(tmp_path, [], [stubborn])
    supervisor.start()
    eventually(lambda: tail(stubborn.log) == ["up"])
    supervisor.stop(at_once=lambda: True)
    assert stubborn.exit_code == -9


def test_a_full_disk_does_not_end_the_supervision(
    script: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    supervisor = supervisor_of(tmp_path, [], [script(name="mapper-1")])
    supervisor.report = lines.append
    write = write_cluster

    def full(folder: Path, cluster: ClusterFile) -> None:
        raise OSError(28, "No space left on device")

    with watching(supervisor):
        monkeypatch.setattr(supervisor_module, "write_cluster", full)
        supervisor.roles[0].kill()
        eventually(lambda: any("No space left" in line for line in lines))
        monkeypatch.setattr(supervisor_module, "write_cluster", write)
        eventually(lambda: entries(tmp_path).get("mapper-1") == (supervisor.roles[0].pid, 1))


def test_children_come_and_go_as_the_leader_wants(script: Make, tmp_path: Path) -> None:
    lines: list[str] = []
    targets = {"mapper": Target(1, 3, "mean load 95%")}
    made: list[Script] = []

    def make(role: str, number: int) -> Script:
        made.append(script(name=f"{role}-{number}", role=role))
        return made[-1]

    server, first = script(name="kafka"), script(name="mapper-1", role="mapper")
    supervisor = supervisor_of(tmp_path, [server], [first])
    supervisor.report = lines.append
    supervisor.scaling = Scaling(lambda: targets, make)
    with watching(supervisor):
        eventually(lambda: set(entries(tmp_path)) == {"kafka", "mapper-1", "mapper-2", "mapper-3"})
        assert "mapper-3 is started: mean load 95%" in lines

        targets["mapper"] = Target(3, 1, "mean load 8%")
        eventually(lambda: set(entries(tmp_path)) == {"kafka", "mapper-1"})
        assert not any(child.running for child in made)

        targets["mapper"] = Target(1, 2, "mean load 80%")
        eventually(lambda: set(entries(tmp_path)) == {"kafka", "mapper-1", "mapper-2"})
    assert not any(child.running for child in [server, first, *made])


def test_advice_about_another_number_than_there_is_changes_nothing(
    script: Make, tmp_path: Path
) -> None:
    """It was given before the last change was seen."""
    supervisor = supervisor_of(tmp_path, [], [script(name="mapper-1", role="mapper")])
    supervisor.scaling = Scaling(
        lambda: {"mapper": Target(3, 5, "old")}, lambda _role, _number: script(name="mapper-2")
    )
    supervisor.start()
    supervisor._scale(supervisor.scaling)

    assert [each.child.name for each in supervisor._watched] == ["mapper-1"]
    supervisor.stop()


def test_bounds_hold_whatever_is_wanted() -> None:
    assert [ScaleBounds(2, 4).within(count) for count in (0, 2, 3, 9)] == [2, 2, 3, 4]
