"""Random mixes of all faults on real processes, while users change their queries.

    python -m tests.faults.long [--minutes N] [--runs N] [--seed N] [--folder FOLDER]

A run is some seconds of rows for tasks of several kinds, which nobody changes, and for those of
users, who change, pause, resume, delete and register again all the time. A blow falls every second
or so; several last beside each other. Then all heals. The results of each version of each task must
be those of DuckDB over the rows of its offsets, ledgers must balance, progress must only have gone
forward, and what is deleted must leave nothing in the store.

Runs follow each other until the minutes are over or there were enough of them. A run's blows and
its users' steps come from its seed alone; when they take effect, processes and their machine
decide. The folder (`.faults` without one) keeps a line of `history.jsonl` for each run: its seed,
what struck when, what users did, the verdict; of a run that failed also logs, rows, results and
definitions, in a folder named after its seed. Exit 0 if all hold, 1 if one does not, 2 for a wrong
call.
"""

from __future__ import annotations

import argparse
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mars.core.errors import MarsError
from tests.faults.arena import MAPPERS, Arena, arena
from tests.faults.blows import Blow, Planned, Scene, plan
from tests.faults.evidence import keep
from tests.support.cluster import wait_for
from tests.support.companions import LONG_KINDS, AccompaniedLoad
from tests.support.poison import memory_mib
from tests.support.queries import SESSIONS
from tests.support.users import Deed, Users, UsersLoad
from tests.support.users_check import UsersCheck

RUN_S = 20
DRAIN_S = 240
ROWS_PER_S = 300
LAST_BLOW_S = 17
"""From the begin of the rows: the last blow falls by then, and everything heals after it."""

MEMORY_MIB_MAX = 700
"""Of a mapper, once all that was sent is counted."""

USERS = 3
ARENA_RUNS = 10
"""Of one cluster. Topics and deleted tasks stay; with thousands of them, a broker that was killed
would need minutes to come back."""


class Struck(msgspec.Struct, frozen=True):
    """Something that struck, seconds after the begin of the run."""

    at_s: float
    what: str


class Verdict(msgspec.Struct, frozen=True):
    """A line of the history; `rows` are those of the topic, each read by every task.

    `segments`: what assistants had merged at the end, since their processes were started.
    `phases` are the seconds until all had healed, until all was compared, and until the store was
    empty of the run's tasks.
    """

    seed: int
    rows: int
    versions: int
    seconds: float
    phases: tuple[float, ...]
    blows: tuple[Struck, ...]
    deeds: tuple[Deed, ...]
    segments: int
    problem: str


class LongLoad(UsersLoad, AccompaniedLoad):
    """Rows for all kinds of tasks."""

    kinds = (*LONG_KINDS, SESSIONS)


@dataclass(slots=True)
class Run:
    """One run: rows, users, blows, verdict."""

    arena: Arena
    seed: int
    folder: Path
    struck: list[Struck] = field(default_factory=list)
    versions: int = 0
    begun: float = field(default_factory=time.monotonic)
    phases: list[float] = field(default_factory=list)
    _failures: list[BaseException] = field(default_factory=list)

    def go(self) -> Verdict:
        """All of it. Whatever is found wrong is in the verdict."""
        name = f"long_{self.seed}"
        load = LongLoad(self.arena.mars, name, seconds=RUN_S, rows_per_s=ROWS_PER_S)
        users = Users(self.arena.mars, name, seed=self.seed, users=USERS)
        problem = ""
        try:
            self._run(Scene(self.arena, load, users))
        except Exception as error:  # noqa: BLE001 -- one failed run must not end the others
            problem = f"{type(error).__name__}: {error}"[:4_000] + self._why(load.name)
            keep(self.folder / str(self.seed), self.arena.mars, users, load)
        return Verdict(
            self.seed,
            len(load.rows),
            self.versions,
            self._seconds(),
            tuple(self.phases),
            tuple(sorted(self.struck, key=lambda one: one.at_s)),
            users.deeds,
            self.arena.segments_merged(),
            problem,
        )

    def _seconds(self) -> float:
        return round(time.monotonic() - self.begun, 1)

    def _run(self, scene: Scene) -> None:
        load, users = scene.load, scene.users
        with load.running(), users.acting():
            self._strike(scene, plan(random.Random(self.seed), LAST_BLOW_S))
        self.phases.append(self._seconds())
        check = UsersCheck(users, load)
        self.versions = check.versions
        check.check(seconds=DRAIN_S)
        load.check(seconds=DRAIN_S, bad=scene.bad, future=scene.future)
        wait_for("mappers to give memory back", lambda: self._largest_mapper() < MEMORY_MIB_MAX)
        self.phases.append(self._seconds())
        load.delete()
        check.delete_all()
        self.phases.append(self._seconds())

    def _largest_mapper(self) -> int:
        """Memory in MiB, after whatever poison came."""
        pids = [self.arena.roles[name].pid for name in MAPPERS]
        pids.append(self.arena.mars.pid("mapper-1"))
        return max(memory_mib(pid)[0] for pid in pids if pid is not None)

    def _strike(self, scene: Scene, planned: Sequence[Planned]) -> None:
        """Each blow in its time, those that last beside each other; returns when all is whole."""
        begun = time.monotonic()
        threads = []
        for one in planned:
            time.sleep(max(0.0, begun + one.at_s - time.monotonic()))  # the pace of the blows
            thread = threading.Thread(target=self._one, args=(scene, one.blow, begun), daemon=True)
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _one(self, scene: Scene, blow: Blow, begun: float) -> None:
        self.struck.append(Struck(round(time.monotonic() - begun, 1), blow.told))
        try:
            blow.strike(scene)
        except BaseException as problem:  # noqa: BLE001 -- told to the run's own thread
            self._failures.append(problem)

    def _why(self, task: str) -> str:
        """What Mars itself says that the next window waits for."""
        try:
            return f"\nwhy: {self.arena.mars.client.why(task)}"
        except MarsError as error:
            return f"\nwhy: {error}"


