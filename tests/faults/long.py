"""Random mixes of all faults for as long as wanted: `python -m tests.faults.long MINUTES [FOLDER]`.

A run is a minute of rows, for tasks of several kinds, with a blow every few seconds; then all
heals, and the results must be those of DuckDB, the ledgers must balance, and progress must only
have gone forward. The folder (`.faults` without one) keeps a line of `history.jsonl` for each run:
its seed, what struck when, the verdict; of a run that failed also the logs, in a folder named after
its seed. Exit 0 if all hold, 1 if one does not, 2 for a wrong call.

    mars up       mapper-1, reducer-1, API, Kafka, ZooKeeper, Valkey
    behind links  mapper-a, mapper-b, reducer-a, reducer-b
"""

from __future__ import annotations

import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mars.errors import MarsError
from tests.faults.conftest import DRAFT_ROWS_MIN
from tests.support.bad_rows import JSON
from tests.support.cluster import MarsCluster, wait_for
from tests.support.companions import AccompaniedLoad
from tests.support.linked import LinkedRole
from tests.support.links import BREAKS, broken, commits_late, commits_unanswered
from tests.support.load import PARTITIONS
from tests.support.rows import FIELDS
from tests.support.store import Store

RUN_S = 60
DRAIN_S = 240
ROWS_PER_S = 500
LAST_BLOW_S = 50
"""From the begin of a run; after it everything heals."""

PAUSE_S = (1.0, 5.0)
"""Between two blows, at random."""

LASTING_S = (1.0, 12.0)
"""How long what can last does: below and above the sessions of 6 and 10 s."""

LONG_S = (30.0, 75.0)
"""How long one in `LONG_OF` lasts: Kafka leaves a transaction open for 60 s."""

LONG_OF = 16

MAPPERS = ("mapper-a", "mapper-b")
REDUCERS = ("reducer-a", "reducer-b")
POISON = [kind for kind in JSON if kind.reason is not None and kind.field in {"", *FIELDS}]


class Blow(msgspec.Struct, frozen=True):
    """Something that struck, seconds after the begin of the run."""

    at_s: float
    what: str


class Verdict(msgspec.Struct, frozen=True):
    """A line of the history."""

    seed: int
    rows: int
    seconds: float
    blows: tuple[Blow, ...]
    problem: str


@dataclass(slots=True)
class Arena:
    """The cluster, and the processes whose links can be broken."""

    mars: MarsCluster
    roles: dict[str, LinkedRole]

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """SIGSTOP, then SIGCONT, to one of ours."""
        self.roles[name].pause()
        try:
            yield
        finally:
            self.roles[name].resume()

    @contextmanager
    def absent(self, name: str) -> Iterator[None]:
        """It leaves in order, and comes back."""
        self.roles[name].stop(10)
        try:
            yield
        finally:
            self.roles[name].start()

    @contextmanager
    def paused_task(self, name: str) -> Iterator[None]:
        """A user pauses a task, and resumes it."""
        client = self.mars.client
        wait_for(f"{name} to pause", lambda: client.pause_task(name))
        try:
            yield
        finally:
            wait_for(f"{name} to be resumed", lambda: client.resume_task(name))

    @contextmanager
    def full_store(self) -> Iterator[None]:
        """No more room in the store."""
        with Store(self.mars) as store:
            before = store.memory_max()
            store.limit_memory(store.info()["used_memory"])
            try:
                yield
            finally:
                with Store(self.mars) as again:
                    again.limit_memory(before)

    def old_store(self) -> None:
        """Valkey comes back with what it holds now, later."""
        with Store(self.mars) as store:
            store.save()


