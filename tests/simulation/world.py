"""One run out of one seed: a cluster, rows, users and mishaps; then healing, and the checks."""

from __future__ import annotations

import logging
import os
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

import mapper.bulk.loop
import mapper.loop
import mars.adapters.memory.bulk
import mars.machines.assisting
import mars.machines.drafting
import mars.machines.folding
import mars.machines.steering
import mars.process.life
import mars.process.member
import mars.process.tasks
import mars.process.tracking
import reducer.assisting
import reducer.leader
import reducer.loop
import reducer.metering
import reducer.tracking
from mars.adapters.memory.sink import Crash
from mars.adapters.spark.planning import plan_of_map
from mars.definitions import TaskVersion
from mars.machines.balancing import ReducerLoad
from mars.machines.scaling import ScaleLimits
from mars.machines.splitting import Assistants, Help
from mars.plan import Plan
from mars.ports import MapJob
from mars.process.compiling import compile_version
from mars.types import Bucket, MemberId, TaskName, Topic
from tests.simulation import rowwise
from tests.simulation.checks import Checks
from tests.simulation.cluster import Cluster, Process, Servers
from tests.simulation.failover import Standby
from tests.simulation.rows import (
    EVENT_START_MS,
    TOPIC,
    Row,
    last_row,
    make_keyed_rows,
    make_rows,
    newest_of,
    own_key,
)
from tests.simulation.strands import Scheduler
from tests.simulation.telling import told
from tests.simulation.users import OVERFULL, Keys, Limits, Users
from tests.simulation.weather import Fate, Weather

# A thread of its own that Polars asks for each column of ten rows costs more than the work does. It
# is made with the first of them, here as in the processes of Mars (`mars.process.memory`).
os.environ.setdefault("POLARS_MAX_THREADS", "1")

STORM_MS = 12_000
"""How long things go wrong."""

STEPS_MAX = 12_000
"""Switches after which a stage that is not done never will be (the longest ones need 1,700)."""

AFTERWARDS_MS = 4_000
"""The run goes on for so long when all is done: what is emitted twice shows by then."""

TRACKED_EVERY = 4
"""In one of so many seeds the tuple tracker is on."""

KERNEL_EVERY = 64
"""In one of so many seeds the kernel itself maps, merges and finishes the rows; see `rowwise`."""

LAST_LOSS_SHARE = 0.3
"""How often the store is lost once more when no further row comes."""

HISTORY_SHARE = 0.6
"""How often rows lie in the topic before the first task is made."""

ROWS = (15, 45)
"""Rows that come while things go wrong, per partition: fewest and most."""

ROWS_SPLIT = (60, 120)
"""The same in a run with assistants: they need some batches to merge."""

HISTORY_ROWS_MAX = 20
"""Rows of history, per partition."""

BUDGETS_BYTES = (16_000, 24_000, 10**8)
"""Of a task's log: the smallest just holds the merged panes of three versions, so that mappers are
held back all the time and no task needs more.
"""

BUDGETS_FOR_KEPT = 5
"""How much more tasks get that keep closed windows."""

NEVER_SAVED_MS = 10**9

SNAPSHOTS_MS = (300, 1_200, 4_000, NEVER_SAVED_MS)
"""How often open panes are saved; windows are open for some seconds."""

FOLLOWS = 2
"""How often a standby of the store follows it between two fail-overs, at about; where it does not,
the one that was the store before comes back with what it had.
"""

TRACE_LINES = 40

THREAD_S = 0.002
"""Mean of what is used between two looks at a thread's CPU time."""

PROCESS_S = 0.3
"""The same of a process: far more than of its threads, so that there is something to even out."""

Item = TypeVar("Item")


def _everybody_helps(
    reducers: Mapping[MemberId, ReducerLoad],
    owners: Mapping[Bucket, MemberId],
    present: Assistants,
    _limits: ScaleLimits,
    _vain: Collection[Bucket],
) -> dict[Bucket, Help]:
    """All other reducers, for every bucket."""
    others = {bucket: tuple(sorted(reducers.keys() - {owner})) for bucket, owner in owners.items()}
    return {
        bucket: Help(members, "the test wants it")
        for bucket, members in others.items()
        if members != present.get(bucket, ())
    }


