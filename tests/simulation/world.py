"""One run out of one seed: a cluster, rows, users and mishaps; then healing, and the checks."""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

import mars.adapters.memory.bulk
import mars.adapters.memory.progress
import mars.process.tasks
import mars.process.telemetry.member
import mars.protocol.balance.steering
import mars.protocol.reducer.assisting
import mars.protocol.reducer.drafting
import mars.protocol.windows.turns
from mars.adapters.kafka.wire import decode_progress
from mars.adapters.memory.sink import Crash
from mars.adapters.spark.planning import plan_of_map
from mars.adapters.store import IDLE_LEASE_MS
from mars.core.definitions import TaskVersion
from mars.core.plan import Plan
from mars.core.types import Bucket, MemberId, TaskName
from mars.process.compiling import compile_version
from mars.protocol.balance.helpers import Assistants, Help
from mars.protocol.balance.placement import ReducerLoad
from mars.protocol.balance.scaling import ScaleLimits
from mars.protocol.ports import MapJob
from tests.simulation import rowwise
from tests.simulation.chance import Chance
from tests.simulation.checks import Checks
from tests.simulation.cluster import Cluster, Process, Servers
from tests.simulation.feeding import Feed
from tests.simulation.lateness import Lateness
from tests.simulation.losses import Losses
from tests.simulation.mishaps import Mishaps
from tests.simulation.strands import Host, Scheduler
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

WIDE_SHARE = 0.25
WIDE_LANES, WIDE_REST_MS = 4, 400
"""In such runs there are so many lanes more, and rows rest in mappers, so that most batches are of
several lanes."""

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

BUDGETS_BYTES = (16_000, 24_000, 10**8)
"""Of a task's log: the smallest just holds the merged panes of three versions, so that mappers are
held back all the time and no task needs more.
"""

BUDGETS_FOR_KEPT = 5
"""How much more tasks get that keep closed windows."""

NEVER_SAVED_MS = 10**9

SNAPSHOTS_MS = (300, 1_200, 4_000, NEVER_SAVED_MS)
"""How often open panes are saved; windows are open for some seconds."""

BUDGETS_FOR_MANY_VERSIONS = 3
"""The same where one task has more versions with open windows than three."""

BUDGETS_FOR_WIDE = 2
"""The same in a run of many lanes: panes name more of them, and more are open."""

FOLLOWS = 2
"""How often a standby of the store follows it between two fail-overs, at about; where it does not,
the one that was the store before comes back with what it had.
"""

DELIVERED_MS = 700
"""Mean pause between arrivals of commits that travel slowly."""

IDLE_AFTER_MS = 2_000
"""Of tasks in runs in which lanes fall silent."""

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
    (mars.protocol.balance.steering, "help_wanted", _everybody_helps),
    (mars.protocol.reducer.assisting, "SEGMENT_SEQS", 2),
    (mars.protocol.reducer.assisting, "SHRINK_MAX", 100.0),
)
"""In a run with assistants: each bucket has some, who merge what little there is."""

DRAFTED_SHARE = 0.6
"""How often windows are drafted, and output topics have a partition for each bucket."""

DRAFTED: tuple[tuple[ModuleType, str, object], ...] = (
    (mars.protocol.reducer.drafting, "DRAFT_MS", 5_000),
    (mars.protocol.reducer.drafting, "DRAFT_DELAY_SHARE", 2.5),
    (mars.protocol.reducer.drafting, "DRAFT_PAUSE_MS", 300),
    (mars.protocol.reducer.drafting, "DRAFT_PAUSE_MS_MAX", 600),
)
"""In such a run: long before windows close, so that rows still come for some."""


class _Time:
    """What the loops take for the module `time`.

    CPU time is drawn out of the seed: each look at it finds some more used. Measured loads are
    noise by that, which moves buckets, and equal runs measure the same.
    """

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self._scheduler = scheduler
        self._chance = Chance(seed)
        self._thread_s = self._process_s = 0.0

    def monotonic(self) -> float:
        return self._scheduler.now_ms / 1000

    def thread_time(self) -> float:
        self._thread_s += self._chance.pause(THREAD_S)
        return self._thread_s

    def process_time(self) -> float:
        self._process_s += self._chance.pause(PROCESS_S)
        return self._process_s

    time = monotonic

    def time_ns(self) -> int:
        return self._scheduler.now_ms * 1_000_000