@dataclass(slots=True)
class Run:
    """One run: rows, blows, verdict."""

    arena: Arena
    seed: int
    blows: list[Blow] = field(default_factory=list)
    bad: int = 0
    future: int = 0

    def go(self) -> Verdict:
        """All of it. Whatever is found wrong is in the verdict."""
        begun = time.monotonic()
        load = AccompaniedLoad(
            self.arena.mars,
            f"long_{self.seed}",
            seconds=RUN_S,
            rows_per_s=ROWS_PER_S,
        )
        problem = ""
        try:
            with load.running():
                self._strike(load, begun)
            load.check(seconds=DRAIN_S, bad=self.bad, future=self.future)
            load.delete()
        except Exception as error:  # noqa: BLE001 -- one failed run must not end the others
            problem = f"{type(error).__name__}: {error}"[:2_000] + self._why(load.name)
        seconds = time.monotonic() - begun
        return Verdict(self.seed, len(load.rows), round(seconds, 1), tuple(self.blows), problem)

    def _why(self, task: str) -> str:
        """What Mars itself says that the next window waits for."""
        try:
            return f"\nwhy: {self.arena.mars.client.why(task)}"
        except MarsError as error:
            return f"\nwhy: {error}"

    def _strike(self, load: AccompaniedLoad, begun: float) -> None:
        chance = random.Random(self.seed)
        while time.monotonic() - begun < LAST_BLOW_S:
            time.sleep(chance.uniform(*PAUSE_S))  # the pace of the blows, not a way to wait
            what, blow = chance.choice([self._instant, self._lasting])(chance, load)
            self.blows.append(Blow(round(time.monotonic() - begun, 1), what))
            blow()

    def _instant(
        self, chance: random.Random, load: AccompaniedLoad
    ) -> tuple[str, Callable[[], object]]:
        mars, roles = self.arena.mars, self.arena.roles
        role = roles[chance.choice([*MAPPERS, *REDUCERS])]
        server = chance.choice(["redis", "redis", "zookeeper", "kafka"])
        child = chance.choice(["mapper-1", "reducer-1", server])
        found: list[tuple[str, Callable[[], object]]] = [
            (f"kill -9 {role.name}", role.start_again),
            (f"kill -9 {child}", lambda: mars.kill(child)),
            ("FLUSHALL", lambda: _flush(mars)),
            ("the store will come back as it is now", self.arena.old_store),
            ("poison", lambda: self._poison(chance.choice(POISON).name, load)),
        ]
        return chance.choice(found)

    def _lasting(
        self, chance: random.Random, load: AccompaniedLoad
    ) -> tuple[str, Callable[[], object]]:
        arena = self.arena
        role = arena.roles[chance.choice([*MAPPERS, *REDUCERS])]
        reducer = arena.roles[chance.choice(REDUCERS)]
        server, how = chance.choice(["kafka", "zookeeper", "redis"]), chance.choice(list(BREAKS))
        task = chance.choice(load.names)
        span = LASTING_S if chance.randrange(LONG_OF) else LONG_S
        seconds, times = chance.uniform(*span), chance.randrange(1, 6)
        what, fault = chance.choice(
            [
                (f"{role.name}: {server} {how}", broken(role, server, how)),
                (f"{reducer.name}: {times} commits unanswered", commits_unanswered(reducer, times)),
                (f"{reducer.name}: {times} commits late", commits_late(reducer, times)),
                (f"{role.name} stands still", arena.paused(role.name)),
                (f"{role.name} is away", arena.absent(role.name)),
                (f"{server} stands still", arena.mars.stopped(server)),
                ("the store is full", arena.full_store()),
                (f"{task} is paused", arena.paused_task(task)),
            ]
        )

        def last() -> None:
            with fault:
                time.sleep(seconds)  # how long it lasts

        return f"{what} for {seconds:.1f} s", last

    def _poison(self, name: str, load: AccompaniedLoad) -> None:
        kind = next(kind for kind in POISON if kind.name == name)
        row = {**load.rows[0], "timestamp": time.time_ns() // 10**6, "rate": 1.5, "spare": 0}
        load.mars.produce(load.name, [(self.bad % PARTITIONS, kind.make(row))])
        self.bad += kind.place == "bad"
        self.future += kind.place == "future"


def _flush(mars: MarsCluster) -> None:
    with Store(mars) as store:
        store.flush()


@contextmanager
def arena(data: Path) -> Iterator[Arena]:
    """Everything that is needed, ready."""
    config = data / "drafts.toml"
    config.write_text(f"[reducer]\ndraft_rows_min = {DRAFT_ROWS_MIN}\n", "utf-8")
    mars = MarsCluster(data, "--config", str(config), "--mappers", "1", "--reducers", "1")
    try:
        with ExitStack() as stack:
            roles = {
                name: stack.enter_context(LinkedRole(mars, name.partition("-")[0], name))
                for name in (*MAPPERS, *REDUCERS)
            }
            expected = {"mapper-1", "reducer-1", *roles}
            wait_for(
                "all processes",
                lambda: expected <= {member.id for member in mars.client.cluster().members},
            )
            yield Arena(mars, roles)
    finally:
        mars.down()


def main(arguments: Sequence[str]) -> int:
    """Exit 0 if all runs hold, 1 if one does not, 2 for a wrong call."""
    if not 1 <= len(arguments) <= 2 or not arguments[0].isdigit():
        sys.stderr.write("usage: python -m tests.faults.long MINUTES [FOLDER]\n")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the cluster goes down, too
    until = time.monotonic() + 60 * int(arguments[0])
    folder = Path(arguments[1] if len(arguments) > 1 else ".faults")
    folder.mkdir(parents=True, exist_ok=True)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="mars-faults-") as data, arena(Path(data)) as found:
        while time.monotonic() < until:
            verdicts.append(Run(found, secrets.randbits(32)).go())
            _note(folder / "history.jsonl", verdicts[-1])
            if verdicts[-1].problem:
                shutil.copytree(Path(data) / "logs", folder / str(verdicts[-1].seed))
    return _conclude(verdicts)


def _note(history: Path, verdict: Verdict) -> None:
    with history.open("ab") as file:
        file.write(msgspec.json.encode(verdict) + b"\n")
    sentence = verdict.problem.splitlines()[0] if verdict.problem else "exact"
    sys.stdout.write(
        f"run {verdict.seed}: {verdict.rows} rows, {len(verdict.blows)} blows, "
        f"{verdict.seconds:.0f} s: {sentence}\n"
    )
    sys.stdout.flush()


def _conclude(verdicts: Sequence[Verdict]) -> int:
    failed = sum(bool(verdict.problem) for verdict in verdicts)
    rows = sum(verdict.rows for verdict in verdicts)
    blows = sum(len(verdict.blows) for verdict in verdicts)
    sys.stdout.write(f"{len(verdicts)} runs, {rows} rows, {blows} blows: {failed} runs failed\n")
    return 1 if failed or not verdicts else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
