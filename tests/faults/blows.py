"""The table of what strikes in a random run: each kind with its weight, and how one of it is made.

A blow is made from the seed alone, before the run: what it strikes, for how long, when. To add a
kind, write a function that makes a blow of it, and give it a line in `BLOWS`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from mars.core.errors import Conflict, MarsError, TooMany, Unavailable
from tests.faults.arena import CHILDREN, MAPPERS, REDUCERS, Arena
from tests.support.bad_rows import JSON
from tests.support.cluster import wait_for
from tests.support.links import BREAKS, broken, commits_late, commits_unanswered
from tests.support.load import PARTITIONS, Load
from tests.support.poison import Poison, PoisonSender, many_rows
from tests.support.queries import Query, any_query
from tests.support.rows import FIELDS
from tests.support.users import PATIENCE_S, Users

PAUSE_S = (0.3, 2.0)
"""Between the begins of two blows; those that last go on beside each other."""

LASTING_S = (1.0, 12.0)
"""How long what can last does: below and above the sessions of 6 s."""

LONG_S = (30.0, 75.0)
"""How long one in `LONG_OF` lasts: Kafka leaves a transaction open for 60 s."""

LONG_OF = 60
"""Such a one makes a run longer by a minute. A run has some six that last."""

SERVERS = ("kafka", "zookeeper", "redis")
KILLED = ("kafka", "zookeeper", "redis", "redis")

LED_S = 90.0
"""For others to miss a leader that stands still, and to elect one."""

BETWEEN_S = (0.0, 2.0)
"""Between two changes that a mapper does not hear of."""

REBALANCED_S = (0.0, 8.0)
"""From the death of a mapper to a loss of the store: others have its partitions after 6 s."""

MISSED_S = 10.0
"""How long that takes on a quiet machine."""

TASKS_MAX = 90
"""Which task of the load fails is a number below it, taken modulo their number."""

USERS_MAX = 12
"""Which user is asked for a change is a number below it, taken modulo their number."""

FAILED_S = (0.0, 2.0)
"""How long a task stays failed: within a commit, and longer than one."""

LOOK_AND_ACT_S = 0.5
"""Within it a leader has looked, and has not yet acted on all that it has seen."""

POISON = [kind for kind in JSON if kind.reason is not None and kind.field in {"", *FIELDS}]

LARGE_ROWS = 1_000_000
LARGE_BYTES = 300_000_000
"""Of a message that is one bad row: twenty times as much as is looked at, and with gzip less than a
megabyte. Readers of the tests' own unpack it, too."""

LARGE_CODECS = {"rows": ("none", "gzip", "snappy", "lz4", "zstd"), "bytes": ("gzip", "lz4")}
"""Of the codec zstd such readers unpack less than 100 MB."""


