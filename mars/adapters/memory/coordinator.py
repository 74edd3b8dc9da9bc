"""Members, election and assignment in memory: the twin of ZooKeeper's.

One `MemoryEnsemble` is the server; each `MemoryCoordinator` is one process's session with it, which
tests suspend, expire and heal. Safe for threads; `changed` runs in the thread of whoever changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from mars.adapters.memory.faults import Faults, fallible
from mars.core.errors import Unavailable
from mars.core.types import LeaderEpoch, MemberId
from mars.protocol.ports import Assignment, MemberInfo


@dataclass(slots=True)
class _Session:
    """What the server and one process know of each other.

    `connected` is what the process believes, `alive` what the server says.
    """

    connected: bool = True
    alive: bool = True
    info: MemberInfo | None = None
    stands: bool = False
    reign: LeaderEpoch | None = None
    changed: list[Callable[[], None]] = field(default_factory=list)


class MemoryEnsemble:
    """The server: who is alive, who stands for election in which order, who owns what.

    The oldest candidate leads as soon as it can be told so, in the order of `campaign` and `heal`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sessions: dict[MemberId, _Session] = {}
        self.buckets: int | None = None
        self.registered: dict[MemberId, MemberInfo] = {}
        self.candidates: list[MemberId] = []
        self.stands: dict[MemberId, int] = {}
        """How often each has stood for election, in this life of the server or another."""
        self.epoch = LeaderEpoch(0)
        self.assignment: Assignment | None = None

    def suspend(self, member: MemberId) -> None:
        """The process loses its connection; its nodes stay until the session expires."""
        with self.lock:
            session = self.sessions[member]
            session.connected, session.reign = False, None
        _call(session.changed)

    def expire(self, member: MemberId, *, noticed: bool = True) -> None:
        """The server ends the session: its nodes vanish.

        Not `noticed`: the process stood still meanwhile, and goes on to believe what it believed
        until its next call.
        """
        with self.lock:
            session = self.sessions[member]
            session.alive = False
            self._forget(member)
        if noticed:
            self.suspend(member)
        self.tell()

    def wipe(self) -> None:
        """The server comes back empty: all sessions are over, and what was fixed is forgotten."""
        with self.lock:
            self.epoch, self.assignment, self.buckets = LeaderEpoch(0), None, None
            members = list(self.sessions)
        for member in members:
            self.expire(member)

    def heal(self, member: MemberId) -> None:
        """The process connects again, in a new session if the old one expired."""
        with self.lock:
            session = self.sessions[member]
            session.connected, session.alive, session.reign = True, True, None
            if session.info is not None:
                self.registered[member] = session.info
            if session.stands:
                self.stand(member)
        self.tell()

    def stand(self, member: MemberId) -> None:
        """Put a candidate behind the others."""
        with self.lock:
            self.candidates = [other for other in self.candidates if other != member] + [member]
            self.stands[member] = self.stands.get(member, 0) + 1
            self._elect()

    def leave(self, member: MemberId) -> None:
        """A process ends its session in order."""
        with self.lock:
            self._forget(member)
            del self.sessions[member]
        self.tell()

    def tell(self) -> None:
        """Let every process that watches and can be reached know of a change."""
        with self.lock:
            reached = [one for one in self.sessions.values() if one.connected and one.alive]
            watchers = [watch for session in reached for watch in session.changed]
        _call(watchers)

    def _forget(self, member: MemberId) -> None:
        self.registered.pop(member, None)
        self.candidates = [other for other in self.candidates if other != member]
        self._elect()

    def _elect(self) -> None:
        if not self.candidates:
            return
        session = self.sessions[self.candidates[0]]
        if session.connected and session.alive and session.reign is None:
            self.epoch = LeaderEpoch(self.epoch + 1)
            session.reign = self.epoch


@dataclass(frozen=True, slots=True)
class MemoryLeadership:
    """`Leadership` in memory: the server's own knowledge says whether it holds."""

    ensemble: MemoryEnsemble = field(repr=False)
    member: MemberId
    epoch: LeaderEpoch
    stand: int

    def holds(self) -> bool:
        """Whether this member still is the candidate of that epoch, whatever it believes."""
        with self.ensemble.lock:
            first = self.ensemble.candidates[:1] == [self.member]
            same = self.ensemble.stands.get(self.member) == self.stand
            return first and same and self.ensemble.epoch == self.epoch


