"""Loops that run one at a time, in an order that a seed decides.

The loops of Mars are ordinary blocking code. Here each of them runs on a stack of its own (a
greenlet), a strand, which stops at every call to a port until the scheduler lets it go on:

    scheduler ──go──▶ strand runs ... reaches a port ──go──▶ another strand ... ──back──▶ scheduler

So two processes interleave between any two calls, nothing runs at the same time, and equal seeds
give equal runs. Time is a number that the scheduler moves.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from greenlet import getcurrent, greenlet

from tests.simulation.chance import Chance

GO_ON_SHARE = 0.6
"""How often a strand goes on past a port without a switch: most calls come in rows of some."""

SWITCHES_BETWEEN_LOOKS = 20
"""How often it is looked whether a run is done: looking costs as much as many switches."""

STEP_MS_MAX = 4
"""Longest time that one call takes."""


class Killed(BaseException):
    """The strand's process is dead: unwind, touch nothing. Not an Exception: nobody catches it."""


class Host:
    """A process as the scheduler sees it: what freezes and dies together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = False
        self.dead = False
        self.strands: list[Strand] = []


class Strand:
    """One loop of a process. It ends in `back`, as a greenlet's parent is called here."""

    def __init__(self, host: Host, name: str, body: Callable[[], None], back: greenlet):
        self.host = host
        self.name = f"{host.name}/{name}"
        self.done = False
        self.ready_at_ms = 0
        self.problem: BaseException | None = None
        self.stack = greenlet(self._run, back)
        self._body = body

    def _run(self) -> None:
        """All that the strand does."""
        try:
            if not self.host.dead:
                self._body()
        except Killed:
            pass
        except BaseException as problem:  # noqa: BLE001 -- told to whoever runs the scheduler
            self.problem = problem
        self.done = True

    def stop(self, then: greenlet) -> None:
        """Strand's side: let somebody else go on; raises Killed if the process died meanwhile."""
        then.switch()
        if self.host.dead:
            raise Killed


class Scheduler:
    """Runs strands, and actions that are due at a time; all in the thread that makes it."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.now_ms = 1_000_000
        self.steps = 0
        self._back = getcurrent()
        self._strands: list[Strand] = []
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timer_number = 0
        self._current: Strand | None = None
        self._switches = self._switches_max = 0

    # ------------------------------------------------------------------------ from the outside

    def start(self, host: Host, name: str, body: Callable[[], None]) -> None:
        """A new strand of a process."""
        strand = Strand(host, name, body, self._back)
        host.strands.append(strand)
        self._strands.append(strand)

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something later; actions run between strands, never within one."""
        self._timer_number += 1
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self._timer_number, action))

    def kill(self, host: Host) -> None:
        """End a process at whatever call its strands stand. Not from within a strand."""
        host.dead = True
        for strand in host.strands:
            if not strand.done:
                self._resume(strand)
        self._forget_done()

    def run(self, until: Callable[[], bool], steps_max: int) -> bool:
        """Go on until the condition holds; False if it does not within so many switches."""
        self._switches, self._switches_max = 0, steps_max
        while self._switches < steps_max:
            if self._switches % SWITCHES_BETWEEN_LOOKS == 0 and until():
                return True
            self._switch()
        return until()

    def close(self) -> None:
        """End all strands."""
        for host in {id(strand.host): strand.host for strand in self._strands}.values():
            self.kill(host)

    # -------------------------------------------------------------------------- from a strand

    def pause(self) -> None:
        """A call to a port: time passes, somebody else may go on first."""
        self.steps += 1
        self.now_ms += self.chance.below(STEP_MS_MAX + 1)
        strand = self._running()
        if strand.host.dead:
            raise Killed
        if self.chance.random() >= GO_ON_SHARE:
            self._stop(strand)

    def sleep(self, duration_ms: int) -> None:
        """Let the others go on for so long."""
        strand = self._running()
        strand.ready_at_ms = self.now_ms + duration_ms
        self._stop(strand)

    def die(self) -> None:
        """The running strand's process dies right here."""
        self._running().host.dead = True
        raise Killed

    @property
    def running_host(self) -> Host:
        """The process whose strand runs."""
        return self._running().host

    @property
    def running_name(self) -> str:
        """The strand that runs, for people."""
        return self._current.name if self._current is not None else ""

    def _running(self) -> Strand:
        assert self._current is not None, "ports are called from strands only"
        return self._current

    # ------------------------------------------------------------------------------- within

    def _switch(self) -> None:
        """Do what is due, then let strands run until something is, or they are to be looked at."""
        while self._is_due():
            heapq.heappop(self._timers)[2]()
        strand = self._next()
        if strand is None:
            return
        self._resume(strand)
        last = self._running()
        if last.problem is not None:
            raise last.problem
        self._current = None
        if last.host.dead:
            self.kill(last.host)
        elif last.done:
            self._forget_done()

    def _resume(self, strand: Strand) -> None:
        """Let it run, and perhaps others after it, until one of them comes back."""
        strand.stack.switch()

    def _stop(self, strand: Strand) -> None:
        """The running strand lets another go on: directly, if there is nothing else to do."""
        while not (strand.host.dead or self._is_due() or self._is_looked_at()):
            other = self._next()
            if other is strand:
                return
            if other is not None:
                strand.stop(then=other.stack)
                return
        strand.stop(then=self._back)

    def _is_due(self) -> bool:
        return bool(self._timers) and self._timers[0][0] <= self.now_ms

    def _is_looked_at(self) -> bool:
        looked = self._switches % SWITCHES_BETWEEN_LOOKS == 0
        return looked or self._switches == self._switches_max

    def _next(self) -> Strand | None:
        """The strand that goes on now; None: time has passed until one can, or an action is due."""
        self._switches += 1
        now_ms = self.now_ms
        ready = [one for one in self._strands if one.ready_at_ms <= now_ms and not one.host.frozen]
        if ready:
            self._current = self.chance.choice(ready)
            return self._current
        times = [strand.ready_at_ms for strand in self._strands if not strand.host.frozen]
        times += [time_ms for time_ms, *_action in self._timers[:1]]
        self.now_ms = max(now_ms, min(times))
        return None

    def _forget_done(self) -> None:
        self._strands = [strand for strand in self._strands if not strand.done]