@dataclass(slots=True)
class Scene:
    """What blows strike, and what they leave for the verdict to know."""

    arena: Arena
    load: Load
    users: Users
    bad: int = 0
    future: int = 0

    def poison(self, name: str) -> None:
        """A message that is no row."""
        kind = next(kind for kind in POISON if kind.name == name)
        row = {**self.load.rows[0], "timestamp": time.time_ns() // 10**6, "rate": 1.5, "spare": 0}
        self.load.mars.produce(self.load.name, [(self.bad % PARTITIONS, kind.make(row))])
        self.bad += kind.place == "bad"
        self.future += kind.place == "future"

    def large_poison(self, what: str, codec: str) -> None:
        """A message that is small on the wire: a million rows that are none, or far too large."""
        value = many_rows("json", LARGE_ROWS) if what == "rows" else bytes(LARGE_BYTES)
        one = Poison("json", codec, value, LARGE_ROWS if what == "rows" else 1)
        partition = self.bad % PARTITIONS
        PoisonSender(str(self.load.mars.file["kafka"])).send(self.load.name, partition, one)
        self.bad += one.rows


@dataclass(frozen=True, slots=True)
class Blow:
    """One blow. While it lasts no other strikes its `targets`, so that each does what it says."""

    what: str
    strike: Callable[[Scene], object]
    targets: frozenset[str] = field(default=frozenset())
    seconds: float = 0.0

    @property
    def told(self) -> str:
        """For a person."""
        return f"{self.what} for {self.seconds:.1f} s" if self.seconds else self.what


Fault = Callable[[Scene], AbstractContextManager[object]]


def _lasting(chance: random.Random, what: str, fault: Fault, *targets: str) -> Blow:
    span = LASTING_S if chance.randrange(LONG_OF) else LONG_S
    seconds = chance.uniform(*span)

    def strike(scene: Scene) -> None:
        with fault(scene):
            time.sleep(seconds)  # how long it lasts

    return Blow(what, strike, frozenset(targets), seconds)


# ----------------------------------------------------------------------------------- the kinds


def _kill_role(chance: random.Random) -> Blow:
    name = chance.choice([*MAPPERS, *REDUCERS])
    return Blow(f"kill -9 {name}", lambda on: on.arena.start_again(name), frozenset({name}))


def _kill_child(chance: random.Random) -> Blow:
    name = chance.choice([*CHILDREN, chance.choice(KILLED)])
    return Blow(f"kill -9 {name}", lambda on: on.arena.start_again(name), frozenset({name}))


def _flush(_chance: random.Random) -> Blow:
    return Blow("FLUSHALL", lambda on: on.arena.flush(), frozenset({"redis"}))


def _old_store(_chance: random.Random) -> Blow:
    what = "the store will come back as it is now"
    return Blow(what, lambda on: on.arena.old_store(), frozenset({"redis"}))


def _poison(chance: random.Random) -> Blow:
    name = chance.choice(POISON).name
    return Blow(f"poison: {name}", lambda on: on.poison(name), frozenset({"poison"}))


def _large_poison(chance: random.Random) -> Blow:
    what = chance.choice(list(LARGE_CODECS))
    codec = chance.choice(LARGE_CODECS[what])
    told = f"large poison: {what}, {codec}"
    return Blow(told, lambda on: on.large_poison(what, codec), frozenset({"poison"}))


def _break_link(chance: random.Random) -> Blow:
    name, server = chance.choice([*MAPPERS, *REDUCERS]), chance.choice(SERVERS)
    how = chance.choice(list(BREAKS))
    what = f"{name}: {server} {how}"
    return _lasting(chance, what, lambda on: broken(on.arena.roles[name], server, how), what)


def _unanswered(chance: random.Random) -> Blow:
    name, times = chance.choice(REDUCERS), chance.randrange(1, 6)
    what = f"{name}: {times} commits unanswered"
    fault: Fault = lambda on: commits_unanswered(on.arena.roles[name], times)  # noqa: E731
    return _lasting(chance, what, fault, f"commits of {name}")


def _late(chance: random.Random) -> Blow:
    name, times = chance.choice(REDUCERS), chance.randrange(1, 6)
    what = f"{name}: {times} commits late"
    fault: Fault = lambda on: commits_late(on.arena.roles[name], times)  # noqa: E731
    return _lasting(chance, what, fault, f"commits of {name}")


def _stand_still(chance: random.Random) -> Blow:
    name = chance.choice([*MAPPERS, *REDUCERS, *MAPPERS, *REDUCERS, "api"])
    return _lasting(chance, f"{name} stands still", lambda on: on.arena.still(name), name)


def _away(chance: random.Random) -> Blow:
    name = chance.choice([*MAPPERS, *REDUCERS])
    return _lasting(chance, f"{name} is away", lambda on: on.arena.absent(name), name)


def _server_still(chance: random.Random) -> Blow:
    name = chance.choice(SERVERS)
    return _lasting(chance, f"{name} stands still", lambda on: on.arena.still(name), name)


def _full(chance: random.Random) -> Blow:
    return _lasting(chance, "the store is full", lambda on: on.arena.full_store(), "redis")


def _fail_a_task(chance: random.Random) -> Blow:
    number, seconds = chance.randrange(TASKS_MAX), chance.uniform(*FAILED_S)
    times = chance.randrange(1, 4)
    what = f"task {number} fails and is resumed, {times} times"
    return Blow(what, lambda on: fail_and_resume(on, number, seconds, times), frozenset({what}))


def fail_and_resume(on: Scene, number: int, seconds: float, times: int) -> None:
    """A process says that one of the load's tasks has failed; somebody resumes it."""
    name = on.load.names[number % len(on.load.names)]
    for _ in range(times):
        _insist(lambda: on.users.chronicle.fail(name))
        time.sleep(seconds)  # how much happens meanwhile
        _insist(lambda: on.arena.mars.client.resume_task(name))


def _insist(act: Callable[[], object]) -> None:
    """Until it is answered, whatever else is broken."""

    def done() -> bool:
        try:
            act()
        except (Unavailable, Conflict, TooMany):
            return False
        return True

    wait_for("an answer", done, seconds=PATIENCE_S)


def _deaf_mapper(chance: random.Random) -> Blow:
    name, how = chance.choice(MAPPERS), chance.choice(["cut", "stall", "deaf up", "deaf down"])
    others = [each for each in (*MAPPERS, "mapper-1") if each != name]
    killed = others[: chance.randrange(len(others) + 1)]
    user, queries = chance.randrange(USERS_MAX), [any_query(chance), any_query(chance)]
    moments_s = chance.uniform(*BETWEEN_S), chance.uniform(*REBALANCED_S)
    seconds = chance.uniform(*LASTING_S)

    def strike(on: Scene) -> None:
        with broken(on.arena.roles[name], "zookeeper", how):
            change_twice_and_forget(on, user, queries, killed, moments_s)
            time.sleep(seconds)  # how long it lasts

    what = f"{name}: zookeeper {how} over two changes"
    what += "".join(f", kill -9 {each}" for each in killed) + ", FLUSHALL"
    targets = {f"{name}: zookeeper {how}", "redis", *killed}
    return Blow(what, strike, frozenset(targets), sum(moments_s) + seconds)


def change_twice_and_forget(
    on: Scene,
    user: int,
    queries: Sequence[Query],
    killed: Sequence[str],
    moments_s: tuple[float, float],
) -> None:
    """Fault 29, for whoever hears nothing of ZooKeeper meanwhile: two changes, then FLUSHALL.

    Rows of the first change come for some time. `killed` are other mappers, whose partitions change
    hands: some time later rows of all versions are read again, by whom they have gone to.
    """
    _change(on, user, queries[:1])
    time.sleep(moments_s[0])  # how many rows the version gets
    _change(on, user, queries[1:])
    for name in killed:
        on.arena.start_again(name)
    time.sleep(moments_s[1])  # at some moment of the rebalance
    on.arena.flush()


def _still_leader(chance: random.Random) -> Blow:
    user, queries = chance.randrange(USERS_MAX), [any_query(chance), any_query(chance)]
    moment_s, lost = chance.uniform(0, LOOK_AND_ACT_S), chance.random() < 0.5
    what = "the leader stands still with a change in hand, another leads" + ", and dies" * lost
    return Blow(
        what,
        lambda on: lead_twice(on, user, queries, moment_s, lost=lost),
        frozenset({*REDUCERS, "reducer-1"}),
        MISSED_S,
    )


def lead_twice(
    on: Scene, user: int, queries: Sequence[Query], moment_s: float, *, lost: bool
) -> str | None:
    """Fault 30: a leader stands still with a decision in hand, another leads and decides.

    Then the first one goes on; with `lost`, the other one has died before. Answers who that was.
    """
    former = _leader(on)
    if former is None:
        return None
    _change(on, user, queries[:1])
    time.sleep(moment_s)  # at some moment between its look and its last act
    with on.arena.still(former):
        other = _another_leader(on, former)
        _change(on, user, queries[1:])
        if lost and other is not None:
            on.arena.start_again(other)
    return other


def _change(on: Scene, user: int, queries: Sequence[Query]) -> None:
    on.users.users[user % len(on.users.users)].change_at_once(queries)


def _leader(on: Scene) -> str | None:
    """Who leads, as the API says; None if it cannot."""
    try:
        found = on.arena.mars.client.cluster().leader
    except MarsError:
        return None
    return None if found is None else found.member


def _another_leader(on: Scene, former: str) -> str | None:
    """Who leads in its place; None if nobody does for long, with what else is broken."""

    def other() -> str | None:
        found = _leader(on)
        return None if found == former else found

    try:
        return wait_for("another leader", other, seconds=LED_S)
    except AssertionError:
        return None


BLOWS: tuple[tuple[int, Callable[[random.Random], Blow]], ...] = (
    (2, _kill_role),
    (3, _kill_child),
    (2, _flush),
    (1, _old_store),
    (1, _poison),
    (1, _large_poison),
    (3, _break_link),
    (1, _unanswered),
    (1, _late),
    (2, _stand_still),
    (1, _away),
    (1, _server_still),
    (1, _full),
    (2, _fail_a_task),
    (1, _deaf_mapper),
    (1, _still_leader),
)
"""Each kind with its weight: of 24 blows so many are of it."""

TRIES_MAX = 20
"""To find a blow whose targets no other strikes."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A blow, and when it strikes, seconds after the begin."""

    at_s: float
    blow: Blow


def plan(chance: random.Random, until_s: float) -> list[Planned]:
    """What strikes when; nothing strikes what another blow has in its hands just then."""
    weights, kinds = zip(*BLOWS, strict=True)
    found: list[Planned] = []
    at_s = chance.uniform(*PAUSE_S)
    while at_s < until_s:
        held = {
            target
            for one in found
            if one.at_s + one.blow.seconds > at_s
            for target in one.blow.targets
        }
        for _ in range(TRIES_MAX):
            (make,) = chance.choices(kinds, weights)
            blow = make(chance)
            if not blow.targets & held:
                found.append(Planned(at_s, blow))
                break
        at_s += chance.uniform(*PAUSE_S)
    return found