FORCED: tuple[tuple[ModuleType, str, object], ...] = (
    (mars.machines.steering, "help_wanted", _everybody_helps),
    (mars.machines.assisting, "SEGMENT_SEQS", 2),
    (mars.machines.assisting, "SHRINK_MAX", 100.0),
)
"""In a run with assistants: each bucket has some, who merge what little there is."""

DRAFTED_SHARE = 0.6
"""How often windows are drafted, and output topics have a partition for each bucket."""

DRAFTED: tuple[tuple[ModuleType, str, object], ...] = (
    (mars.machines.drafting, "DRAFT_MS", 5_000),
    (mars.machines.drafting, "DRAFT_DELAY_SHARE", 2.5),
    (mars.machines.drafting, "DRAFT_PAUSE_MS", 300),
    (mars.machines.drafting, "DRAFT_PAUSE_MS_MAX", 600),
)
"""In such a run: long before windows close, so that rows still come for some."""


class _Time:
    """What the loops take for the module `time`.

    CPU time is drawn out of the seed: each look at it finds some more used. Measured loads are
    noise by that, which moves buckets, and equal runs measure the same.
    """

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self._scheduler = scheduler
        self._chance = random.Random(seed)
        self._thread_s = self._process_s = 0.0

    def monotonic(self) -> float:
        return self._scheduler.now_ms / 1000

    def thread_time(self) -> float:
        self._thread_s += self._chance.expovariate(1 / THREAD_S)
        return self._thread_s

    def process_time(self) -> float:
        self._process_s += self._chance.expovariate(1 / PROCESS_S)
        return self._process_s

    time = monotonic