def _with_a_clock() -> list[ModuleType]:
    """All modules of processes that take the time from the module `time`."""
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith(("mapper.", "reducer.", "mars.process."))
        and getattr(module, "time", None) is time
    ]


class _Listener(logging.Handler):
    """Hands records on."""

    def __init__(self, hear: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        self._hear(record)


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


_decoded = lru_cache(4_096)(decode_progress)
"""Each record is read by several processes, and again by each owner of its bucket."""


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
        wide: bool | None = None,
    ) -> None:
        self.seed = seed
        self._wide = random.Random(f"wide {seed}").random() < WIDE_SHARE if wide is None else wide
        self.tracked = seed % TRACKED_EVERY == 0 if tracked is None else tracked
        self.chance = Chance(seed)
        self._apart = random.Random(f"twice {seed}")
        self.scheduler = Scheduler(self.chance)
        weather = tune(Weather.draw(self.chance, seed))
        self._lossy = bool(weather.vanish_ms) and not weather.vanish_noted
        self.weather = weather if keys is Keys.ANY and not self._lossy else weather.whole()
        silent = self.weather.silence_ms > 0
        self._limits = limits = self._options(revising=revising, keys=keys)
        budget = self.chance.choice(BUDGETS_BYTES) * (BUDGETS_FOR_KEPT if limits.lateness_ms else 1)
        budget *= BUDGETS_FOR_WIDE if self._wide else 1
        budget *= BUDGETS_FOR_MANY_VERSIONS if weather.behind_ms else 1
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
            rest_ms=WIDE_REST_MS if self._wide else 0,
        )
        self._lines: deque[tuple[int, str, str]] = deque(maxlen=TRACE_LINES)
        self._tell = tell
        self._errors: list[str] = []
        self.told_lost: list[dict[str, Any]] = []
        self._storm = True
        self._with_history = self.chance.random() < HISTORY_SHARE
        self._split = split
        self.lost_last = False
        self.mishaps = Mishaps(seed, self.chance, self.scheduler, self.servers, self.note)
        self.feed = Feed(
            self.chance,
            self.mishaps.apart,
            self.scheduler,
            self.servers,
            limits,
            ROWS_SPLIT if split else ROWS,
            more_lanes=WIDE_LANES if self._wide else 0,
        )
        self.users = Users(
            self.servers,
            self.scheduler,
            self.note,
            limits,
            apart=self.mishaps.apart,
            shapes=random.Random(f"shapes {seed}"),
            weather=self.weather,
        )
        self.checks = Checks(
            self.servers,
            self.users,
            self.feed.written,
            late=keys is Keys.STRAY,
            apart=keys is not Keys.ANY,
            lateness=Lateness(self.servers.watch, self.feed.appended) if silent else None,
            gone=bool(self.weather.retention_ms),
        )
        self.losses = Losses(
            self.chance, self.scheduler, self.servers, self.mishaps, self.checks, self.note
        )

    def _options(self, *, revising: bool, keys: Keys) -> Limits:
        """Of the tasks: in runs in which rows are gone or lanes are silent they are the plain ones,
        because it is known of them what must come out.
        """
        if self._lossy or self.weather.retention_ms:
            return Limits.none()
        if self.weather.silence_ms:
            return Limits.none(IDLE_AFTER_MS)
        return Limits.draw(self.seed, revising=revising, keys=keys)

    @property
    def processes(self) -> list[Process]:
        """All that ever ran."""
        return self.mishaps.processes

    @property
    def vanished(self) -> list[tuple[TaskName, Bucket, int]]:
        """The entries that are gone from logs: task, bucket, SEQ."""
        return self.losses.vanished

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
        self.feed.trickle()
        self._go_on(self.users.all_begun, "every version has begun")
        self._feed_rest()
        self._go_on(self.checks.drained, "all rows are accounted and all windows emitted")
        end_ms = self.scheduler.now_ms + AFTERWARDS_MS
        self._go_on(lambda: self.scheduler.now_ms >= end_ms, "time passes")
        assert not self._errors, f"the processes complain: {self._errors[:3]}"
        self.checks.all(lossy=self._lossy)

    def _go_on(self, until: Callable[[], bool], what: str) -> None:
        if not self.scheduler.run(until, STEPS_MAX * (3 if self._split or self._wide else 1)):
            raise AssertionError(f"never: {what}\n{self.checks.standing()}")

    @contextmanager
    def _patched(self) -> Iterator[None]:
        clock = _Time(self.scheduler, self.seed)
        with ExitStack() as stack:
            for module in _with_a_clock():
                stack.enter_context(patch.object(module, "time", clock))
            stack.enter_context(patch.object(mars.adapters.memory.bulk, "TASK_OFFSETS", 3))
            at_once = self._limits.windows_at_once
            stack.enter_context(
                patch.object(mars.protocol.windows.turns, "WINDOWS_AT_ONCE", at_once)
            )
            stack.enter_context(patch.object(mars.process.tasks, "compile_version", _compile))
            stack.enter_context(
                patch.object(mars.adapters.memory.bulk, "plan_of_map", _compile_job)
            )
            stack.enter_context(
                patch.object(mars.adapters.memory.progress, "decode_progress", _decoded)
            )
            stack.enter_context(
                patch.object(mars.process.telemetry.member, "resident_bytes", lambda: 0)
            )
            forced = (*(FORCED if self._split else ()), *(DRAFTED if self._drafted else ()))
            if self.seed % KERNEL_EVERY:
                forced = (*forced, *rowwise.IN_PLACE)
            for module, name, value in forced:
                stack.enter_context(patch.object(module, name, value))
            yield

    def _begin(self) -> None:
        if self._with_history:
            self.feed.history()
        self.users.create(self.chance)
        counts = {
            "mapper": self.chance.randint(1, 2),
            "reducer": self.chance.randint(1, 3) + self._split,
            "bulk": self.chance.randint(1, 2),
        }
        cluster = self.cluster
        starters = {"mapper": cluster.mapper, "reducer": cluster.reducer, "bulk": cluster.bulk}
        self.mishaps.start(starters, counts)
        self.scheduler.after(0, self.feed.storm)
        self.servers.broker.lost_aborts = lambda: self.losses.lost_aborts(self.weather)
        self._strike()

    def _strike(self) -> None:
        """Let things happen until all is healed."""
        weather, mishaps, losses, apart = (
            self.weather,
            self.mishaps,
            self.losses,
            self.mishaps.apart,
        )
        for pause_ms, mishap, chance in (
            (weather.kill_ms, mishaps.kill_one, self.chance),
            (weather.freeze_ms, mishaps.freeze_one, self.chance),
            (weather.session_ms, mishaps.cut_session, self.chance),
            (weather.group_ms, mishaps.expire_from_group, self.chance),
            (weather.outage_ms, losses.outage, self.chance),
            (weather.flush_ms, losses.lose_store, self.chance),
            (weather.user_ms, self._ask, self.chance),
            (weather.vanish_ms, self._vanish, self.chance),
            (weather.leave_ms, mishaps.let_one_leave, self.chance),
            (weather.wipe_ms, self._wipe_zookeeper, self.chance),
            (weather.failover_ms, losses.fail_over, self.chance),
            (weather.failover_ms // FOLLOWS, losses.follow, self.chance),
            (DELIVERED_MS, self.servers.broker.deliver_delayed, self.chance),
            (weather.deaf_ms, mishaps.deafen_one, apart),
            (weather.behind_ms, mishaps.leave_a_mapper_behind, apart),
            (weather.retention_ms, losses.retain, apart),
            (weather.silence_ms, self.feed.fall_silent, apart),
        ):
            if pause_ms:
                self._again_and_again(chance, pause_ms, mishap)

    def _again_and_again(
        self, chance: random.Random, pause_ms: int, mishap: Callable[[], None]
    ) -> None:
        def happen() -> None:
            if self._storm:
                mishap()
                self.scheduler.after(chance.randint(pause_ms // 4, 2 * pause_ms), happen)

        self.scheduler.after(chance.randint(0, 2 * pause_ms), happen)

    def _calm(self) -> bool:
        return self.scheduler.now_ms >= 1_000_000 + STORM_MS

    # ---------------------------------------------------------------------------------- mishaps

    def _feed_rest(self) -> None:
        if self._limits.idle_after_ms:
            self._end_silences()
        self.feed.rest()
        self.checks.begin()
        if self.chance.random() < LAST_LOSS_SHARE:
            self.scheduler.after(self.draw(0, 3_000), self._lose_store_last)
            if self.servers.snapshot_every_ms < NEVER_SAVED_MS:
                self._close_after_loss()

    def _end_silences(self) -> None:
        """What is left comes before the rows that end the lanes: these close windows for lanes that
        count as idle still, and then hardly any row would have to be in time.
        """
        self.feed.all_left()
        end_ms = self.scheduler.now_ms + IDLE_LEASE_MS
        self._go_on(lambda: self.scheduler.now_ms > end_ms, "leases of before have expired")

    def _lose_store_last(self) -> None:
        self.losses.lose_store()
        self.lost_last = True

    def _close_after_loss(self) -> None:
        """One more row a lane.

        A mark is lost with the store, and rows whose panes are saved are not read again: without
        another row a lane would hold the watermark until it is idle, and often none ever is.
        """
        self._go_on(lambda: self.lost_last, "the store is lost once more")
        self.feed.one_more()
        self.checks.begin()  # where windows count rows, one more may be full

    def _vanish(self) -> None:
        self.losses.vanish(noted=self.weather.vanish_noted)

    def _wipe_zookeeper(self) -> None:
        self.users.copy_all()
        self.losses.wipe_zookeeper()

    def _ask(self) -> None:
        self.users.ask(self.chance)

    def _heal(self) -> None:
        """Nothing goes wrong any more; the processes that stood still go on as zombies."""
        self._storm = False
        self.note("HEALED")
        self.losses.heal()
        self.weather = Weather.calm()
        self.feed.heal()
        self.mishaps.heal()
        self.servers.broker.deliver_delayed()

    # -------------------------------------------------------------- what a port's call asks for

    def step(self, call: str, *, lossy: bool) -> Fate:
        """See `stepping.Steps`."""
        self.scheduler.pause()
        if self.weather.held:
            self.mishaps.acts(self.scheduler.running_name, call, self.weather.held)
        fate = self.weather.fate(self.chance, call)
        self.note(f"{call} {'' if fate is Fate.FINE else fate.name}")
        if fate is Fate.FROZEN:
            self.mishaps.freeze_running()
        elif fate is Fate.EMPTIED and call.startswith("redis."):
            self.losses.lose_store()
        return fate if lossy else Fate.FINE

    def down(self, service: str) -> bool:
        """See `stepping.Steps`."""
        return self.losses.down(service) or self.mishaps.deaf(service)

    def ring(self, host: Host, changed: Callable[[], None]) -> None:
        """See `stepping.Steps`."""
        self.mishaps.ring(host, changed, self.weather.watches_late)

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
        return self.losses.lost_commits(self.weather)

    def die(self) -> None:
        """See `stepping.Steps`."""
        self.mishaps.die()

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
        return self.chance.shuffled(items)

    # ------------------------------------------------------------------------------ for people

    def note(self, text: str) -> None:
        """A line of the trace."""
        scheduler = self.scheduler
        self._lines.append((scheduler.now_ms, scheduler.running_name, text))
        if self._tell is not None:
            self._tell(_line(*self._lines[-1]))


def _line(now_ms: int, strand: str, text: str) -> str:
    return f"{now_ms - 1_000_000:6d} {strand:22s} {text}"
