"""A reducer gets SIGKILL while rows are counted: one real run, as figures.

    rows ──▶ Mars as `mars up` starts it ──▶ results, read as they are committed
                     ▲
               kill -9 reducer-1, once, in the middle of a window

`python -m tests.support.pictures` records it, and draws it (tests/support/killed_drawing.py).
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, Message, TopicPartition

from mars.adapters.kafka.read.rows import headers_of
from tests.support.cluster import MarsCluster, wait_for

ROOT = Path(__file__).parents[2]

TOPIC, TASK = "flows", "by_sip"
PARTITIONS = 4
RATE = 2_000
BURST_S = 0.05
KEYS = 40
WINDOW_S = 2
DELAY_S = 0.5
SQL = f"SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING {WINDOW_S} s"

VICTIM = "reducer-1"
BEFORE_S = 12.0
INTO_WINDOW_S = 1.2
"""How far the open window is when the reducer is killed."""
AFTER_S = 14.0
JUST_BEFORE_S = 0.1

SHOWN_BEFORE, SHOWN_AFTER = 3, 4
"""Windows before and after the one that is open at the kill."""

WindowKey = tuple[int, str]


class Moment(msgspec.Struct, frozen=True):
    """Rows by then: `sent`, and `counted` in results that are committed."""

    at_s: float
    sent: int
    counted: int


class Window(msgspec.Struct, frozen=True):
    """A window; seconds count from the kill. `held` of its results are of the killed one's buckets.

    `others_s` and `held_s` say when the last of the others, and the last of these, had come.
    """

    start_s: float
    end_s: float
    sent: int
    counted: int
    results: int
    held: int
    others_s: float
    held_s: float


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `moments`: just before the kill, when the other reducer's results of the window
    that was open have come, when all of them have, and the end."""

    date: str
    commit: str
    sql: str
    rate: int
    delay_s: float
    process: str
    pid: int
    buckets: int
    buckets_of_victim: int
    taken_by: dict[str, int]
    """Who has the killed one's buckets afterwards, and how many of them."""
    moments: tuple[Moment, Moment, Moment, Moment]
    windows: tuple[Window, ...]
    sent: int
    counted: int
    results: int
    missing: int
    doubled: int
    wrong: int

    @property
    def open_window(self) -> Window:
        """The one that was open at the kill."""
        return next(each for each in self.windows if each.start_s <= 0 < each.end_s)


@dataclass(frozen=True, slots=True)
class Kill:
    """When which process was killed, who had which buckets then, who has those of it now."""

    at: float
    pid: int
    before: dict[str, set[int]]
    taken_by: dict[str, int]

    @property
    def lost(self) -> set[int]:
        """The buckets of the killed process."""
        return self.before[VICTIM]


