"""What happens to servers: they are away, lose what they held, or hold what was long ago."""

from __future__ import annotations

import random
from collections.abc import Callable

from mars.core.types import Bucket, TaskName, Topic
from tests.simulation.checks import Checks
from tests.simulation.cluster import Servers
from tests.simulation.failover import Standby
from tests.simulation.mishaps import SERVICES, Mishaps
from tests.simulation.rows import TOPIC
from tests.simulation.strands import Scheduler
from tests.simulation.weather import Weather

AGAIN_SHARE = 0.5
"""How often the marker after a lost one is lost, too, in a run that loses those of aborts."""

Lost = Callable[[object], bool]
"""Whether a partition gets no marker."""


class Losses:
    """Strikes servers."""

    def __init__(
        self,
        chance: random.Random,
        scheduler: Scheduler,
        servers: Servers,
        mishaps: Mishaps,
        checks: Checks,
        note: Callable[[str], None],
    ) -> None:
        self._chance = chance
        self._apart = mishaps.apart
        self._scheduler = scheduler
        self._servers = servers
        self._mishaps = mishaps
        self._checks = checks
        self._note = note
        self._standby = Standby(servers.store, servers.watch)
        self._down: set[str] = set()
        self._lost_marker = False
        self.vanished: list[tuple[TaskName, Bucket, int]] = []

    # ----------------------------------------------------------------------------- being away

    def outage(self) -> None:
        """A server is away for a moment."""
        service = self._chance.choice(SERVICES)
        self._note(f"DOWN {service}")
        self._down.add(service)
        self._scheduler.after(self._chance.randint(100, 2_000), lambda: self._up(service))

    def _up(self, service: str) -> None:
        self._note(f"UP {service}")
        self._down.discard(service)

    def down(self, service: str) -> bool:
        """Whether it is away."""
        return service in self._down

    def heal(self) -> None:
        """All servers are there."""
        self._down.clear()

    # ------------------------------------------------------------------------------- the store

    def lose_store(self) -> None:
        """It is empty, and perhaps was started again."""
        store = self._servers.store
        restart = self._chance.random() < 0.5
        self._note("STORE RESTARTS" if restart else "FLUSHALL")
        store.tasks.clear()
        store.sealed = None
        store.starts += restart

    def fail_over(self) -> None:
        """To a stale replica; and from there, the next time, perhaps to the old primary."""
        self._standby.take_over()
        self._note(f"STORE FAILS OVER to {self._servers.store.run_id}")

    def follow(self) -> None:
        """The standby takes over all that the store holds now."""
        self._standby.follow()

    def vanish(self, *, noted: bool) -> None:
        """An entry is gone from a log: one that no reducer has counted, or any that is `noted`."""
        tasks = self._servers.store.tasks
        entries = [
            (name, bucket, seq)
            for name, task in sorted(tasks.items())
            for bucket, log in sorted(task.logs.items())
            for seq in log
        ]
        if not noted or self._chance.random() < 0.5:
            read = {log: self._read_up_to(*log) for log in {one[:2] for one in entries}}
            entries = [one for one in entries if one[2] > read[one[:2]]]
        if entries:
            name, bucket, seq = self._chance.choice(entries)
            del tasks[name].logs[bucket][seq]
            if noted:
                tasks[name].vanished.setdefault(bucket, set()).add(seq)
            self.vanished.append((name, bucket, seq))
            self._note(f"VANISHES {name} #{seq} of bucket {bucket}")

    def _read_up_to(self, name: TaskName, bucket: Bucket) -> int:
        """By its owner, or by one before it that has committed what it read."""
        reducers = [one.parts["loop"]._machine._buckets for one in self._mishaps.living("reducer")]
        parts = [own[bucket].term.parts.get(name) for own in reducers if bucket in own]
        read = [part.position.last_seq for part in parts if part is not None]
        epoch = self._servers.store.tasks[name].epoch
        upto: int = max([*read, self._checks.counted_up_to(name, bucket, epoch)])
        return upto

    # ------------------------------------------------------------------------------- ZooKeeper

    def wipe_zookeeper(self) -> None:
        """It comes back without anything that was in it."""
        self._note("ZOOKEEPER WIPED")
        self._servers.ensemble.wipe()
        self._servers.registry.wipe()
        self._mishaps.reconnect_all_soon()

    # ----------------------------------------------------------------------------------- Kafka

    def retain(self) -> None:
        """Rows at the front of a partition are deleted, whoever may need them."""
        partitions = self._servers.broker.topics[Topic(TOPIC)].partitions
        number = self._apart.randrange(len(partitions))
        log = partitions[number]
        log.truncate(self._apart.randint(log.start, log.stable_end))
        self._note(f"RETENTION partition {number} begins at {log.start}")

    def lost_commits(self, weather: Weather) -> Lost | None:
        """Which partitions get no marker of the commit that is about to end; None: all get one."""
        if not self._loses(self._chance, weather.markers_lost, weather):
            return None
        self._note("MARKERS LOST")
        return lambda _partition: self._chance.random() < 0.5

    def lost_aborts(self, weather: Weather) -> Lost | None:
        """The same of an abort."""
        if not weather.aborts_lost or not self._loses(self._apart, weather.aborts_lost, weather):
            return None
        self._note("MARKERS OF AN ABORT LOST")
        return lambda _partition: self._apart.random() < 0.5

    def _loses(self, chance: random.Random, share: float, weather: Weather) -> bool:
        again = self._lost_marker and self._apart.random() < AGAIN_SHARE
        lost = again or (share > 0 and chance.random() < share)
        self._lost_marker = lost and weather.aborts_lost > 0
        return lost