@contextmanager
def _fresh_arena(*, hot: bool) -> Iterator[Arena]:
    with (
        tempfile.TemporaryDirectory(prefix="mars-faults-") as data,
        arena(Path(data), hot=hot) as found,
    ):
        yield found


def _runs(goes_on: Callable[[int], bool], seeds: Iterator[int], folder: Path) -> list[Verdict]:
    """Run after run, in a new cluster after ARENA_RUNS of them, and after one that failed.

    Every second cluster has one bucket only, with assistants.
    """
    verdicts: list[Verdict] = []
    hot = False
    while goes_on(len(verdicts)):
        with _fresh_arena(hot=hot) as found:
            for _ in range(ARENA_RUNS):
                if not goes_on(len(verdicts)):
                    break
                verdicts.append(Run(found, next(seeds), folder).go())
                _note(folder / "history.jsonl", verdicts[-1])
                if verdicts[-1].problem:
                    break  # what is left of it would strike the next one
        hot = not hot
    return verdicts


def _seeds(first: int | None) -> Iterator[int]:
    while True:
        yield secrets.randbits(32) if first is None else first
        first = None


def main(arguments: Sequence[str]) -> int:
    """Exit 0 if all runs hold, 1 if one does not; argparse exits with 2 for a wrong call."""
    parser = argparse.ArgumentParser("python -m tests.faults.long")
    parser.add_argument("--minutes", type=int, default=60, help="no run begins after them")
    parser.add_argument("--runs", type=int, default=1_000_000, help="at most so many")
    parser.add_argument("--seed", type=int, help="of the first run; others are random")
    parser.add_argument("--folder", type=Path, default=Path(".faults"))
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the cluster goes down, too
    until = time.monotonic() + 60 * asked.minutes
    asked.folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    verdicts = _runs(
        lambda done: done < asked.runs and time.monotonic() < until,
        _seeds(asked.seed),
        asked.folder,
    )
    return _conclude(verdicts, time.monotonic() - begun)


def _note(history: Path, verdict: Verdict) -> None:
    with history.open("ab") as file:
        file.write(msgspec.json.encode(verdict) + b"\n")
    sentence = verdict.problem.splitlines()[0] if verdict.problem else "exact"
    sys.stdout.write(
        f"run {verdict.seed}: {verdict.rows} rows, {len(verdict.blows)} blows, "
        f"{len(verdict.deeds)} deeds, {verdict.versions} versions, {verdict.segments} segments of "
        f"assistants, {verdict.seconds:.0f} s: "
        f"{sentence}\n"
    )
    sys.stdout.flush()


def _conclude(verdicts: Sequence[Verdict], seconds: float) -> int:
    failed = sum(bool(verdict.problem) for verdict in verdicts)
    rows = sum(verdict.rows for verdict in verdicts)
    blows = sum(len(verdict.blows) for verdict in verdicts)
    deeds = sum(len(verdict.deeds) for verdict in verdicts)
    versions = sum(verdict.versions for verdict in verdicts)
    sys.stdout.write(
        f"{len(verdicts)} runs in {seconds:.0f} s, {rows} rows, {blows} blows, {deeds} deeds, "
        f"{versions} versions: {failed} runs failed\n"
    )
    return 1 if failed or not verdicts else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
