"""Clusters for measurements: `mars up` within this process, on free ports."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench.processes import Watched
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
