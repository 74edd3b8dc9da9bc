"""Every one of 40 million rows is counted once: `python -m bench.tuples [ROWS] [live|history]`.

The test of the tuple tracker's paper, larger, on a cluster as `mars up` starts it:

live      rows come as fast as two processes make them, while at a quarter, at half and at three
          quarters of them a mapper, the leader of the reducers and Valkey get SIGKILL
history   all rows lie in the topic before the task is registered, and Spark counts them

Then the counts of all windows must sum to the rows sent, and in each window no group may come twice
and the sum of the groups' hashes, each weighted by its count, must be that of the rows as they were
sent. Printed are the time, and the most memory that the processes held. Exit 1 if a row is missing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from bench.clusters import cluster
from bench.contestants import DELAY_S
from bench.environment import environment
from bench.errors import BenchError
from bench.gaps import BUCKETS, Victims
from bench.load import Load, LoadPlan, fill
from bench.mars_side import ALL_BY_MAPPERS, STREAM, query
from bench.processes import Watched, look
from bench.results import SHARED
from bench.session import GROUPS_PER_WINDOW, groups_for
from bench.throughput import check
from bench.topics import Topics
from mars.client.blocking import Client
from mars.core.errors import MarsError
from mars.core.plan import Format
from mars.core.settings import MIB, BulkSettings, Settings, to_toml
from mars.local.cluster import ClusterOptions
from mars.local.flows import declaration
from mars.local.supervisor import Supervisor

ROWS = 40_000_000
ROWS_PER_WINDOW = 3_000_000
WINDOW_S = 60

BLOWS = ((0.25, "a mapper killed"), (0.5, "the leader killed"), (0.75, "Valkey killed"))
"""After which share of the rows what happens; the names are those of `bench.gaps`."""

AGO_S = 600
"""The last row is as old: rows after it, which close its window, are not from the future."""

LOOK_S = 0.5
STALL_S = 180.0
"""Longest time in which no window closes."""

FLUSH_S = 30.0
NAME = "tuples"

Show = Callable[[str], None]


@dataclass(slots=True)
class Held:
    """The most memory that the processes held, bytes: each, and all but Kafka and ZooKeeper."""

    each: Counter[str] = field(default_factory=Counter)
    all: int = 0

    def look(self, supervisor: Supervisor) -> None:
        """One look."""
        children = [*supervisor.servers, *supervisor.roles]
        watched = [Watched(one.name, one.pid, server=False) for one in children if one.pid]
        now = {name: use.memory.now_bytes for name, use in look(watched).items()}
        self.each |= Counter(now)
        self.all = max(self.all, sum(now[name] for name in now if name not in SHARED))


@contextmanager
def watching(supervisor: Supervisor) -> Iterator[Held]:
    """Looks at the memory of the processes for as long as the context lasts."""
    held, stop = Held(), threading.Event()

    def go_on() -> None:
        while not stop.wait(LOOK_S):
            held.look(supervisor)

    thread = threading.Thread(target=go_on, name="memory")
    thread.start()
    try:
        yield held
    finally:
        stop.set()
        thread.join()


def register(client: Client) -> None:
    """The stream, and the query of the paper from the first row on."""
    client.put_stream(STREAM, declaration(NAME))
    client.create_task(NAME, query(WINDOW_S), start="earliest", options={"delay": f"{DELAY_S}s"})


def load_plan(rows: int) -> LoadPlan:
    """What is sent."""
    share = min(ROWS_PER_WINDOW, rows)
    last_ms = int((time.time() - AGO_S) * 1000)
    groups = groups_for(GROUPS_PER_WINDOW, share)
    return LoadPlan(
        NAME, Format.JSON, rows, share, groups, window_ms=WINDOW_S * 1000, end_ms=last_ms
    )


def live(supervisor: Supervisor, client: Client, folder: Path, rows: int, show: Show) -> Load:
    """Send the rows; register the task when the first ones are there, and strike as they come."""
    plan = load_plan(rows)
    victims = Victims(supervisor, client, folder)
    blows = list(BLOWS)
    registered = False

    def progress(sent: int) -> None:
        nonlocal registered
        if not registered:
            register(client)
            registered = True
        while blows and sent >= blows[0][0] * plan.rows:
            _, what = blows.pop(0)
            victims.kinds[what]()
            show(f"{sent:,} rows sent: {what}")

    return fill(supervisor.addresses.kafka, plan, progress)


def history(supervisor: Supervisor, client: Client, rows: int) -> Load:
    """Send the rows, then register the task."""
    load = fill(supervisor.addresses.kafka, load_plan(rows), lambda _sent: None)
    register(client)
    return load


def end_ms(load: Load) -> int:
    """Of the last window."""
    return load.windows[-1].start_ms + load.plan.window_ms


def close_windows(bootstrap: str, load: Load) -> None:
    """Send a row to each partition, late enough that the windows of all others close."""
    at_ms = end_ms(load) + 2 * DELAY_S * 1000
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(load.plan.partitions):
        row = b'{"timestamp":%d,"sip":"the end","type":"t"}' % at_ms
        producer.produce(NAME, row, partition=partition)
    if producer.flush(FLUSH_S):
        raise BenchError(f"Kafka did not take the last rows within {FLUSH_S:.0f} s.")


def wait_until_emitted(client: Client, rows: int) -> None:
    """Until all rows are in a result. Raises BenchError when that does not go on."""
    before, since = -1, time.monotonic()
    while True:
        ledger = client.ledger(NAME)
        if ledger.emitted >= rows:
            return
        if ledger.emitted > before:
            before, since = ledger.emitted, time.monotonic()
        if time.monotonic() - since > STALL_S:
            raise BenchError(f"{STALL_S:.0f} s without a window; the ledger says {ledger}.")
        time.sleep(LOOK_S)


def wrong(bootstrap: str, load: Load) -> list[str]:
    """What is not as it was sent, a sentence each."""
    found = check(load, Topics(bootstrap), f"mars.results.{NAME}").windows
    # The rows that close the last window may be in a result, too: their partitions are idle.
    found = {start: result for start, result in found.items() if start < end_ms(load)}
    said = [f"{one} has no rows" for one in found.keys() - {each.start_ms for each in load.windows}]
    for sent in load.windows:
        result = found.get(sent.start_ms)
        if result is None:
            said.append(f"window {sent.start_ms} is missing")
        elif (result.rows, result.checksum, result.doubled) != (sent.rows, sent.checksum, 0):
            said.append(f"window {sent.start_ms} had {sent}, and came as {result}")
    counted = sum(result.rows for result in found.values())
    if counted != load.rows:
        said.append(f"{counted:,} rows are counted, and {load.rows:,} were sent")
    return said


def run(rows: int, way: str, show: Show) -> bool:
    """Whether each row was counted once. Raises MarsError."""
    with tempfile.TemporaryDirectory(prefix="mars-tuples-") as name:
        folder = Path(name)
        config = folder / "tuples.toml"
        bulk = ALL_BY_MAPPERS if way == "live" else BulkSettings()
        config.write_text(to_toml(Settings(bulk=bulk)), "utf-8")
        with (
            cluster(
                ClusterOptions(data=folder / "data", buckets=BUCKETS, config=config)
            ) as supervisor,
            Client(supervisor.addresses.api) as client,
            watching(supervisor) as held,
        ):
            begun = time.monotonic()
            if way == "live":
                load = live(supervisor, client, folder / "data", rows, show)
            else:
                load = history(supervisor, client, rows)
            sent_s = time.monotonic() - begun
            show(f"{load.rows:,} rows sent in {sent_s:.0f} s")
            close_windows(supervisor.addresses.kafka, load)
            wait_until_emitted(client, load.rows)
            took_s = time.monotonic() - begun - (sent_s if way == "history" else 0)
            show(f"all windows closed: {took_s:.0f} s, {load.rows / took_s:,.0f} rows/s")
            said = wrong(supervisor.addresses.kafka, load)
            show(str(client.ledger(NAME)))
    for problem in said:
        show(f"WRONG: {problem}")
    for process, size in sorted(held.each.items()):
        show(f"{process}: {size // MIB} MiB")
    show(f"all but Kafka and ZooKeeper at once: {held.all // MIB} MiB")
    return not said


def main(arguments: Sequence[str]) -> int:
    """Exit 0 when each row was counted once, 1 when not, 2 for a wrong call."""
    rows = next((one for one in arguments if one.isdigit()), str(ROWS))
    way = next((one for one in arguments if one in {"live", "history"}), "live")
    if set(arguments) - {rows, way} or int(rows) == 0:
        sys.stderr.write("usage: python -m bench.tuples [ROWS] [live|history]\n")
        return 2
    where = environment()
    try:
        right = run(int(rows), way, print)
    except MarsError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    print(
        f"{where.cores} cores, load average {where.load_average} before and "
        f"{os.getloadavg()[0]:.1f} after; {where.commit}."
    )
    print("Each row was counted once." if right else "Not each row was counted once.")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
