"""Starts the servers and our processes, starts again what dies, stops all of it in order."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mars.client.cluster_file import ClusterFile, ProcessEntry, cluster_path
from mars.core.errors import LocalClusterError
from mars.local.child import POLL_S, Child
from mars.local.scaling import Target
from mars.local.state import write_cluster
from mars.process.outliving import Outliving

READY_S = 180.0
"""Longest start of one child: Kafka takes 5 s, on a machine busy with other things many more."""

LOOK_S = 0.1
"""Between two looks at whether a child has died."""

STOP_ROLES_S = 10.0
"""What a mapper or reducer gets to finish its transaction before it is killed."""

STOP_SERVERS_S = 20.0
"""What a server gets to write its data down; all can also recover without it."""

RESTART_FIRST_S = 0.1
RESTART_LONGEST_S = 10.0
"""Wait before a dead child is started again: doubled for each death soon after a start."""

HEALTHY_S = 3.0
"""A child that lived this long died of something new: the wait begins at the first again."""

Report = Callable[[str], None]
"""Told one line for a person."""


MakeChild = Callable[[str, int], Child]
"""A child of a role under a number."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How many of which role are wanted at the moment, and how to make one more."""

    targets: Callable[[], Mapping[str, Target]]
    make: MakeChild


class StopAsked(Exception):
    """Somebody asked to stop before everything was ready."""