@dataclass(slots=True)
class Feed:
    """Rows at a steady rate, event time the clock; `bursts` has (when, how many) were sent."""

    mars: MarsCluster
    wanted: Counter[WindowKey] = field(default_factory=Counter)
    bursts: list[tuple[float, int]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        chance, begun, sent = random.Random(1), time.time(), 0
        while not self.stop.wait(BURST_S):
            now = time.time()
            due = int((now - begun) * RATE) - sent
            self._send(chance, round(now * 1000), sent, due)
            sent += due
            self.bursts.append((now, due))

    def _send(self, chance: random.Random, now_ms: int, first: int, count: int) -> None:
        messages = []
        for number in range(first, first + count):
            sip = f"10.0.0.{chance.randrange(KEYS)}"
            self.wanted[now_ms // 1000 // WINDOW_S * WINDOW_S * 1000, sip] += 1
            row = {"timestamp": now_ms, "sip": sip}
            messages.append((number % PARTITIONS, json.dumps(row).encode()))
        self.mars.produce(TOPIC, messages)

    def sent_by(self, at: float) -> int:
        """Rows that were sent until then."""
        return sum(count for when, count in self.bursts if when <= at)


@dataclass(frozen=True, slots=True)
class Result:
    """One row, and when it came."""

    at: float
    start_ms: int
    sip: str
    count: int
    bucket: int


@dataclass(slots=True)
class Seen:
    """Committed results as they come."""

    kafka: str
    results: list[Result] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka,
                "group.id": "killed",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        topic = f"mars.results.{TASK}"
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while not self.stop.is_set():
            for message in consumer.consume(1_000, timeout=0.05):
                assert message.error() is None, message.error()
                self.results.append(_result(message))
        consumer.close()

    def counted_by(self, at: float) -> int:
        """Rows in results that came until then."""
        return sum(each.count for each in self.results if each.at <= at)


def _result(message: Message) -> Result:
    row, headers = json.loads(message.value() or b""), headers_of(message)
    bucket = int(headers["mars-bucket"])
    return Result(time.time(), row["window_start"], row["sip"], row["count"], bucket)


@contextmanager
def beside(*targets: Feed | Seen) -> Iterator[None]:
    """Each in a thread of its own."""
    threads = [threading.Thread(target=each.run, name=type(each).__name__) for each in targets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each, thread in zip(targets, threads, strict=True):
            each.stop.set()
            thread.join()


def recorded() -> Story:
    """Run it once; takes about a minute."""
    with tempfile.TemporaryDirectory(prefix="mars-killed-") as folder:
        mars = MarsCluster(Path(folder) / "data")
        try:
            return _run(mars)
        finally:
            mars.down()


def _run(mars: MarsCluster) -> Story:
    mars.topic(TOPIC, PARTITIONS)
    fields = {"timestamp": "timestamp_ms", "sip": "string"}
    declaration = {"topic": TOPIC, "format": "json", "fields": fields, "event_time": "timestamp"}
    mars.client.put_stream(TOPIC, declaration)
    options = {"delay": f"{DELAY_S * 1000:.0f}ms", "idle_after": "2s"}
    mars.client.create_task(TASK, SQL, options=options)
    mars.client.wait_until_ready()
    feed, seen = Feed(mars), Seen(str(mars.file["kafka"]))
    with beside(seen):
        with beside(feed):
            time.sleep(BEFORE_S)
            before = _owned(mars)
            while time.time() % WINDOW_S < INTO_WINDOW_S or time.time() % WINDOW_S > 1.5:
                time.sleep(0.005)
            killed_at, pid = time.time(), mars.kill(VICTIM)
            taken_by = _owned_again(mars, before[VICTIM], pid)
            time.sleep(max(0.0, killed_at + AFTER_S - time.time()))
        total = feed.wanted.total()
        wait_for("all rows in results", lambda: seen.counted_by(time.time()) >= total)
        time.sleep(2 * WINDOW_S)  # For one that would come twice.
    return _told(feed, seen, Kill(killed_at, pid, before, taken_by))


AT_WORK = {"owning", "committing"}


def _owned(mars: MarsCluster, gone: int = 0) -> dict[str, set[int]]:
    """The buckets that each reducer works on, but for the process that is gone."""
    return {
        each.id: {bucket.bucket for bucket in each.buckets if bucket.state in AT_WORK}
        for each in mars.client.cluster().members
        if each.role == "reducer" and each.pid != gone
    }


def _owned_again(mars: MarsCluster, lost: set[int], killed: int) -> dict[str, int]:
    """Who has how many buckets of the killed process, once all of them are worked on again."""

    def taken() -> dict[str, int]:
        again = {name: len(has & lost) for name, has in _owned(mars, killed).items()}
        return again if sum(again.values()) == len(lost) else {}

    found = wait_for("the buckets to be owned again", taken, pause_s=0.05)
    return {name: number for name, number in found.items() if number}


def _told(feed: Feed, seen: Seen, kill: Kill) -> Story:
    times = Counter((each.start_ms, each.sip) for each in seen.results)
    counts = {(each.start_ms, each.sip): each.count for each in seen.results}
    windows = tuple(_windows(feed, seen, kill))
    ended = max(each.at for each in seen.results)
    return Story(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=_commit(),
        sql=SQL,
        rate=RATE,
        delay_s=DELAY_S,
        process=VICTIM,
        pid=kill.pid,
        buckets=sum(map(len, kill.before.values())),
        buckets_of_victim=len(kill.lost),
        taken_by=kill.taken_by,
        moments=_moments(feed, seen, kill.at, windows[SHOWN_BEFORE], ended),
        windows=windows,
        sent=feed.wanted.total(),
        counted=seen.counted_by(ended),
        results=len(seen.results),
        missing=len(feed.wanted.keys() - times.keys()),
        doubled=sum(often > 1 for often in times.values()),
        wrong=sum(counts.get(key) != count for key, count in feed.wanted.items()),
    )


def _moments(
    feed: Feed, seen: Seen, killed_at: float, hit: Window, ended: float
) -> tuple[Moment, Moment, Moment, Moment]:
    """`hit` is the window that was open at the kill."""
    assert hit.others_s < hit.held_s, f"the window was not held up: run it again ({hit})"

    def by(at_s: float) -> Moment:
        at = killed_at + at_s
        return Moment(round(at_s, 2), feed.sent_by(at), seen.counted_by(at))

    return by(-JUST_BEFORE_S), by(hit.others_s), by(hit.held_s), by(ended - killed_at)


def _windows(feed: Feed, seen: Seen, kill: Kill) -> Iterator[Window]:
    """Those around the kill."""
    open_ms = int(kill.at) // WINDOW_S * WINDOW_S * 1000
    step_ms = WINDOW_S * 1000
    for number in range(-SHOWN_BEFORE, SHOWN_AFTER + 1):
        start_ms = open_ms + number * step_ms
        came = [each for each in seen.results if each.start_ms == start_ms]
        held = [each.at for each in came if each.bucket in kill.lost]
        start_s = start_ms / 1000 - kill.at
        yield Window(
            start_s=round(start_s, 2),
            end_s=round(start_s + WINDOW_S, 2),
            sent=sum(count for (start, _sip), count in feed.wanted.items() if start == start_ms),
            counted=sum(each.count for each in came),
            results=len(came),
            held=len(held),
            others_s=round(max(e.at for e in came if e.bucket not in kill.lost) - kill.at, 2),
            held_s=round(max(held) - kill.at, 2),
        )


def _commit() -> str:
    """The last one that changed the product."""
    command = ["git", "log", "-1", "--format=%h", "--", "mars", "mapper", "reducer", "api"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout.strip()


def written(story: Story) -> str:
    """As it lies in docs/images."""
    return msgspec.json.format(msgspec.json.encode(story), indent=2).decode() + "\n"


def read(path: Path) -> Story:
    """One that was recorded."""
    return msgspec.json.decode(path.read_bytes(), type=Story)


def exact(story: Story) -> bool:
    """Nothing missing, doubled or wrong."""
    return story.sent == story.counted and not (story.missing or story.doubled or story.wrong)