class _Listener(logging.Handler):
    """Hands records on."""

    def __init__(self, hear: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self.emit = hear  # type: ignore[method-assign]


_plans: dict[tuple[object, ...], Plan] = {}


def _compile(task: TaskName, version: TaskVersion, namespace: str) -> Plan:
    """`compile_version`, remembered: every process calls it for every version of every run."""
    key = (task, version.version, version.sql, *sorted(version.options.items()))
    if key not in _plans:
        _plans[key] = compile_version(task, version, namespace)
    return _plans[key]


def _compile_job(job: MapJob) -> Plan:
    """`plan_of_map`, remembered: there are some jobs for each chunk of a history."""
    version = job.version
    key = ("job", job.task, version.version, version.sql, *sorted(version.options.items()))
    if key not in _plans:
        _plans[key] = plan_of_map(job)
    return _plans[key]


class World:
    """Everything of one seed."""

    def __init__(
        self,
        seed: int,
        tell: Callable[[str], None] | None = None,
        tune: Callable[[Weather], Weather] = lambda drawn: drawn,
        *,
        revising: bool = True,
        tracked: bool | None = None,
        keys: Keys = Keys.ANY,
        split: bool = False,
    ) -> None:
        self.seed = seed
        self.tracked = seed % TRACKED_EVERY == 0 if tracked is None else tracked
        self.chance = random.Random(seed)
        self._apart = random.Random(f"twice {seed}")
        self.scheduler = Scheduler(self.chance)
        self.weather = tune(Weather.draw(self.chance, seed))
        self._lossy = bool(self.weather.vanish_ms) and not self.weather.vanish_noted
        limits = Limits.none() if self._lossy else Limits.draw(seed, revising=revising, keys=keys)
        self._limits = limits
        budget = self.chance.choice(BUDGETS_BYTES) * (BUDGETS_FOR_KEPT if limits.lateness_ms else 1)
        snapshots_ms = self.chance.choice(SNAPSHOTS_MS)
        self.servers = Servers(lambda: self.scheduler.now_ms, budget, snapshots_ms)
        self._drafted = random.Random(f"draft {seed}").random() < DRAFTED_SHARE
        self.cluster = Cluster(
            self.scheduler,
            self,
            self.servers,
            tracked=self.tracked,
            split=split,
            drafted=self._drafted,
        )
        self._starters = {
            "mapper": self.cluster.mapper,
            "reducer": self.cluster.reducer,
            "bulk": self.cluster.bulk,
        }
        self.processes: list[Process] = []
        self._lines: deque[tuple[int, str, str]] = deque(maxlen=TRACE_LINES)
        self._tell = tell
        self._errors: list[str] = []
        self.vanished: list[tuple[TaskName, Bucket, int]] = []
        self.told_lost: list[dict[str, Any]] = []
        self._down: set[str] = set()
        self._storm = True
        self._with_history = self.chance.random() < HISTORY_SHARE
        self._split = split
        counts = ROWS_SPLIT if split else ROWS
        self._ended = False
        self.lost_last = False
        partitions = self.chance.randint(2, 4)
        self.servers.broker.create_topic(Topic(TOPIC), partitions)
        self._waiting: list[list[Row]] = [
            self._rows(number, self.chance.randint(*counts)) for number in range(partitions)
        ]
        self.written: dict[int, dict[int, Row]] = {number: {} for number in range(partitions)}
        self._standby = Standby(self.servers.store, self.servers.watch)
        self.users = Users(self.servers, self.scheduler, self.note, limits)
        late, apart = keys is Keys.STRAY, keys is not Keys.ANY
        self.checks = Checks(self.servers, self.users, self.written, late=late, apart=apart)

    # ------------------------------------------------------------------------------- the run

    def run(self) -> None:
        """Raises AssertionError if an invariant does not hold."""
        with self._patched(), self._listening():
            try:
                self._run()
            except Exception as problem:
                raise AssertionError(self._told(problem)) from problem
            finally:
                self.scheduler.close()

    def _told(self, problem: Exception) -> str:
        kind = "" if isinstance(problem, AssertionError) else f"{type(problem).__name__}: "
        last = "\n".join(_line(*noted) for noted in self._lines)
        return (
            f"seed {self.seed}: {kind}{problem}\n"
            f"again, with all its steps: python -m tests.simulation.replay {self.seed} "
            f"{self._limits.keys}\n{last}"
        )

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """What the processes log: errors are not expected, the rest goes into the trace."""
        handler = _Listener(self._hear)
        root = logging.getLogger()
        before, disabled = root.handlers[:], logging.root.manager.disable
        root.handlers[:] = [handler]
        logging.disable(logging.NOTSET if self._tell is not None else logging.WARNING)
        try:
            yield
        finally:
            root.handlers[:] = before
            logging.disable(disabled)

    def _hear(self, record: logging.LogRecord) -> None:
        self.note(f"{record.levelname} {record.getMessage()} {getattr(record, 'mars_fields', '')}")
        fields = getattr(record, "mars_fields", {})
        if fields.get("kind") == "partial_lost":
            self.told_lost.append(fields)
        if record.levelno >= logging.ERROR and fields.get("task") != OVERFULL:
            self._errors.append(f"{record.getMessage()} {getattr(record, 'mars_fields', '')}")

    def _run(self) -> None:
        self._begin()
        self._go_on(self._calm, "the storm passes")
        self._heal()
        self._go_on(self.servers.registry.whole, "ZooKeeper has all that it had")
        self.users.resume_all()
        self._trickle()
        self._go_on(self.users.all_begun, "every version has begun")
        self._feed_rest()
        self._go_on(self.checks.drained, "all rows are accounted and all windows emitted")
        end_ms = self.scheduler.now_ms + AFTERWARDS_MS
        self._go_on(lambda: self.scheduler.now_ms >= end_ms, "time passes")
        assert not self._errors, f"the processes complain: {self._errors[:3]}"
        self.checks.all(lossy=self._lossy)

    def _go_on(self, until: Callable[[], bool], what: str) -> None:
        if not self.scheduler.run(until, STEPS_MAX * (3 if self._split else 1)):
            raise AssertionError(f"never: {what}\n{self.checks.standing()}")

    @contextmanager
    def _patched(self) -> Iterator[None]:
        clock = _Time(self.scheduler, self.seed)
        modules = (
            mapper.bulk.loop,
            mapper.loop,
            reducer.loop,
            mars.process.life,
            mars.process.member,
            mars.process.tasks,
            mars.process.tracking,
            reducer.assisting,
            reducer.leader,
            reducer.metering,
            reducer.tracking,
        )
        with ExitStack() as stack:
            for module in modules:
                stack.enter_context(patch.object(module, "time", clock))
            stack.enter_context(patch.object(mars.adapters.memory.bulk, "TASK_OFFSETS", 3))
            at_once = self._limits.windows_at_once
            stack.enter_context(patch.object(mars.machines.folding, "WINDOWS_AT_ONCE", at_once))
            for module in (mars.process.tasks, reducer.leader):
                stack.enter_context(patch.object(module, "compile_version", _compile))
            stack.enter_context(
                patch.object(mars.adapters.memory.bulk, "plan_of_map", _compile_job)
            )
            stack.enter_context(patch.object(mars.process.member, "resident_bytes", lambda: 0))
            forced = (*(FORCED if self._split else ()), *(DRAFTED if self._drafted else ()))
            forced += () if self.seed % KERNEL_EVERY == 0 else rowwise.IN_PLACE
            for module, name, value in forced:
                stack.enter_context(patch.object(module, name, value))
            yield

    def _begin(self) -> None:
        for number in self.written:
            for _ in range(self.draw(0, HISTORY_ROWS_MAX) if self._with_history else 0):
                self._append(number)
        self.users.create(self.chance)
        for _ in range(self.chance.randint(1, 2)):
            self.processes.append(self.cluster.mapper())
        for _ in range(self.chance.randint(1, 3) + self._split):
            self.processes.append(self.cluster.reducer())
        for _ in range(self.chance.randint(1, 2)):
            self.processes.append(self.cluster.bulk())
        self.scheduler.after(0, self._feed)
        weather = self.weather
        for pause_ms, mishap in (
            (weather.kill_ms, self._kill_one),
            (weather.freeze_ms, self._freeze_one),
            (weather.session_ms, self._cut_session),
            (weather.group_ms, self._expire_from_group),
            (weather.outage_ms, self._outage),
            (weather.flush_ms, self._lose_store),
            (weather.user_ms, self._ask),
            (weather.vanish_ms, self._vanish),
            (weather.leave_ms, self._let_one_leave),
            (weather.wipe_ms, self._wipe_zookeeper),
            (weather.failover_ms, self._fail_over),
            (weather.failover_ms // FOLLOWS, self._standby.follow),
            (700, self.servers.broker.deliver_delayed),
        ):
            if pause_ms:
                self._again_and_again(pause_ms, mishap)

    def _again_and_again(self, pause_ms: int, mishap: Callable[[], None]) -> None:
        def happen() -> None:
            if self._storm:
                mishap()
                self.scheduler.after(self.draw(pause_ms // 4, 2 * pause_ms), happen)

        self.scheduler.after(self.draw(0, 2 * pause_ms), happen)

    def _calm(self) -> bool:
        return self.scheduler.now_ms >= 1_000_000 + STORM_MS

    # ----------------------------------------------------------------------------------- rows

    def _feed(self) -> None:
        """Some rows now, and some later."""
        lanes = [number for number, rows in enumerate(self._waiting) if rows]
        if not lanes or not self._storm:
            return
        for number in lanes:
            for _ in range(self.draw(0, 3)):
                self._append(number)
        self.scheduler.after(self.draw(50, 900), self._feed)

    def _trickle(self) -> None:
        """A lane in which nothing comes would hold the others: no lane is ever idle here."""
        if self._ended:
            return
        for number, rows in self.written.items():
            if not self._waiting[number]:
                newest_ms = newest_of(number, rows.values())
                self._waiting[number] = self._rows(number, 1, newest_ms)
            self._append(number)
        self.scheduler.after(self.draw(200, 800), self._trickle)

    def _rows(self, number: int, count: int, newest_ms: int = EVENT_START_MS) -> list[Row]:
        """Rows of a lane, after those that are there."""
        keys = self._limits.keys
        if keys is Keys.ANY:
            return make_rows(self.chance, count, self._limits.disorder_ms, newest_ms)
        stray = keys is Keys.STRAY
        return make_keyed_rows(self.chance, number, count, newest_ms, stray=stray)

    def _last_row(self, number: int) -> Row:
        """The row that ends a lane."""
        return last_row(own_key(number, 1)) if self._limits.keys is Keys.OWN else last_row()

    def _append(self, number: int, row: Row | None = None) -> None:
        broker, topic = self.servers.broker, Topic(TOPIC)
        if self.chance.random() < 0.1:
            broker.append_aborted(topic, number, [b"never seen"])
        if row is None and not self._waiting[number]:
            return
        fed = row or self._waiting[number].pop(0)
        offset = broker.append(topic, number, fed.encode())
        self.written[number][offset] = fed

    def _feed_rest(self) -> None:
        self._ended = True
        for number in self.written:
            while self._waiting[number]:
                self._append(number)
            self._append(number, self._last_row(number))
        self.checks.begin()
        if self.chance.random() < LAST_LOSS_SHARE:
            self.scheduler.after(self.draw(0, 3_000), self._lose_store_last)
            if self.servers.snapshot_every_ms < NEVER_SAVED_MS:
                self._close_after_loss()

    def _lose_store_last(self) -> None:
        self._lose_store()
        self.lost_last = True

    def _close_after_loss(self) -> None:
        """One more row a lane.

        A mark is lost with the store, and rows whose panes are saved are not read again: without
        another row a lane would hold the watermark until it is idle, and none ever is.
        """
        self._go_on(lambda: self.lost_last, "the store is lost once more")
        for number in self.written:
            self._append(number, self._last_row(number))

    # -------------------------------------------------------------------------------- mishaps

    def _living(self, role: str = "") -> list[Process]:
        return [one for one in self.processes if not one.host.dead and one.role.startswith(role)]

    def _kill_one(self) -> None:
        if living := self._living():
            self._kill(self.chance.choice(living))

    def _let_one_leave(self) -> None:
        """A reducer is asked to stop; it does so when it thinks that it can."""
        living = [one for one in self._living("reducer") if "asked" not in one.parts]
        if not living:
            return
        process = self.chance.choice(living)
        self.note(f"ASKED TO STOP {process.member}")
        process.parts["asked"] = lambda: self._gone(process)

    def _gone(self, process: Process) -> None:
        if not process.host.dead:
            self.note(f"STOPS {process.member}")
            self._kill(process)

    def _kill(self, process: Process) -> None:
        self.note(f"KILL {process.member}")
        self.scheduler.kill(process.host)
        self._bury(process)

    def _bury(self, process: Process) -> None:
        """The servers notice sooner or later; somebody else takes the place."""
        process.host.frozen = False
        self.scheduler.after(self.draw(0, 1_500), lambda: self._expire(process))
        start = self._starters[process.role]
        self.scheduler.after(self.draw(0, 2_000), lambda: self.processes.append(start()))

    def _expire(self, process: Process) -> None:
        self.note(f"EXPIRE {process.member}")
        if self.servers.ensemble.sessions[process.member].alive:
            self.servers.ensemble.expire(process.member, noticed=False)
        if process.source is not None:
            process.source.expire()
        if not self._storm:
            self.scheduler.after(self.draw(0, 1_500), lambda: self._reconnect(process.member))

    def _freeze_one(self) -> None:
        """A process stands still, perhaps long enough to be given up; then it goes on."""
        if living := [one for one in self._living() if not one.host.frozen]:
            self._freeze(self.chance.choice(living))

    def _freeze(self, process: Process) -> None:
        self.note(f"FREEZE {process.member}")
        process.host.frozen = True
        if self.chance.random() < 0.7:
            self.scheduler.after(self.draw(0, 1_000), lambda: self._expire(process))
        self.scheduler.after(self.draw(200, 5_000), lambda: self._thaw(process))

    def _thaw(self, process: Process) -> None:
        if process.host.dead or not process.host.frozen:
            return
        self.note(f"THAW {process.member}")
        process.host.frozen = False
        self.scheduler.after(self.draw(0, 1_500), lambda: self._reconnect(process.member))

    def _reconnect(self, member: MemberId) -> None:
        host = next(one.host for one in self.processes if one.member == member)
        session = self.servers.ensemble.sessions[member]
        if not host.dead and not (session.alive and session.connected):
            self.note(f"RECONNECT {member}")
            self.servers.ensemble.heal(member)

    def _cut_session(self) -> None:
        living = [one for one in self._living() if one.role != "mapper" and not one.host.frozen]
        if not living:
            return
        member = self.chance.choice(living).member
        if not self.servers.ensemble.sessions[member].alive:
            return
        if self.chance.random() < 0.5:
            self.note(f"SUSPEND {member}")
            self.servers.ensemble.suspend(member)
        else:
            self.note(f"SESSION EXPIRED {member}")
            self.servers.ensemble.expire(member)
        self.scheduler.after(self.draw(100, 2_500), lambda: self._reconnect(member))

    def _expire_from_group(self) -> None:
        if living := self._living("mapper"):
            process = self.chance.choice(living)
            self.note(f"OUT OF THE GROUP {process.member}")
            assert process.source is not None
            process.source.expire()

    def _outage(self) -> None:
        service = self.chance.choice(("redis", "kafka", "zookeeper"))
        self.note(f"DOWN {service}")
        self._down.add(service)
        self.scheduler.after(self.draw(100, 2_000), lambda: self._up(service))

    def _up(self, service: str) -> None:
        self.note(f"UP {service}")
        self._down.discard(service)

    def _lose_store(self) -> None:
        store = self.servers.store
        restart = self.chance.random() < 0.5
        self.note("STORE RESTARTS" if restart else "FLUSHALL")
        store.tasks.clear()
        store.sealed = None
        store.starts += restart

    def _fail_over(self) -> None:
        """To a stale replica; and from there, the next time, perhaps to the old primary."""
        self._standby.take_over()
        self.note(f"STORE FAILS OVER to {self.servers.store.run_id}")

    def _wipe_zookeeper(self) -> None:
        """It comes back without anything that was in it."""
        self.note("ZOOKEEPER WIPED")
        self.servers.ensemble.wipe()
        self.servers.registry.wipe()
        for process in self._living():
            self.scheduler.after(self.draw(0, 1_500), partial(self._reconnect_awake, process))

    def _reconnect_awake(self, process: Process) -> None:
        if not process.host.frozen:
            self._reconnect(process.member)

    def _vanish(self) -> None:
        """An entry is gone from a log: one that no reducer has counted, or any that is noted."""
        tasks = self.servers.store.tasks
        entries = [
            (name, bucket, seq)
            for name, task in sorted(tasks.items())
            for bucket, log in sorted(task.logs.items())
            for seq in log
        ]
        noted = self.weather.vanish_noted
        if not noted or self.chance.random() < 0.5:
            read = {log: self._read_up_to(*log) for log in {one[:2] for one in entries}}
            entries = [one for one in entries if one[2] > read[one[:2]]]
        if entries:
            name, bucket, seq = self.chance.choice(entries)
            del tasks[name].logs[bucket][seq]
            if noted:
                tasks[name].vanished.setdefault(bucket, set()).add(seq)
            self.vanished.append((name, bucket, seq))
            self.note(f"VANISHES {name} #{seq} of bucket {bucket}")

    def _read_up_to(self, name: TaskName, bucket: Bucket) -> int:
        """By its owner, or by one before it that has committed what it read."""
        reducers = [one.parts["loop"]._machine._buckets for one in self._living("reducer")]
        parts = [own[bucket]._parts.get(name) for own in reducers if bucket in own]
        read = [part.last_seq for part in parts if part is not None]
        epoch = self.servers.store.tasks[name].epoch
        return max([*read, self.checks.counted_up_to(name, bucket, epoch)])

    def _ask(self) -> None:
        self.users.ask(self.chance)

    def _heal(self) -> None:
        """Nothing goes wrong any more; the processes that stood still go on as zombies."""
        self._storm = False
        self.note("HEALED")
        self._down.clear()
        self.weather = Weather.calm()
        for process in self._living():
            if process.host.frozen:
                self._thaw(process)
            else:
                self._reconnect(process.member)
        for role, start in self._starters.items():
            if not self._living(role):
                self.processes.append(start())
        self.servers.broker.deliver_delayed()

    # -------------------------------------------------------------- what a port's call asks for

    def step(self, call: str, *, lossy: bool) -> Fate:
        """See `stepping.Steps`."""
        self.scheduler.pause()
        fate = self.weather.fate(self.chance, call)
        self.note(f"{call} {'' if fate is Fate.FINE else fate.name}")
        if fate is Fate.FROZEN:
            self._freeze(self._running())
            self.scheduler.sleep(0)
        elif fate is Fate.EMPTIED and call.startswith("redis."):
            self._lose_store()
        return fate if lossy else Fate.FINE

    def _running(self) -> Process:
        return next(one for one in self.processes if one.host is self.scheduler.running_host)

    def down(self, service: str) -> bool:
        """See `stepping.Steps`."""
        return service in self._down

    def crash(self) -> Crash | None:
        """See `stepping.Steps`."""
        drawn = self.chance.random()
        for crash, share in (
            (Crash.BEFORE_COMMIT, self.weather.commit_lost),
            (Crash.AFTER_COMMIT, self.weather.commit_unanswered),
            (Crash.COMMIT_DELAYED, self.weather.commit_delayed),
        ):
            if drawn < share:
                self.note(crash.name)
                return crash
            drawn -= share
        return None

    def commit_twice(self) -> bool:
        """See `stepping.Steps`."""
        share = self.weather.commit_twice
        if not share or self._apart.random() >= share:
            return False
        self.note("COMMITS TWICE")
        return True

    def between_writes(self) -> None:
        """See `stepping.Steps`."""
        if self.weather.commit_twice and self._apart.random() < 0.5:
            self.servers.broker.deliver_delayed()

    def lost_markers(self) -> Callable[[object], bool] | None:
        """See `stepping.Steps`."""
        share = self.weather.markers_lost
        if not share or self.chance.random() >= share:
            return None
        self.note("MARKERS LOST")
        return lambda _partition: self.chance.random() < 0.5

    def die(self) -> None:
        """See `stepping.Steps`."""
        process = self._running()
        self.note(f"DIES {process.member}")
        self.scheduler.after(0, lambda: self._bury(process))
        self.scheduler.die()

    def draw(self, lowest: int, highest: int) -> int:
        """See `stepping.Steps`."""
        return self.chance.randint(lowest, highest)

    def rest(self, highest_ms: int) -> None:
        """See `stepping.Steps`."""
        self.scheduler.sleep(self.draw(0, highest_ms))

    def tell(self, call: str, arguments: Sequence[object], answer: object) -> None:
        """See `stepping.Steps`."""
        if self._tell is not None:
            self.note(f"  {call} {told(*arguments)} -> {told(answer)}")

    def shuffled(self, items: Iterable[Item]) -> list[Item]:
        """See `stepping.Steps`."""
        return self.chance.sample(found := list(items), len(found))

    # ------------------------------------------------------------------------------ for people

    def note(self, text: str) -> None:
        """A line of the trace."""
        noted = self.scheduler.now_ms, self.scheduler.running_name, text
        self._lines.append(noted)
        if self._tell is not None:
            self._tell(_line(*noted))


def _line(now_ms: int, strand: str, text: str) -> str:
    return f"{now_ms - 1_000_000:6d} {strand:22s} {text}"