class MemoryCoordinator:
    """`Coordinator` in memory, as the process `member`."""

    def __init__(self, ensemble: MemoryEnsemble, member: MemberId) -> None:
        self.faults = Faults("zookeeper")
        self._ensemble = ensemble
        self._member = member
        self._session = _Session()
        with ensemble.lock:
            ensemble.sessions[member] = self._session

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    def connected(self) -> bool:
        """False from the moment the session is suspended."""
        return self._session.connected

    @fallible
    def buckets(self, wanted: int) -> int:
        """B of this namespace: `wanted` if it is being made just now, else what was fixed."""
        with self._ensemble.lock:
            self._reach()
            if self._ensemble.buckets is None:
                self._ensemble.buckets = wanted
            return self._ensemble.buckets

    def join(self, info: MemberInfo) -> None:
        """Register this process, now if it is connected, and again when it is healed."""
        with self._ensemble.lock:
            self._session.info = info
            if self._session.connected and self._session.alive:
                self._ensemble.registered[self._member] = info
        self._ensemble.tell()

    def report(self, info: MemberInfo) -> None:
        """Refresh what is known of this process; tells nobody, never raises."""
        with self._ensemble.lock:
            if self._session.info is None:
                return
            self._session.info = info
            if self._session.connected and self._session.alive:
                self._ensemble.registered[self._member] = info

    def members(self, role: str) -> dict[MemberId, MemberInfo]:
        """Those of a role that are alive."""
        return self.roster(role)[role]

    @fallible
    def roster(self, *roles: str) -> dict[str, dict[MemberId, MemberInfo]]:
        """Those of each of these roles."""
        with self._ensemble.lock:
            self._reach()
            found = self._ensemble.registered.values()
            return {role: {one.id: one for one in found if one.role == role} for role in roles}

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` now, and when members, assignment, connection or leadership change."""
        with self._ensemble.lock:
            self._session.changed.append(changed)
        changed()

    @fallible
    def assignment(self) -> Assignment | None:
        """The current assignment."""
        with self._ensemble.lock:
            self._reach()
            return self._ensemble.assignment

    def campaign(self) -> None:
        """Stand for election, again whenever the session is healed."""
        self._session.stands = True
        if self._session.connected and self._session.alive:
            self._ensemble.stand(self._member)
            self._ensemble.tell()

    @fallible
    def outgrow(self, floor: LeaderEpoch) -> None:
        """End the own leadership, and let leader epochs go on above `floor`."""
        with self._ensemble.lock:
            self._reach()
            self._ensemble.epoch = max(self._ensemble.epoch, floor)
            self._session.reign = None
            self._ensemble.stand(self._member)
        self._ensemble.tell()

    def leading(self) -> LeaderEpoch | None:
        """This process's own leader epoch while it believes to lead."""
        return self._session.reign if self._session.connected else None

    def leadership(self) -> MemoryLeadership | None:
        """The leadership that `leading` tells the epoch of."""
        epoch = self.leading()
        if epoch is None:
            return None
        stand = self._ensemble.stands.get(self._member, 0)
        return MemoryLeadership(self._ensemble, self._member, epoch, stand)

    @fallible
    def publish(self, assignment: Assignment) -> bool:
        """Write the assignment if this process still leads in `assignment.leader_epoch`."""
        with self._ensemble.lock:
            if self._session.reign is None or self._session.reign != assignment.leader_epoch:
                return False
            self._reach()
            if self._ensemble.epoch != assignment.leader_epoch:
                return False
            self._ensemble.assignment = assignment
        self._ensemble.tell()
        return True

    def close(self) -> None:
        """Leave: members and election nodes vanish at once."""
        self._ensemble.leave(self._member)

    def _reach(self) -> None:
        if self._session.connected and not self._session.alive:
            self._session.connected, self._session.reign = False, None
        if not self._session.connected:
            raise Unavailable("zookeeper", "the twin's session is suspended or expired")


def _call(watchers: list[Callable[[], None]]) -> None:
    for changed in list(watchers):
        changed()
