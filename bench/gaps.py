"""How long results stay away when something fails: `python -m bench.gaps [--help]`.

Rows come at a steady rate, windows close each second, each bucket writes a partition of its own. A
process gets SIGKILL and is started again as `mars up` does; a reducer is asked to stop, which hands
its buckets over; Valkey is emptied; ZooKeeper comes back without its data. The gap of a bucket is
the longest time without a new result of it around that; undisturbed, that is the window's length.
Printed are, for each kind of blow, the most and the least disturbed bucket: median and worst of all
times. Words choose the kinds whose names contain one. `--open` adds a task with so many groups in
a window of a day: the state that goes with the buckets.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka import OFFSET_END, Producer, TopicPartition

from bench.clusters import cluster
from bench.environment import environment
from bench.errors import BenchError
from bench.pacing import Pace, paced
from bench.topics import Topics, reader
from mars.client.blocking import Client
from mars.core.errors import MarsError
from mars.local.cluster import ClusterOptions
from mars.local.flows import declaration
from mars.local.supervisor import Supervisor

TIMES = 10
BUCKETS = 4
PARTITIONS = 4
RATE = 1_000
GROUPS = 200
WINDOW_S = 1
DELAY_S = 1

QUIET_BEFORE_S = 5.0
"""Undisturbed time before each kill."""

WATCHED_S = 20.0
"""Least time after a kill: longer than ZooKeeper's session of 10 s and the group's of 6 s."""

RECOVERY_S = 120.0
"""A bucket that has no result for so long after a kill will have none."""

STEADY_ARRIVALS, STEADY_S = 3, 6.0
"""A bucket with so many results in so many seconds runs again."""

FLUSH_S = 10.0
"""For the store to answer; it takes milliseconds."""

POLL_S = 0.02
LOOK_S = 0.1
NAME = "gaps"

OPEN_NAME = "open"
OPEN_MESSAGE_ROWS = 1_000
OPEN_S = 120.0
"""For all rows of the large window to be counted."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Seconds without a result around one kill: the most and the least disturbed bucket."""

    most_s: float
    least_s: float


class Listener:
    """Notes when each bucket has given a result."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = reader(bootstrap, wait_max_ms=20)
        self._consumer.assign([TopicPartition(topic, one, OFFSET_END) for one in range(BUCKETS)])
        self._arrivals: dict[int, list[float]] = {one: [] for one in range(BUCKETS)}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="listener")

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _listen(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(10_000, POLL_S)
            now = time.monotonic()
            seen = {each.partition() for each in messages if each.error() is None}
            for partition in seen:
                if partition is not None:
                    self._arrivals[partition].append(now)

    def steady(self, since_s: float) -> bool:
        """Whether every bucket gives results again, looking at the last seconds only."""
        begin = max(since_s, time.monotonic() - STEADY_S)
        counts = [sum(at > begin for at in times) for times in self._arrivals.values()]
        return min(counts) >= STEADY_ARRIVALS

    def gap(self, since_s: float) -> Gap:
        """The longest silences from `since_s` on."""
        silences = [
            max(after - before for before, after in pairwise(at for at in times if at > since_s))
            for times in self._arrivals.values()
        ]
        return Gap(max(silences), min(silences))


@dataclass(slots=True)
class Victims:
    """What fails, by the name in the table."""

    supervisor: Supervisor
    client: Client
    data: Path
    words: Sequence[str] = ()
    kinds: dict[str, Callable[[], None]] = field(init=False)

    def __post_init__(self) -> None:
        every: dict[str, Callable[[], None]] = {
            "a reducer asked to stop": lambda: self._end(
                self._reducer(leading=False), signal.SIGTERM
            ),
            "a mapper killed": lambda: self._end("mapper-1"),
            "a reducer killed": lambda: self._end(self._reducer(leading=False)),
            "the leader killed": lambda: self._end(self._reducer(leading=True)),
            "Valkey emptied (FLUSHALL)": self._flush,
            "Valkey killed": lambda: self._end("redis"),
            "ZooKeeper killed": lambda: self._end("zookeeper"),
            "ZooKeeper wiped": self._wipe,
        }
        chosen = [one for one in every if any(word in one.lower() for word in self.words or [""])]
        self.kinds = {one: every[one] for one in chosen}

    def _flush(self) -> None:
        flush_all(self.supervisor.addresses.redis)

    def _wipe(self) -> None:
        """Its data goes before it does, so that it is started again on nothing."""
        shutil.rmtree(self.data / "zookeeper" / "snapshots")
        self._end("zookeeper")

    def _reducer(self, *, leading: bool) -> str:
        leader = self.client.cluster().leader
        if leader is None or leader.member is None:
            raise BenchError("There is no leader although all is quiet; look at the logs.")
        others = {"reducer-1", "reducer-2"} - {leader.member}
        return leader.member if leading else min(others)

    def _end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; `mars up` starts the process again."""
        children = [*self.supervisor.servers, *self.supervisor.roles]
        pid = next(child.pid for child in children if child.name == name)
        if pid is None:
            raise BenchError(f"{name} does not run.")
        os.kill(pid, how)


