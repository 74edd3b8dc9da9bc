"""A cluster for random runs, with processes whose links can be broken.

mars up       mapper-1, reducer-1, API, Kafka, ZooKeeper, Valkey
behind links  mapper-a, mapper-b, reducer-a, reducer-b
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mars.core.errors import MarsError
from tests.faults.conftest import FOUR_BUCKETS, NO_BULK, settings
from tests.support.cluster import MarsCluster, wait_for
from tests.support.linked import LinkedRole
from tests.support.store import Store

MAPPERS = ("mapper-a", "mapper-b")
REDUCERS = ("reducer-a", "reducer-b")
SESSIONS = """
[zookeeper]
session_timeout_s = 6.0
"""
"""As short as those of consumer groups, 10 s by default: who stands still is missed sooner, and a
run holds more."""

HOT_BUCKET = ("--buckets", "1")
SOON_HOT = """
[balance]
use_low = 0.01
use_target = 0.03
use_high = 0.04
cooldown_s = 3.0
"""
"""What little there is to do here counts: the leader finds assistants for the one bucket."""

CHILDREN = ("mapper-1", "reducer-1", "api")
"""Of `mars up`, which starts again what dies."""


@dataclass(slots=True)
class Arena:
    """The cluster, and the processes whose links can be broken.

    A blow may last longer than was planned, while the API is away, say. So one may strike a process
    that another has in its hands; who ends and starts it waits for the other to have done so.
    """

    mars: MarsCluster
    roles: dict[str, LinkedRole]
    _ending: dict[str, threading.Lock] = field(
        default_factory=lambda: {name: threading.Lock() for name in (*MAPPERS, *REDUCERS)}
    )

    def start_again(self, name: str) -> None:
        """kill -9, whoever it is; it is started again."""
        if name in self.roles:
            with self._ending[name]:
                self.roles[name].start_again()
        else:
            self.mars.kill(name)

    @contextmanager
    def still(self, name: str) -> Iterator[None]:
        """SIGSTOP, then SIGCONT."""
        if name not in self.roles:
            with self.mars.stopped(name):
                yield
            return
        self.roles[name].pause()
        try:
            yield
        finally:
            self.roles[name].resume()

    @contextmanager
    def absent(self, name: str) -> Iterator[None]:
        """It leaves in order, and comes back."""
        with self._ending[name]:
            self.roles[name].stop(10)
            try:
                yield
            finally:
                self.roles[name].start()

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

    def segments_merged(self) -> int:
        """By assistants, since each process was started; 0 if the API cannot tell."""
        try:
            members = self.mars.client.cluster().members
        except MarsError:
            return 0
        return int(sum(one.load.get("assisted_segments_total", 0) for one in members))

    def flush(self) -> None:
        """FLUSHALL."""
        with Store(self.mars) as store:
            store.flush()

    def old_store(self) -> None:
        """Valkey comes back with what it holds now, later."""
        with Store(self.mars) as store:
            store.save()


@contextmanager
def arena(data: Path, *, hot: bool = False) -> Iterator[Arena]:
    """Everything that is needed, ready; `hot`: with one bucket, which has assistants."""
    config = data / "faults.toml"
    config.write_text(settings() + SESSIONS + SOON_HOT * hot, "utf-8")
    buckets = HOT_BUCKET if hot else FOUR_BUCKETS
    options = ("--mappers", "1", "--reducers", "1", *buckets, *NO_BULK)
    mars = MarsCluster(data, "--config", str(config), *options)
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
