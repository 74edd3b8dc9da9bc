"""cluster.json: what runs on a data folder of this machine now, and where its API is."""

from __future__ import annotations

import fcntl
from pathlib import Path

import msgspec

from mars.core.settings import surroundings

DATA = Path(".mars")
"""Where `mars up` keeps everything unless told otherwise."""


class ProcessEntry(msgspec.Struct, frozen=True):
    """A child that runs; `restarts` counts how often it was started again."""

    name: str
    role: str
    pid: int
    restarts: int


class ClusterFile(msgspec.Struct, frozen=True):
    """cluster.json: the addresses, and the processes that run at this moment."""

    api: str
    kafka: str
    zookeeper: str
    redis: str
    namespace: str
    supervisor: int
    processes: tuple[ProcessEntry, ...]


def cluster_path(data: Path) -> Path:
    """Where cluster.json is."""
    return data / "cluster.json"


def read_cluster(data: Path) -> ClusterFile | None:
    """cluster.json, or None when there is none that can be read."""
    try:
        return msgspec.json.decode(cluster_path(data).read_bytes(), type=ClusterFile)
    except (OSError, msgspec.MsgspecError):
        return None


def running_cluster(data: Path) -> ClusterFile | None:
    """cluster.json of a cluster that runs (or stops, or starts) now; else None."""
    return read_cluster(data) if is_locked(data) else None


def is_locked(data: Path) -> bool:
    """Whether a supervisor has the folder now."""
    try:
        with (data / "lock").open("r") as lock:
            # Shared, so that two who look at the same time do not see each other.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def find_api(given: str | None = None, data: Path = DATA) -> str | None:
    """The API's address without a slash at its end: `given`, MARS_API, the cluster that runs.

    None where none of them names one.
    """
    named = (given or surroundings().api_url or "").strip()
    if named:
        return named.rstrip("/")
    cluster = running_cluster(data)
    return None if cluster is None else cluster.api


def find_kafka(api: str, data: Path = DATA) -> str | None:
    """Where Kafka of the cluster that runs is, if that is the one of this API; else None."""
    cluster = running_cluster(data)
    return cluster.kafka if cluster is not None and cluster.api == api else None
