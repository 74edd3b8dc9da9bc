"""A data folder as its supervisor has it: cluster.json, the lock, leftovers."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import msgspec

from mars.client.cluster_file import (
    ClusterFile,
    ProcessEntry,
    cluster_path,
    is_locked,
    read_cluster,
)
from mars.core.errors import LocalClusterError

POLL_S = 0.1
"""Between two looks at a process that is to end."""

LEFTOVER_S = 10.0
"""Longest wait for the end of a process that was sent SIGKILL: the kernel frees its memory."""

LOOKERS_S = 0.5
"""How long the lock is asked for before it counts as taken."""


def write_cluster(data: Path, cluster: ClusterFile) -> None:
    """Replace cluster.json; a reader sees the old one or the new one."""
    path = cluster_path(data)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(cluster), indent=1) + b"\n")
    partial.replace(path)


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Be the one supervisor of the folder. The kernel frees the lock however the process ends.

    Raises LocalClusterError, naming the process, when there is one already, and where the folder
    is another user's.
    """
    with _open_lock(data) as lock:
        # Somebody who only looks (`is_locked`) has it for an instant.
        if not wait_until(lambda: _try_lock(lock), LOOKERS_S):
            lock.seek(0)
            raise LocalClusterError(
                f"A cluster runs on {data} already (process {lock.read().strip() or 'unknown'}); "
                f"stop it with `mars down --data {data}`, or name another folder with --data."
            )
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _open_lock(data: Path) -> TextIO:
    try:
        return (data / "lock").open("a+")
    except OSError as error:
        raise LocalClusterError(
            f"{data / 'lock'} cannot be written ({error.strerror}); do this as the user whose "
            "folder it is, or name another folder with --data."
        ) from error


def _try_lock(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_holder(data: Path) -> int | None:
    """The pid of the supervisor that has the folder; None when nobody has it."""
    if not is_locked(data):
        return None
    text = (data / "lock").read_text("utf-8").strip()
    return int(text) if text.isdigit() else None


def end_leftovers(data: Path) -> None:
    """Kill the children of a supervisor that is gone, and remove its cluster.json.

    The kernel has usually done that. A process is ours only if its command names the folder: its
    number may long belong to another. To be called by who has the lock.
    """
    cluster = read_cluster(data)
    for entry in cluster.processes if cluster is not None else ():
        if f"{data}/" in command_of(entry.pid):
            _kill(entry)
    cluster_path(data).unlink(missing_ok=True)


def _kill(entry: ProcessEntry) -> None:
    try:
        os.kill(entry.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise LocalClusterError(
            f"{entry.name} (process {entry.pid}) of an earlier run cannot be ended "
            f"({error.strerror}); end it as the user whose process it is."
        ) from error
    if not wait_until(lambda: not command_of(entry.pid), LEFTOVER_S):
        raise LocalClusterError(
            f"{entry.name} (process {entry.pid}) of an earlier run does not end; end it by hand."
        )


def command_of(pid: int) -> str:
    """The command line of a process; empty when there is none, or when it is dead already."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").replace("\0", " ")
        except OSError:
            return ""
    answer = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    state, _, command = answer.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else command


def wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
