"""Links are cut, made deaf and held back between one process and one server; results stay exact.

The processes of a test run behind proxies of their own, see `tests/support/linked.py`. The numbers
are those of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from mars.adapters.redis.scripts import Script
from mars.core.settings import Settings
from tests.faults.nemesis import CLAIMS_MAX, members, wait_until_missed
from tests.support.cluster import MarsCluster, wait_for
from tests.support.kafka_proxy import END_TXN, Request
from tests.support.linked import Change, LinkedRole
from tests.support.load import LONG_S, Load
from tests.support.progress import claims, most_claimed, open_transactions
from tests.support.redis_proxy import Fate

pytestmark = pytest.mark.faults

ANSWER_MS = 3_000
"""After which a request without an answer fails: sooner than the usual 10 s, to wait less."""

APPEND = Script.load("append").digest.encode()
"""What a command that offers a batch holds."""

LOST = 6
LOSE_EVERY = 3
KILLS = 2
KILL_EVERY = 7
"""Of the answers that come to mappers, some in a second."""

LATE_MIN, LATE_MAX = 4, 12
"""Commits that come too late."""

TRANSACTION_MS = 6_000
"""How long Kafka leaves a transaction open: shorter than the usual minute, to wait less."""

ALONE = {"redis": {"mapper-a", "reducer-a"}, "kafka": {"reducer-a"}}
"""Who loses which server. A mapper that loses Kafka is left out of the group by Kafka itself."""


def impatient(settings: Settings) -> Settings:
    """Requests to Kafka fail soon."""
    extra = {**settings.kafka.extra, "socket.timeout.ms": ANSWER_MS}
    return replace(settings, kafka=replace(settings.kafka, extra=extra))


def hasty(settings: Settings) -> Settings:
    """Impatient, and its transactions are short."""
    reducer = replace(settings.reducer, transaction_timeout_ms=TRANSACTION_MS)
    return replace(impatient(settings), reducer=reducer)


@contextmanager
def roles(
    mars: MarsCluster, *names: str, change: Change = impatient
) -> Iterator[dict[str, LinkedRole]]:
    """Processes behind links; `reducer-x` is a reducer."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(LinkedRole(mars, name.partition("-")[0], name, change=change))
            for name in names
        }


class Striker:
    """Decides about the answers of Redis to the batches that mappers have offered."""

    def __init__(self) -> None:
        self.lost = 0
        self.kills: list[Fate] = []
        self._answers = 0

    def watch(self, mapper: LinkedRole) -> None:
        """Decide about those to this mapper too."""
        mapper.redis.watch(APPEND, lambda: self._answered(mapper))

    def _answered(self, mapper: LinkedRole) -> Fate:
        """Some answers are lost; some kill the mapper, which has got every other one of them."""
        self._answers += 1
        if self._answers % KILL_EVERY == 0 and len(self.kills) < KILLS:
            mapper.kill()
            self.kills.append(Fate.LOST if len(self.kills) % 2 else Fate.PASSED)
            return self.kills[-1]
        if self._answers % LOSE_EVERY == 0 and self.lost < LOST:
            self.lost += 1
            return Fate.LOST
        return Fate.PASSED

    def done(self) -> bool:
        """Whether it was enough."""
        return len(self.kills) == KILLS and self.lost == LOST


def test_2_mappers_that_never_hear_what_became_of_a_batch(servers_only: MarsCluster) -> None:
    with roles(servers_only, "mapper-a", "mapper-b", "reducer-a") as running:
        mappers = [running["mapper-a"], running["mapper-b"]]
        striker = Striker()
        for mapper in mappers:
            striker.watch(mapper)

        with Load(servers_only, "f2", seconds=LONG_S).running() as load:
            load.every(0.1, lambda _: _start_the_dead(mappers), until=striker.done)
        _start_the_dead(mappers)

        load.check()
        assert len(striker.kills) == KILLS
        assert striker.lost == LOST


def _start_the_dead(processes: list[LinkedRole]) -> None:
    for process in processes:
        if not process.running:
            process.start()


def test_3_a_batch_that_arrives_when_another_mapper_has_read_its_rows(
    servers_only: MarsCluster,
) -> None:
    """Its mapper stands still meanwhile: nobody but the store can refuse it.

    If it does not, the reducer sees rows that it has read, and has the store filled anew.
    """
    with roles(servers_only, "mapper-a", "mapper-b", "reducer-a") as running:
        mappers = [running["mapper-a"], running["mapper-b"]]
        wait_for("both mappers", lambda: members(servers_only) >= {"mapper-a", "mapper-b"})
        with Load(servers_only, "f3_late", seconds=LONG_S).running() as load:
            load.goes_on(1)
            before = servers_only.client.cluster().store_epoch
            zombie = _one_held(mappers, load.name)
            zombie.pause()
            wait_until_missed(servers_only, zombie.name)
            load.goes_on(1)
            zombie.redis.release()
            zombie.resume()
            wait_for("it to be back", lambda: zombie.name in members(servers_only))
            load.goes_on(1)
            load.end()

        load.check()
        assert servers_only.client.cluster().store_epoch == before


def _one_held(mappers: list[LinkedRole], task: str) -> LinkedRole:
    """A mapper whose next batch of the task waits on its way to the store; not all have a part."""
    for mapper in mappers:
        mapper.redis.hold(APPEND, f"{{{task}}}".encode())
    found = wait_for("a batch on its way", lambda: [one for one in mappers if one.redis.held])[0]
    for mapper in mappers:
        if mapper is not found:
            mapper.redis.release()
    return found


