"""kill -9 a reducer at each step of its work, aimed by what it asks of Kafka and of the store.

It is the only one, so what it has left undone is for the one that is started after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import pytest

from mars.adapters.redis.scripts import Script
from mars.core.settings import Settings
from tests.support.cluster import MarsCluster, wait_for
from tests.support.kafka_proxy import END_TXN, INIT_PRODUCER_ID, PRODUCE, KafkaLink, Request
from tests.support.linked import LinkedRole
from tests.support.load import LONG_S, Load
from tests.support.progress import open_transactions
from tests.support.redis_proxy import Fate

pytestmark = pytest.mark.faults

PROGRESS = b"mars.progress"
RESULTS = b"mars.results."

ROWS_AFTER = 500
"""So many are read by the one that is started after the killed one, and some are emitted."""


TRANSACTION_MS = 600_000
"""How long Kafka leaves a transaction open: longer than any test waits."""


class Arrival(Enum):
    """What becomes of the request on which the reducer is killed."""

    NEVER = "it is lost with the reducer"
    AT_ONCE = "the broker does it before another reducer is started"
    LATE = "it arrives in the middle of a transaction of the next reducer"


@dataclass(frozen=True, slots=True)
class Asked:
    """A step that begins with a request to Kafka; `claiming`: the first one of a new reducer."""

    api: int
    arrival: Arrival
    topic: bytes = b""
    claiming: bool = False

    def matches(self, request: Request) -> bool:
        """Whether a reducer asks this for one of its buckets."""
        mine = request.api == self.api and "-bucket-" in request.client
        return mine and (not self.topic or self.topic == written_to(request))


def written_to(request: Request) -> bytes:
    """Results are written first, by a request of their own; progress may name their topic."""
    return next((topic for topic in (PROGRESS, RESULTS) if topic in request.frame), b"")


STEPS = {
    "R2-claim-has-fenced": Asked(INIT_PRODUCER_ID, Arrival.AT_ONCE, claiming=True),
    "R2-claim-fences-its-successor": Asked(INIT_PRODUCER_ID, Arrival.LATE, claiming=True),
    "R3-claim-is-open": Asked(END_TXN, Arrival.NEVER, claiming=True),
    "R3-claim-is-committed": Asked(END_TXN, Arrival.AT_ONCE, claiming=True),
    "R7-results-are-written": Asked(PRODUCE, Arrival.NEVER, RESULTS),
    "R7-results-stand-without-progress": Asked(PRODUCE, Arrival.NEVER, PROGRESS),
    "R7-commit-is-lost": Asked(END_TXN, Arrival.NEVER),
    "R7-commit-is-done": Asked(END_TXN, Arrival.AT_ONCE),
    "R8-next-producer": Asked(INIT_PRODUCER_ID, Arrival.NEVER),
}
"""Numbered as in `mars/protocol/reducer/owner.py`."""

COMMANDS = {
    "R5-log-is-read": (b"XRANGE", True),
    "R9-log-is-trimmed": (Script.load("trim").digest.encode(), False),
}
"""Steps that end with an answer of the store, which the reducer never gets."""


def patient(settings: Settings) -> Settings:
    """Kafka itself ends no transaction in time: whoever claims the bucket has to."""
    reducer = replace(settings.reducer, transaction_timeout_ms=TRANSACTION_MS)
    return replace(settings, reducer=reducer)


def arrived(link: KafkaLink) -> bool:
    """Whether the broker has got everything that was held."""
    return all(one.forwarded.is_set() for one in link.held)


@pytest.fixture(scope="module")
def reducer(servers_only: MarsCluster) -> Iterator[LinkedRole]:
    with (
        LinkedRole(servers_only, "mapper", "mapper-a"),
        LinkedRole(servers_only, "reducer", "reducer-a", change=patient) as found,
    ):
        yield found


@pytest.fixture
def load(servers_only: MarsCluster, request: pytest.FixtureRequest) -> Iterator[Load]:
    """Of windows of a second, so that there is always something to commit."""
    name = request.node.callspec.params["step"].replace("-", "_").lower()
    yield Load(servers_only, f"f4_{name}", seconds=LONG_S, rows_per_s=500, window_s=1)
    servers_only.client.delete_task(f"f4_{name}")  # each start would read its log again


@pytest.mark.parametrize("step", STEPS)
def test_4_a_reducer_is_killed_on_a_request(reducer: LinkedRole, load: Load, step: str) -> None:
    asked, link = STEPS[step], reducer.kafka
    link.held.clear()
    with load.running():
        load.goes_on(1)
        if asked.claiming:
            reducer.kill()
        link.hold(asked.matches)
        if asked.claiming:
            reducer.start()
        wait_for("the request", lambda: link.held)
        reducer.kill()
        if asked.arrival is Arrival.NEVER:
            assert asked.api != END_TXN or open_transactions(load.mars.file["kafka"])
            link.drop_all()
        elif asked.arrival is Arrival.AT_ONCE:
            link.release_all()
            wait_for("it to arrive", lambda: arrived(link))
        else:
            link.hold(None)
        reducer.start()
        if asked.arrival is Arrival.LATE:
            wait_for("it to arrive", lambda: arrived(link))
        load.goes_on(ROWS_AFTER)
        load.end()

    load.check()


@pytest.mark.parametrize("step", COMMANDS)
def test_4_a_reducer_is_killed_before_an_answer(reducer: LinkedRole, load: Load, step: str) -> None:
    marker, claiming = COMMANDS[step]
    killed: list[str] = []

    def kill() -> Fate:
        reducer.redis.unwatch()
        reducer.kill()
        killed.append(step)
        return Fate.LOST

    with load.running():
        load.goes_on(1)
        if claiming:
            reducer.kill()
        reducer.redis.watch(marker, kill)
        if claiming:
            reducer.start()
        wait_for("the answer", lambda: killed)
        reducer.start()
        load.goes_on(ROWS_AFTER)
        load.end()

    load.check()