@dataclass(slots=True)
class _Watched:
    """A child and what is known of its lives."""

    child: Child
    restarts: int = 0
    started_at: float = 0.0
    deaths_in_a_row: int = 0
    start_again_at: float | None = None
    leaves_by: float | None = None
    """Set for one that is not needed any more: until when it may end by itself."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """What cluster.json says beside the processes."""

    api: str
    kafka: str
    zookeeper: str
    redis: str
    namespace: str


@dataclass(slots=True)
class Supervisor:
    """The children of one data folder, as many as `scaling` says where it is given.

    `start()` returns when all are ready; then `watch()` starts again what dies until `stop_asked`
    is set; `stop()` ends all, however far the start came. The caller has the folder's lock.
    """

    data: Path
    addresses: Addresses
    servers: Sequence[Child]
    roles: Sequence[Child]
    report: Report
    stop_asked: threading.Event = field(default_factory=threading.Event)
    scaling: Scaling | None = None
    _watched: list[_Watched] = field(default_factory=list)
    _unwritten: bool = False

    def start(self) -> None:
        """Start the servers together, then our processes together.

        Raises LocalClusterError for a child that dies or is not ready in time, StopAsked.
        """
        for group in (self.servers, self.roles):
            started_at = time.monotonic()
            for child in group:
                self._start_first(child)
            self._wait_ready(group, started_at)

    def watch(self) -> None:
        """Start again what dies, until `stop_asked`."""
        rounds = Outliving("the supervisor", self.stop_asked.wait)
        while not self.stop_asked.wait(LOOK_S):
            rounds.round(self._look)

    def _look(self) -> None:
        for watched in list(self._watched):
            self._look_at(watched)
        if self.scaling is not None:
            self._scale(self.scaling)
        if self._unwritten:
            self._write()

    def stop(self, at_once: Callable[[], bool] = lambda: False) -> None:
        """End our processes, then the servers, and remove cluster.json.

        When `at_once` says so, nobody is waited for any longer. To be called from the thread of
        `watch`, or after it has ended.
        """
        added = [each.child for each in self._watched if each.child not in self.servers]
        _stop(list(dict.fromkeys([*self.roles, *added])), STOP_ROLES_S, at_once)
        _stop(self.servers, STOP_SERVERS_S, at_once)
        cluster_path(self.data).unlink(missing_ok=True)

    def _start_first(self, child: Child) -> None:
        if self.stop_asked.is_set():
            raise StopAsked
        child.start()
        self._watched.append(_Watched(child, started_at=time.monotonic()))
        self._write()

    def _wait_ready(self, group: Sequence[Child], started_at: float) -> None:
        waiting = list(group)
        while waiting:
            if self.stop_asked.wait(POLL_S):
                raise StopAsked
            for child in list(waiting):
                self._check(child, started_at)
                if child.missing() is None:
                    waiting.remove(child)
                    took_s = time.monotonic() - started_at
                    self.report(f"{child.name} is ready ({took_s:.1f} s)")

    def _check(self, child: Child, started_at: float) -> None:
        child.check_alive()
        if time.monotonic() - started_at > READY_S:
            child.wait_ready(within_s=0)  # once more, for its sentence

    def _look_at(self, watched: _Watched) -> None:
        now = time.monotonic()
        if watched.leaves_by is not None:
            self._see_off(watched, watched.leaves_by, now)
            return
        if watched.child.running:
            return
        if watched.start_again_at is None:
            self._note_death(watched, now)
        elif now >= watched.start_again_at:
            self._start_again(watched, now)

    # ---------------------------------------------------------------------------------- scaling

    def _scale(self, scaling: Scaling) -> None:
        """As many of each role as are wanted; one step is awaited before the next is taken."""
        for role, target in scaling.targets().items():
            there = [each for each in self._watched if each.child.role == role]
            staying = [each for each in there if each.leaves_by is None]
            if len(there) != len(staying) or len(staying) != target.present:
                continue  # what the leader says is of another number than there is
            for _ in range(target.wanted - len(staying)):
                self._add(scaling.make, role, target.reason)
            for watched in staying[target.wanted :]:
                self._dismiss(watched, target.reason)

    def _add(self, make: MakeChild, role: str, reason: str) -> None:
        taken = {each.child.name for each in self._watched}
        number = next(n for n in itertools.count(1) if f"{role}-{n}" not in taken)
        watched = _Watched(make(role, number), started_at=time.monotonic())
        self._watched.append(watched)
        try:
            watched.child.start()
        except (LocalClusterError, OSError) as error:
            self.report(f"{watched.child.name} cannot be started: {error}")
        self.report(f"{watched.child.name} is started: {reason}")
        self._write()

    def _dismiss(self, watched: _Watched, reason: str) -> None:
        """A reducer gives its buckets away before it ends."""
        self.report(f"{watched.child.name} is asked to end: {reason}")
        watched.leaves_by = time.monotonic() + STOP_ROLES_S
        watched.child.ask_to_end()

    def _see_off(self, watched: _Watched, leaves_by: float, now: float) -> None:
        if watched.child.running and now < leaves_by:
            return
        watched.child.kill()
        self._watched.remove(watched)
        self._write()

    # ------------------------------------------------------------------------------ what dies

    def _note_death(self, watched: _Watched, now: float) -> None:
        lived_s = now - watched.started_at
        watched.deaths_in_a_row = 1 if lived_s > HEALTHY_S else watched.deaths_in_a_row + 1
        wait_s = min(RESTART_FIRST_S * 2 ** (watched.deaths_in_a_row - 1), RESTART_LONGEST_S)
        watched.start_again_at = now + wait_s
        self._write()
        self.report(
            f"{watched.child.name} ended ({watched.child.how_it_ended()}); it is started again in "
            f"{wait_s:.1f} s, its log is {watched.child.log}"
        )

    def _start_again(self, watched: _Watched, now: float) -> None:
        watched.started_at = now
        watched.start_again_at = None
        watched.restarts += 1
        try:
            watched.child.start()
        except (LocalClusterError, OSError) as error:
            # As a death: tried again after a longer wait (a full disk may have room by then).
            self.report(f"{watched.child.name} cannot be started: {error}")
        self._write()

    def _write(self) -> None:
        """Write cluster.json; on a full disk again later, the children being more important."""
        try:
            write_cluster(self.data, self._cluster())
        except OSError as error:
            if not self._unwritten:
                self.report(f"{cluster_path(self.data)} cannot be written ({error.strerror})")
            self._unwritten = True
        else:
            self._unwritten = False

    def _cluster(self) -> ClusterFile:
        entries = (
            ProcessEntry(each.child.name, each.child.role, pid, each.restarts)
            for each in self._watched
            if (pid := each.child.pid) is not None
        )
        return ClusterFile(
            api=self.addresses.api,
            kafka=self.addresses.kafka,
            zookeeper=self.addresses.zookeeper,
            redis=self.addresses.redis,
            namespace=self.addresses.namespace,
            supervisor=os.getpid(),
            processes=tuple(entries),
        )


def _stop(children: Sequence[Child], within_s: float, at_once: Callable[[], bool]) -> None:
    deadline = time.monotonic() + within_s
    for child in children:
        child.ask_to_end()
    while any(child.running for child in children):
        if at_once() or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    for child in children:
        child.kill()
