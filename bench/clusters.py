"""Clusters for measurements: `mars up` within this process, on free ports."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bench.processes import Use, Watched, look
from mars.local.cluster import ClusterOptions, running
from mars.local.supervisor import Supervisor


def on_free_ports(options: ClusterOptions) -> ClusterOptions:
    """The same, beside whatever else runs on this machine."""
    return replace(options, api_port=0, kafka_port=0, zookeeper_port=0, redis_port=0)


@contextmanager
def cluster(options: ClusterOptions) -> Iterator[Supervisor]:
    """One which starts again what dies, as `mars up` does."""
    stop = threading.Event()
    with running(on_free_ports(options), lambda _line: None, stop) as supervisor:
        watching = threading.Thread(target=supervisor.watch, name="watch")
        watching.start()
        try:
            yield supervisor
        finally:
            stop.set()
            watching.join()


def watched_in(supervisor: Supervisor) -> list[Watched]:
    """All processes of a cluster that run."""
    children = [*supervisor.servers, *supervisor.roles]
    return [Watched(one.name, one.pid, one in supervisor.servers) for one in children if one.pid]


@dataclass(frozen=True, slots=True)
class RoleUse:
    """What all processes of a role have used: CPU seconds since they began, and bytes now."""

    cpu_s: float = 0.0
    memory: int = 0


def uses_by_role(supervisor: Supervisor) -> dict[str, RoleUse]:
    """Of each role whose processes run, servers among them."""
    return by_role(look(watched_in(supervisor)))


def by_role(uses: Mapping[str, Use]) -> dict[str, RoleUse]:
    """The same of processes by their names, which begin with their roles."""
    found: dict[str, RoleUse] = {}
    for name, use in uses.items():
        role = name.partition("-")[0]
        so_far = found.get(role, RoleUse())
        found[role] = RoleUse(so_far.cpu_s + use.cpu_s, so_far.memory + use.memory.now_bytes)
    return found


def cores_of(
    begun: Mapping[str, RoleUse], ended: Mapping[str, RoleUse], seconds: float
) -> dict[str, float]:
    """How many cores each role was busy with between two looks."""
    return {
        role: round((use.cpu_s - begun[role].cpu_s) / seconds, 3) for role, use in ended.items()
    }