def test_5_a_reducer_that_stands_still_in_a_transaction_until_kafka_ends_it(
    servers_only: MarsCluster,
) -> None:
    """It is the only one, so nobody else ends it; its commit arrives when all is over."""
    kafka = servers_only.file["kafka"]
    with roles(servers_only, "mapper-a", "reducer-a", change=hasty) as running:
        reducer = running["reducer-a"]
        with Load(servers_only, "f5", seconds=LONG_S).running() as load:
            wait_for("results", lambda: servers_only.client.ledger("f5").emitted > 0)
            reducer.kafka.hold(_commits)
            wait_for("a commit on its way", lambda: bool(reducer.kafka.held))
            reducer.pause()
            assert open_transactions(kafka)
            wait_for("Kafka to end it", lambda: not open_transactions(kafka))
            reducer.kafka.release_all()
            reducer.resume()
            load.end()

        load.check()


def test_6_a_reducer_that_loses_zookeeper_only(servers_only: MarsCluster) -> None:
    with roles(servers_only, "mapper-a", "reducer-a", "reducer-b") as running:
        lonely = running["reducer-a"]
        client = servers_only.client
        wait_for("both reducers", lambda: members(servers_only) >= {"reducer-a", "reducer-b"})
        before = claims(servers_only.file["kafka"])

        with Load(servers_only, "f6", seconds=25).running() as load:
            wait_for("rows", lambda: client.ledger("f6").read > 0)
            lonely.zookeeper.cut()
            wait_until_missed(servers_only, "reducer-a")
            assert lonely.running
            lonely.zookeeper.heal()
            wait_for("it to be back", lambda: "reducer-a" in members(servers_only))

        load.check()
        assert most_claimed(claims(servers_only.file["kafka"]) - before) <= CLAIMS_MAX


@pytest.mark.parametrize("name", ["mapper-a", "reducer-a"])
def test_who_alone_has_lost_the_store_is_named(servers_only: MarsCluster, name: str) -> None:
    client, task = servers_only.client, f"lost_{name.partition('-')[0]}"
    with roles(servers_only, "mapper-a", "reducer-a") as running:
        with Load(servers_only, task, seconds=LONG_S).running() as load:
            wait_for("results", lambda: client.ledger(task).emitted > 0)
            running[name].redis.cut()
            wait_for("its name", lambda: f"{name}, which" in client.why(task).summary)
            assert "gets no answer from redis" in client.why(task).summary
            running[name].redis.heal()
            load.end()

        load.check()


@pytest.mark.parametrize(("server", "names"), ALONE.items())
def test_who_alone_has_lost_a_server_leaves_its_part_to_others(
    servers_only: MarsCluster, server: str, names: set[str]
) -> None:
    """All results come while links are cut; healed, the same processes take part again."""
    client, task = servers_only.client, f"left_{server}"
    everybody = ("mapper-a", "mapper-b", "reducer-a", "reducer-b")
    with roles(servers_only, *everybody) as running:
        wait_for("all members", lambda: members(servers_only).issuperset(everybody))
        lonely = [running[name] for name in names]
        pids = [role.pid for role in lonely]
        links = [role.redis if server == "redis" else role.kafka for role in lonely]
        with Load(servers_only, task, seconds=LONG_S).running() as load:
            wait_for("results", lambda: client.ledger(task).emitted > 0)
            for link in links:
                link.cut()
            wait_for("them to leave", lambda: not names & members(servers_only))
            load.end()

        load.check()
        assert not names & members(servers_only)
        for link in links:
            link.heal()
        wait_for("them to be back", lambda: names <= members(servers_only))
        assert [role.pid for role in lonely] == pids


def test_7_the_answer_to_a_commit_is_lost(servers_only: MarsCluster) -> None:
    with roles(servers_only, "mapper-a", "reducer-a") as running:
        link = running["reducer-a"].kafka
        link.lose_answers(lambda request: _commits(request) and len(link.lost) < LOST)

        with Load(servers_only, "f7_lost", seconds=LONG_S).running() as load:
            wait_for("commits without an answer", lambda: len(link.lost) == LOST)
            load.end()

        load.check()


def test_7_a_commit_that_arrives_in_the_middle_of_the_next_transaction(
    servers_only: MarsCluster,
) -> None:
    """Some of them kill the reducer: had they ended that transaction, half of it would stay."""
    with roles(servers_only, "mapper-a", "reducer-a") as running:
        reducer = running["reducer-a"]
        late = _Late(reducer)
        with Load(servers_only, "f7_held", seconds=LONG_S).running() as load:
            wait_for("rows", lambda: servers_only.client.ledger("f7_held").read > 0)
            reducer.kafka.hold(late.is_to_be_held, late.arrived)
            load.every(0.1, lambda _: _start_the_dead([reducer]), until=late.done)
        reducer.kafka.release_all()
        _start_the_dead([reducer])

        load.check()
        assert late.arrivals >= LATE_MIN
        assert late.kills == KILLS


class _Late:
    """Counts commits that came too late; every third one kills."""

    def __init__(self, reducer: LinkedRole) -> None:
        self._reducer = reducer
        self.arrivals = 0
        self.kills = 0

    def done(self) -> bool:
        """Whether it was enough."""
        return self.arrivals >= LATE_MIN and self.kills == KILLS

    def is_to_be_held(self, request: Request) -> bool:
        """All commits, until enough were late and those that were sent again come through."""
        held = self._reducer.kafka.held
        waiting = any(
            one.request.client == request.client and not one.release.is_set() for one in held
        )
        return _commits(request) and not waiting and len(held) < LATE_MAX

    def arrived(self) -> None:
        """One came too late."""
        self.arrivals += 1
        if self.arrivals % 3 == 1 and self.kills < KILLS:
            self._reducer.kill()
            self.kills += 1  # not before: who waits for this starts it again


def _commits(request: Request) -> bool:
    return request.api == END_TXN