@contextmanager
def load(supervisor: Supervisor, client: Client) -> Iterator[None]:
    """A task, and rows for it at a steady rate."""
    kafka = supervisor.addresses.kafka
    Topics(kafka).make(NAME, PARTITIONS)
    client.put_stream(NAME, declaration(NAME))
    client.create_task(
        NAME,
        f"SELECT sip, timestamp, count(*) FROM {NAME} GROUP BY sip, timestamp WINDOWING "
        f"{WINDOW_S} s",
        options={"delay": f"{DELAY_S}s"},
    )
    with paced(Pace(kafka, NAME, PARTITIONS, RATE, GROUPS, WINDOW_S * 1_000)):
        yield


def open_window(supervisor: Supervisor, client: Client, groups: int) -> None:
    """A second task, whose one window has so many groups and stays open. Raises BenchError."""
    kafka = supervisor.addresses.kafka
    Topics(kafka).make(OPEN_NAME, PARTITIONS)
    client.put_stream(
        OPEN_NAME,
        {
            "topic": OPEN_NAME,
            "format": "ndjson",
            "fields": {"timestamp": "timestamp_ms", "key": "int64"},
            "event_time": "timestamp",
        },
    )
    client.create_task(
        OPEN_NAME,
        f"SELECT key, timestamp, count(*) FROM {OPEN_NAME} GROUP BY key, timestamp "
        "WINDOWING 86400 s",
        options={"idle_after": "1d"},
    )
    producer, now_ms = Producer({"bootstrap.servers": kafka}), time.time_ns() // 1_000_000
    for number, first in enumerate(range(0, groups, OPEN_MESSAGE_ROWS)):
        keys = range(first, min(first + OPEN_MESSAGE_ROWS, groups))
        lines = "\n".join(f'{{"timestamp":{now_ms},"key":{key}}}' for key in keys)
        producer.produce(OPEN_NAME, lines, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush()
    _await(
        lambda: client.ledger(OPEN_NAME).open == groups,
        f"Not all of {groups:,} groups are open after {OPEN_S:.0f} s.",
        OPEN_S,
    )


def flush_all(url: str) -> None:
    """Empty the store, in its own words: no client library is needed for one."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), FLUSH_S) as store:
        store.sendall(b"FLUSHALL\r\n")
        answer = store.recv(100)
    if answer != b"+OK\r\n":
        raise BenchError(f"The store did not flush: {answer!r}.")


def measure(
    times: int, words: Sequence[str], show: Callable[[str], None], groups: int = 0
) -> dict[str, list[Gap]]:
    """All gaps, by kind of blow, with so many groups open. Raises BenchError."""
    found: dict[str, list[Gap]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="mars-gaps-") as folder,
        cluster(ClusterOptions(data=Path(folder), buckets=BUCKETS)) as supervisor,
        Client(supervisor.addresses.api) as client,
        load(supervisor, client),
        Listener(supervisor.addresses.kafka, f"mars.results.{NAME}") as listener,
    ):
        if groups:
            open_window(supervisor, client, groups)
        victims = Victims(supervisor, client, Path(folder), words)
        for turn in range(times):
            for kind in victims.kinds:
                found.setdefault(kind, []).append(_one(victims, kind, listener))
                show(f"{turn + 1} of {times}: {kind}: {found[kind][-1].most_s:.1f} s")
    return found


def _one(victims: Victims, kind: str, listener: Listener) -> Gap:
    begun = time.monotonic()
    away = f"Some bucket had no results for {RECOVERY_S:.0f} s "
    _await(
        lambda: listener.steady(begun) and time.monotonic() - begun > QUIET_BEFORE_S,
        f"{away}before: {kind}.",
    )
    killed = time.monotonic()
    victims.kinds[kind]()
    _await(
        lambda: time.monotonic() - killed > WATCHED_S and listener.steady(killed),
        f"{away}after: {kind}.",
    )
    return listener.gap(killed - 2 * WINDOW_S)


def _await(condition: Callable[[], bool], otherwise: str, seconds: float = RECOVERY_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(otherwise)
        time.sleep(LOOK_S)


def table(found: dict[str, list[Gap]]) -> str:
    """Markdown, in seconds."""
    lines = [
        "| blow | most disturbed bucket: median | worst | least disturbed: median | worst |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, gaps in found.items():
        most, least = [gap.most_s for gap in gaps], [gap.least_s for gap in gaps]
        figures = (statistics.median(most), max(most), statistics.median(least), max(least))
        lines.append(f"| {kind} | " + " | ".join(f"{figure:.1f} s" for figure in figures) + " |")
    return "\n".join(lines)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main(arguments: Sequence[str]) -> int:
    """Exit 0 when measured, 1 when not, 2 for a wrong call."""
    parser = argparse.ArgumentParser(prog="python -m bench.gaps", description=__doc__)
    parser.add_argument("times", nargs="?", type=_count, default=TIMES, metavar="TIMES")
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--open", type=_count, default=0, metavar="GROUPS", dest="groups")
    chosen = parser.parse_args(arguments)
    where = environment()
    try:
        found = measure(chosen.times, chosen.words, print, chosen.groups)
    except MarsError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    print(table(found))
    print(
        f"\n{chosen.times} times each, {RATE} rows/s, windows of {WINDOW_S} s, "
        f"{chosen.groups:,} groups in an open window; {where.cores} cores, "
        f"load average {where.load_average} before and "
        f"{os.getloadavg()[0]:.1f} after; {where.commit}."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
