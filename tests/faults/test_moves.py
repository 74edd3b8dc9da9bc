"""Buckets move because of load while rows come and things fail; the results stay exact."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from mars.client.answers import Move
from mars.core.errors import MarsError
from tests.faults.conftest import three_reducers
from tests.faults.nemesis import (
    CLAIMS_MAX,
    flush_the_store,
    let_buckets_move,
    wait_until_missed,
)
from tests.support.cluster import MarsCluster, wait_for
from tests.support.linked import LinkedRole
from tests.support.load import LONG_S, Load
from tests.support.progress import Place, claims, most_claimed
from tests.support.skewed import SkewedLoad

pytestmark = pytest.mark.faults

BUCKETS = 8

EAGER = """
[balance]
imbalance_max = 0.005
gain_min = 0.001
cooldown_s = 1.0
bucket_rest_s = 3.0
"""
"""Two thousand rows a second are a small load: what is uneven about it must count. And there are
seconds only between two strikes, after each of which the leader, perhaps a new one, keeps still."""

STRIKE_EVERY = 3
JOIN_OR_LEAVE_EVERY = 4
"""Looks, of one second each, between two strikes, and until a reducer joins or leaves."""

FLUSHES = 3
FLUSH_EVERY_S = 0.4
"""In a row, most in the middle of a recovery."""

STRIKES_MIN = 4
GAPS_MIN = 2
"""So many strikes come before moves count, which must be between more than two of them."""

FIRE_S = 150.0
"""How long rows come at most: all strikes take half of it on a quiet machine."""

UNEVEN = "use is uneven"
"""In the reason of a move because of load."""


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    yield from three_reducers(tmp_path_factory.mktemp("moves"), BUCKETS, EAGER, mappers=2)


def some_moves(load: SkewedLoad) -> list[Move]:
    """Those because of load; raises MarsError with the figures as long as there are none."""
    moves = load.moves(UNEVEN)
    if not moves:
        shown = load.mars.client.cluster()
        uses = {
            member.id: (member.load.get("cpu_use"), [each.load for each in member.buckets])
            for member in shown.members
            if member.role == "reducer"
        }
        raise MarsError(f"nothing moved: {shown.balance}, {uses}")
    return moves


def test_a_skewed_load_moves_buckets_for_a_stated_reason_and_results_stay_exact(
    mars: MarsCluster,
) -> None:
    load = SkewedLoad(mars, "skewed", seconds=LONG_S, rows_per_s=2_000)
    with load.running():
        (move, *_) = wait_for("a bucket to move", lambda: some_moves(load), seconds=LONG_S)
        loads = [member.load for member in mars.client.cluster().members]
        shown = mars.mars("status", "--data", str(mars.data)).stdout
        load.end()

    load.check()
    assert move.source != move.target
    assert f"{move.source} at" in move.reason
    assert all("cpu_use" in each for each in loads)
    assert f"bucket {move.bucket}, {move.source} -> {move.target}: use is uneven" in shown


def test_moves_under_fire(mars: MarsCluster) -> None:
    """All kinds of faults strike, a reducer comes and goes, and buckets move in between."""
    load = SkewedLoad(mars, "fire", seconds=FIRE_S, rows_per_s=2_000)
    with (
        load.running(),
        LinkedRole(mars, "reducer", "reducer-a") as lonely,
        LinkedRole(mars, "reducer", "reducer-b") as guest,
    ):
        fire = Fire(load, lonely)

        def look_and_strike(turn: int) -> None:
            fire.look()
            if turn % JOIN_OR_LEAVE_EVERY == 0:
                let_buckets_move(mars, guest)
            if turn % STRIKE_EVERY == 0:
                fire.strike()

        load.every(1, look_and_strike, until=fire.over)
        load.check()
    assert fire.over(), f"{len(fire.blows)} strikes left, buckets moved after {fire.moved_after}"
    assert most_claimed(fire.claimed_meanwhile) <= CLAIMS_MAX


class Fire:
    """Faults 8, 3, 4 and 6, one after the other. What lasts does so for longer than a session.

    `moved_after`: how many strikes there had been each time that a bucket had moved because of
    load. `claimed_meanwhile`: while the lonely reducer was cut off from ZooKeeper.
    """

    def __init__(self, load: SkewedLoad, lonely: LinkedRole) -> None:
        self._load = load
        self._mars = load.mars
        self._lonely = lonely
        self._struck = 0
        self._seen: set[tuple[int, int]] = set()
        self._before: set[Place] = set()
        self.moved_after: list[int] = []
        self.claimed_meanwhile: set[Place] = set()
        self.blows: list[Callable[[], object]] = [
            self._flush,
            lambda: self._mars.kill("mapper-1", signal.SIGSTOP),
            lambda: self._mars.kill("reducer-1"),
            self._flush,
            lambda: self._mars.kill("reducer-2"),
            lambda: self._let_go_on("mapper-1"),
            lambda: self._mars.kill("reducer-3"),
            self._cut_off,
            lambda: self._mars.kill("mapper-2", signal.SIGSTOP),
            lambda: self._mars.kill("reducer-1"),
            self._heal,
            self._flush,
            lambda: self._let_go_on("mapper-2"),
            lambda: self._mars.kill("reducer-2"),
        ]

    def look(self) -> None:
        """Whether buckets have moved since the last look."""
        moves = {(move.bucket, move.at) for move in self._load.moves(UNEVEN)}
        if moves - self._seen:
            self.moved_after.append(self._struck)
        self._seen |= moves

    def strike(self) -> None:
        """The next blow, if there is one."""
        if self.blows:
            self.blows.pop(0)()
            self._struck += 1

    def over(self) -> bool:
        """All has struck, and buckets moved between several strikes."""
        gaps = {struck for struck in self.moved_after if struck >= STRIKES_MIN}
        return not self.blows and len(gaps) >= GAPS_MIN

    def _flush(self) -> None:
        for turn in range(FLUSHES):
            flush_the_store(self._mars, turn)
            time.sleep(FLUSH_EVERY_S)  # the pace of the blows, not a way to wait

    def _let_go_on(self, name: str) -> None:
        """Its partitions are others' by now, and it does not know."""
        wait_until_missed(self._mars, name)
        self._mars.kill(name, signal.SIGCONT)

    def _cut_off(self) -> None:
        self._before = claims(self._mars.file["kafka"])
        self._lonely.zookeeper.cut()

    def _heal(self) -> None:
        wait_until_missed(self._mars, self._lonely.name)
        self.claimed_meanwhile = claims(self._mars.file["kafka"]) - self._before
        self._lonely.zookeeper.heal()


def told(mars: MarsCluster) -> set[str]:
    """The reasons of the last moves."""
    balance = mars.client.cluster().balance
    return {move.reason for move in balance.moves} if balance else set()


def test_a_reducer_that_is_asked_to_stop_is_emptied_first(mars: MarsCluster) -> None:
    def owned() -> int:
        owners = mars.client.cluster().assignment
        return sum(owner.member == "reducer-a" for owner in owners)

    def working() -> bool:
        """By its own word: asked to stop before it has a bucket it would just end."""
        members = [each for each in mars.client.cluster().members if each.id == "reducer-a"]
        return any(bucket.state == "owning" for each in members for bucket in each.buckets)

    with Load(mars, "leave", seconds=LONG_S).running() as load:
        with LinkedRole(mars, "reducer", "reducer-a") as guest:
            wait_for("it to work on buckets", working)
            guest.stop(15)
            wait_for("the leader to tell of it", lambda: "reducer-a is leaving" in told(mars))
        load.end()

    load.check()
    assert not owned()
