"""What happens to processes: they die, stand still, lose their sessions or their hearing.

Whatever is newer than the rest draws from a chance of its own, `apart`, so that runs without it are
what they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

from mars.core.types import MemberId
from tests.simulation.cluster import Process, Servers
from tests.simulation.strands import Host, Scheduler

SERVICES = ("redis", "kafka", "zookeeper")

DEAF_MS = (2_000, 9_000)
BEHIND_MS = (6_000, 12_000)
"""How long a process hears nothing of a server: its sessions last 1.5 s at most."""

WATCH_LATE_MS = (300, 6_000)
"""How late a watch rings that is late."""

WATCH_LOST_SHARE = 0.3
"""How many of those never ring."""

HELD_ACTIONS = (1, 12)
"""After how many actions of others a leader goes on that stands still."""

HELD_MS_MAX = 6_000
"""It goes on after so long even if nobody else acts."""

DECISIVE = frozenset(
    {
        "add_lanes",
        "begin_version",
        "drop",
        "heed",
        "put_deleted",
        "put_task",
        "put_tasks",
        "replace_task",
        "set_active",
    }
)
"""Actions that concern one task, and `heed`, after which the store takes none of former leaders: a
leader stands still before them more often than before others, and is let go more often when
another leader is about to do one."""

OTHER_ACTIONS = frozenset(
    {
        "buckets",
        "create_task",
        "delete_stream",
        "initialise",
        "make_whole",
        "outgrow",
        "publish",
        "put_epochs",
        "put_stream",
        "seal",
    }
)
"""They begin a life of the store, restore ZooKeeper, or concern no task. Some are called so often
that a leader which stood still before them would seldom come to the decisive ones."""

SELDOM = 0.25
"""How much less often before the others."""

LET_GO_SHARE = 0.3
"""How often an action of another leader that is decisive lets one go."""

GIVES_WAY_MS = 150
"""That other leader then does not act at once: who was let go may get in between its look and its
action."""

LOOKS = frozenset(
    {
        "assignment",
        "describe",
        "head",
        "identity",
        "members",
        "read",
        "streams",
        "task",
        "tasks",
        "whole",
    }
)
"""Calls of a leader that change nothing."""

OWN = frozenset({"campaign", "leading", "leadership", "watch_tasks"})
"""Calls of a leader that ask no server while it leads."""


class Mishaps:
    """Strikes processes, and heals them."""

    def __init__(
        self,
        seed: int,
        chance: random.Random,
        scheduler: Scheduler,
        servers: Servers,
        note: Callable[[str], None],
    ) -> None:
        self.chance = chance
        self.apart = random.Random(f"mishaps {seed}")
        self._scheduler = scheduler
        self._servers = servers
        self._note = note
        self._starters: Mapping[str, Callable[[], Process]] = {}
        self.processes: list[Process] = []
        self._storm = True
        self._deaf: set[tuple[Host, str]] = set()
        self._missed: dict[Host, list[Callable[[], None]]] = {}
        self._held: dict[Host, int] = {}

    def start(
        self, starters: Mapping[str, Callable[[], Process]], counts: Mapping[str, int]
    ) -> None:
        """Start so many processes of each role, and one in the place of each that dies."""
        self._starters = starters
        for role, count in counts.items():
            self.processes += [starters[role]() for _ in range(count)]

    def living(self, role: str = "") -> list[Process]:
        """Those that have not died."""
        return [one for one in self.processes if not one.host.dead and one.role.startswith(role)]

    def heal(self) -> None:
        """Nothing goes wrong any more; the processes that stood still go on as zombies."""
        self._storm = False
        self._held.clear()
        for host, service in sorted(self._deaf, key=lambda one: (one[0].name, one[1])):
            self._hear_again(host, service)
        for process in self.living():
            if process.host.frozen:
                self._thaw(process)
            else:
                self.reconnect(process.member)
        for role, start in self._starters.items():
            if not self.living(role):
                self.processes.append(start())

    def running(self) -> Process:
        """The process whose strand runs."""
        return next(one for one in self.processes if one.host is self._scheduler.running_host)

    # ---------------------------------------------------------------------------------- death

    def kill_one(self) -> None:
        """A process dies."""
        if living := self.living():
            self._kill(self.chance.choice(living))

    def let_one_leave(self) -> None:
        """A reducer is asked to stop; it does so when it thinks that it can."""
        living = [one for one in self.living("reducer") if "asked" not in one.parts]
        if not living:
            return
        process = self.chance.choice(living)
        self._note(f"ASKED TO STOP {process.member}")
        process.parts["asked"] = lambda: self._gone(process)

    def _gone(self, process: Process) -> None:
        if not process.host.dead:
            self._note(f"STOPS {process.member}")
            self._kill(process)

    def _kill(self, process: Process) -> None:
        self._note(f"KILL {process.member}")
        self._scheduler.kill(process.host)
        self._bury(process)

    def die(self) -> None:
        """The running process dies at this very call."""
        process = self.running()
        self._note(f"DIES {process.member}")
        self._scheduler.after(0, lambda: self._bury(process))
        self._scheduler.die()

    def _bury(self, process: Process) -> None:
        """The servers notice sooner or later; somebody else takes the place."""
        process.host.frozen = False
        self._scheduler.after(self._draw(0, 1_500), lambda: self._expire(process))
        start = self._starters[process.role]
        self._scheduler.after(self._draw(0, 2_000), lambda: self.processes.append(start()))

    # -------------------------------------------------------------------------- standing still

    def freeze_one(self) -> None:
        """A process stands still, perhaps long enough to be given up; then it goes on."""
        if living := [one for one in self.living() if not one.host.frozen]:
            self._freeze(self.chance.choice(living))

    def freeze_running(self) -> None:
        """The same of the one that runs, at this very call."""
        self._freeze(self.running())
        self._scheduler.sleep(0)

    def _freeze(self, process: Process) -> None:
        self._note(f"FREEZE {process.member}")
        process.host.frozen = True
        if self.chance.random() < 0.7:
            self._scheduler.after(self._draw(0, 1_000), lambda: self._expire(process))
        self._scheduler.after(self._draw(200, 5_000), lambda: self._thaw(process))

    def _thaw(self, process: Process) -> None:
        if process.host.dead or not process.host.frozen or process.host in self._held:
            return
        self._note(f"THAW {process.member}")
        process.host.frozen = False
        self._scheduler.after(self._draw(0, 1_500), lambda: self.reconnect(process.member))

    def acts(self, strand: str, call: str, share: float) -> None:
        """The running process is about to make a call. If that is an action of a leader, one that
        stands still for it may go on; else this one may stand still itself.
        """
        name = call.partition(".")[2]
        if not strand.endswith("/leader") or name not in DECISIVE | OTHER_ACTIONS:
            return
        if self._held:
            if self._let_some_go(decisive=name in DECISIVE):
                self._scheduler.sleep(self.apart.randint(0, GIVES_WAY_MS))
        elif self.apart.random() < share * (1 if name in DECISIVE else SELDOM):
            self._hold(self.running(), call)
            self._scheduler.sleep(0)

    def _hold(self, process: Process, call: str) -> None:
        """Nobody knows that it stands still before its session is over; it does not know that."""
        self._note(f"HOLD {process.member} before {call}")
        process.host.frozen = True
        self._held[process.host] = self.apart.randint(*HELD_ACTIONS)
        self._scheduler.after(self.apart.randint(0, 800), lambda: self._expire(process))
        self._scheduler.after(HELD_MS_MAX, lambda: self._let_go(process.host))

    def _let_some_go(self, *, decisive: bool) -> bool:
        """True if one goes on."""
        let_go = False
        for host in list(self._held):
            self._held[host] -= 1
            if self._held[host] <= 0 or (decisive and self.apart.random() < LET_GO_SHARE):
                self._let_go(host)
                let_go = True
        return let_go

    def _let_go(self, host: Host) -> None:
        if self._held.pop(host, None) is not None:
            process = next(one for one in self.processes if one.host is host)
            self._scheduler.after(0, lambda: self._thaw(process))

    # --------------------------------------------------------------------------------- sessions

    def _expire(self, process: Process) -> None:
        self._note(f"EXPIRE {process.member}")
        if self._servers.ensemble.sessions[process.member].alive:
            self._servers.ensemble.expire(process.member, noticed=False)
        if process.source is not None:
            process.source.expire()
        if not self._storm:
            self._scheduler.after(self._draw(0, 1_500), lambda: self.reconnect(process.member))

    def reconnect(self, member: MemberId) -> None:
        """Its session is alive again, a new one if the old one was over."""
        host = next(one.host for one in self.processes if one.member == member)
        session = self._servers.ensemble.sessions[member]
        if host.dead or (session.alive and session.connected) or (host, "zookeeper") in self._deaf:
            return
        self._note(f"RECONNECT {member}")
        self._servers.ensemble.heal(member)

    def cut_session(self) -> None:
        """A session is suspended, or over."""
        living = [one for one in self.living() if one.role != "mapper" and not one.host.frozen]
        if not living:
            return
        member = self.chance.choice(living).member
        if not self._servers.ensemble.sessions[member].alive:
            return
        if self.chance.random() < 0.5:
            self._note(f"SUSPEND {member}")
            self._servers.ensemble.suspend(member)
        else:
            self._note(f"SESSION EXPIRED {member}")
            self._servers.ensemble.expire(member)
        self._scheduler.after(self._draw(100, 2_500), lambda: self.reconnect(member))

    def expire_from_group(self) -> None:
        """Kafka gives a mapper's partitions to others."""
        if living := self.living("mapper"):
            process = self.chance.choice(living)
            self._note(f"OUT OF THE GROUP {process.member}")
            assert process.source is not None
            process.source.expire()

    def reconnect_all_soon(self) -> None:
        """All sessions were over at once."""
        for process in self.living():
            self._scheduler.after(self._draw(0, 1_500), partial(self._reconnect_awake, process))

    def _reconnect_awake(self, process: Process) -> None:
        if not process.host.frozen:
            self.reconnect(process.member)

    # ---------------------------------------------------------------------------------- hearing

    def deafen_one(self) -> None:
        """A process and a server hear nothing of each other for long."""
        role = self.apart.choice(("mapper", "reducer", "bulk"))
        service = self.apart.choice((*SERVICES, "zookeeper"))
        hearing = [one for one in self.living(role) if (one.host, service) not in self._deaf]
        if hearing:
            self._deafen(self.apart.choice(hearing), service, DEAF_MS)

    def leave_a_mapper_behind(self) -> None:
        """A mapper hears nothing of ZooKeeper for most of the storm; others do, and go on."""
        mappers = self.living("mapper")
        hearing = [one for one in mappers if (one.host, "zookeeper") not in self._deaf]
        if len(hearing) > 1:
            self._deafen(self.apart.choice(hearing), "zookeeper", BEHIND_MS)

    def _deafen(self, process: Process, service: str, span_ms: tuple[int, int]) -> None:
        self._note(f"DEAF {process.member} to {service}")
        self._deaf.add((process.host, service))
        for delay_ms, then in (
            (self.apart.randint(0, 500), self._notice),
            (self.apart.randint(500, 1_500), self._give_up),
        ):
            self._scheduler.after(delay_ms, partial(then, process, service))
        again_ms = self.apart.randint(*span_ms)
        self._scheduler.after(again_ms, lambda: self._hear_again(process.host, service))

    def _notice(self, process: Process, service: str) -> None:
        """What it says to ZooKeeper is not answered."""
        if service == "zookeeper" and (process.host, service) in self._deaf:
            self._servers.ensemble.suspend(process.member)

    def _give_up(self, process: Process, service: str) -> None:
        """The server has heard nothing for too long."""
        if (process.host, service) not in self._deaf or process.host.dead:
            return
        if service == "zookeeper" and self._servers.ensemble.sessions[process.member].alive:
            self._servers.ensemble.expire(process.member)
        if service == "kafka" and process.source is not None:
            process.source.expire()

    def _hear_again(self, host: Host, service: str) -> None:
        if (host, service) not in self._deaf:
            return
        self._deaf.discard((host, service))
        process = next(one for one in self.processes if one.host is host)
        self._note(f"HEARS {process.member} {service} again")
        if service == "zookeeper" and not host.dead:
            self._reconnect_awake(process)
            for ring in self._missed.pop(host, []):
                ring()

    def deaf(self, service: str) -> bool:
        """Whether the running process and a server hear nothing of each other."""
        return bool(self._deaf) and (self._scheduler.running_host, service) in self._deaf

    def ring(self, host: Host, changed: Callable[[], None], late_share: float) -> None:
        """A watch of a process is due: it rings now, later or never."""
        if (host, "zookeeper") in self._deaf:
            self._missed.setdefault(host, []).append(changed)
        elif not late_share or self.apart.random() >= late_share:
            changed()
        elif self.apart.random() >= WATCH_LOST_SHARE:
            self._scheduler.after(self.apart.randint(*WATCH_LATE_MS), changed)

    def _draw(self, lowest: int, highest: int) -> int:
        return self.chance.randint(lowest, highest)
