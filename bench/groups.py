"""`mars bench groups`: what many groups of a window cost, and whether other tasks notice.

    rows/s, each of another key ──▶ many ──▶ a task of as many groups a window as rows
    2,000 rows/s                ──▶ few  ──▶ a task of 8,000 groups, windows of 5 s
                                             how late both close; memory, CPU, lag meanwhile

Results of the large task are read once all is over: five million a window would keep a core busy
that is then not there for what is measured.
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import redis
from confluent_kafka import Consumer, TopicPartition

from bench.clusters import by_role, cluster, cores_of, watched_in
from bench.distinct import stream
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.groups_results import DELAY_S, GroupsReport, LargeWindow, SmallWindow
from bench.load import PARTITIONS, ROWS_PER_MESSAGE
from bench.measures import Sample, committed_s
from bench.pacing import Pace, Pacer, Sent
from bench.processes import Use, look
from bench.results import FOLDER, save
from bench.tables import MIB
from bench.topics import Topics, checked, reader
from mars.client.blocking import Client
from mars.core.plan import FieldType, Format
from mars.core.settings import ClusterSettings, Settings, to_toml
from mars.local.cluster import ClusterOptions
from mars.local.flows import as_declared, declaration
from mars.local.supervisor import Supervisor

NAME = "groups"
MANY, FEW = "many", "few"
FEW_RATE = 2_000
FEW_GROUPS = 8_000
FEW_WINDOW_S = 5
FEW_SQL = (
    f"SELECT sip, type, count(*) AS rows, sum(bytes) AS bytes FROM {FEW} GROUP BY sip, type "
    f"WINDOWING {FEW_WINDOW_S} s"
)
COMMITS_S = 0.2
"""Between two looks at what is committed: so much too late a window may seem."""

LOOK_S = 1.0

TAIL_SHARE = 0.5
"""Part of a window for which rows go on after the last one that is measured."""

CLOSES_S = 600.0
"""Longest wait for the last window."""

WATCHED_ROLES = ("mapper", "reducer")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure, once `warm_s` have passed."""

    rate: int = 80_000
    window_s: int = 60
    windows: int = 3
    warm_s: int = 60
    format: Format = Format.NDJSON
    keys: FieldType = FieldType.STRING
    budget_mib: int = 1_024

    @property
    def window_ms(self) -> int:
        """Length of the large task's windows."""
        return self.window_s * 1000


@dataclass(frozen=True, slots=True)
class Measured:
    """The report, and where it was saved."""

    report: GroupsReport
    path: Path


def sql_of(window_s: int) -> str:
    """The query of the large task."""
    return (
        f"SELECT id, count(*) AS rows, sum(bytes) AS bytes FROM {MANY} GROUP BY id "
        f"WINDOWING {window_s} s"
    )


def groups_session(asked: Asked, say: Say, folder: Path = FOLDER) -> Measured:
    """Run it; saves the figures. Raises MarsError."""
    about = environment()
    with tempfile.TemporaryDirectory(prefix="mars-groups-") as data:
        config = Path(data) / "bench.toml"
        limits = ClusterSettings(log_bytes_max=asked.budget_mib * MIB)
        config.write_text(to_toml(Settings(cluster=limits)), "utf-8")
        options = ClusterOptions(data=Path(data), mappers=2, reducers=2, config=config)
        with cluster(options) as supervisor, Client(supervisor.addresses.api) as client:
            report = _measured(asked, say, about, supervisor, client)
    return Measured(report, save(report, NAME, folder))


def _measured(
    asked: Asked, say: Say, about: Environment, supervisor: Supervisor, client: Client
) -> GroupsReport:
    kafka = supervisor.addresses.kafka
    topics = Topics(kafka)
    _register(asked, topics, client)
    size = 1 if asked.format is Format.JSON else ROWS_PER_MESSAGE
    large = Pacer(
        Pace(*(kafka, MANY, PARTITIONS, asked.rate, 0, asked.window_ms, size), distinct=asked.keys)
    )
    small = Pacer(
        Pace(kafka, FEW, PARTITIONS, FEW_RATE, FEW_GROUPS, FEW_WINDOW_S * 1000, narrow=True)
    )
    watch = _Watch(supervisor, client, topics)
    try:
        small.begin()
        large.begin()
        starts = _starts(asked)
        say(f"Rows flow; {asked.windows} windows are measured from {starts[0] // 1000} on.")
        watch.until_time(starts[0] / 1000)
        watch.forget()
        for start in starts:
            watch.until_time(start / 1000 + asked.window_s)
            say(f"A window has ended. {watch.told()}")
        watch.until_time(time.time() + asked.window_s * TAIL_SHARE)
        sent = large.finish()
        due = sum(rows for start, rows in sent.windows.items() if start <= starts[-1])
        give_up_s = time.time() + CLOSES_S
        watch.until(lambda: watch.emitted() >= due or time.time() >= give_up_s)
        ends = watch.end()
        small.finish()
    finally:
        large.stop()
        small.stop()
        watch.close()
    say("All is over; reading what the large task has emitted.")
    found = Found.read(topics, ends)
    return _report(asked, about, starts, sent, watch, found)


def _register(asked: Asked, topics: Topics, client: Client) -> None:
    for topic in (MANY, FEW):
        topics.make(topic, PARTITIONS)
    client.put_stream(MANY, as_declared(stream(MANY, asked.format, asked.keys)))
    client.put_stream(FEW, declaration(FEW))
    options = {"delay": f"{DELAY_S}s"}
    client.create_task(MANY, sql_of(asked.window_s), options=options)
    client.create_task(FEW, FEW_SQL, options=options)


def _starts(asked: Asked) -> range:
    """Of the windows that are measured."""
    size = asked.window_ms
    first = -(-round((time.time() + asked.warm_s) * 1000) // size) * size
    return range(first, first + asked.windows * size, size)


# ------------------------------------------------------------------------------ while it runs


@dataclass(frozen=True, slots=True)
class Look:
    """At epoch seconds `at_s`: every process, Redis, and the large task; `lag` in messages."""

    at_s: float
    uses: Mapping[str, Use]
    redis: int
    log: int
    lag: int
    emitted: int


class _Watch:
    """Looks at everything while rows flow, and reads what the small task emits."""

    def __init__(self, supervisor: Supervisor, client: Client, topics: Topics) -> None:
        kafka = supervisor.addresses.kafka
        self._client, self._topics = client, topics
        self._watched = watched_in(supervisor)
        self._store = redis.Redis.from_url(supervisor.addresses.redis)
        self._partitions = list(topics.ends(_results(MANY)))
        self._consumer = _follow(kafka, topics.ends(_results(FEW)))
        self.looks: list[Look] = []
        self.commits: list[Sample] = []
        self.late_s: dict[int, float] = {}

    def close(self) -> None:
        """Let go of what was opened."""
        self._consumer.close()
        self._store.close()

    def forget(self) -> None:
        """What was seen so far is not measured."""
        self.looks.clear()
        self.late_s.clear()
        self._look()

    def until_time(self, at_s: float) -> None:
        """Look until then, in seconds since 1970. Raises BenchError as `until` does."""
        self.until(lambda: time.time() >= at_s)

    def until(self, done: Callable[[], bool]) -> None:
        """Look until it is true. Raises BenchError when the large task fails, or a process ends."""
        while not done():
            messages = checked(self._consumer.consume(10_000, timeout=COMMITS_S))
            now_s = time.time()
            for message in messages:
                end_ms = msgspec.json.decode(message.value() or b"", type=_SmallRow).window_end
                self.late_s[end_ms] = now_s - end_ms / 1000 - DELAY_S
            self._commit()
            if not self.looks or time.time() - self.looks[-1].at_s >= LOOK_S:
                self._look()

    def _commit(self) -> None:
        committed = self._topics.ends_of(_results(MANY), self._partitions)
        self.commits.append(Sample(time.time(), 0, {}, {}, committed))

    def end(self) -> Mapping[int, int]:
        """Up to where the large task's results are committed now."""
        self._commit()
        return self.commits[-1].committed

    def _look(self) -> None:
        task = self._client.task(MANY)
        if task.state == "failed":
            raise BenchError(f"The task of many groups failed: {task.detail}")
        uses = look(self._watched)
        if ended := [one.name for one in self._watched if one.name not in uses]:
            raise BenchError(f"{', '.join(ended)} ended; there may be too little memory.")
        self.looks.append(
            Look(
                time.time(),
                uses,
                int(self._store.info("memory")["used_memory"]),
                task.log_bytes or 0,
                task.lag.rows if task.lag else 0,
                task.ledger.emitted if task.ledger else 0,
            )
        )

    def emitted(self) -> int:
        """Rows in the windows that the large task has closed."""
        return self.looks[-1].emitted if self.looks else 0

    def told(self) -> str:
        """The last look, in a sentence."""
        last = self.looks[-1]
        return f"Log {last.log // MIB:,} MiB, Redis {last.redis // MIB:,} MiB, lag {last.lag:,}."


def _results(task: str) -> str:
    return f"mars.results.{task}"


def _follow(kafka: str, ends: Mapping[int, int]) -> Consumer:
    consumer = reader(kafka)
    places = [TopicPartition(_results(FEW), number, end) for number, end in ends.items()]
    consumer.assign(places)
    return consumer


class _SmallRow(msgspec.Struct, gc=False):
    window_end: int


# --------------------------------------------------------------------------------- afterwards


class _LargeRow(msgspec.Struct, gc=False):
    window_start: int
    id: str | int
    rows: int


_rows = msgspec.json.Decoder(_LargeRow)


@dataclass(slots=True)
class Found:
    """What the large task has emitted. Of each window: keys, rows, last offsets by partition."""

    keys: dict[int, array[int]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    last: dict[int, dict[int, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, topics: Topics, ends: Mapping[int, int]) -> Found:
        """All before `ends`. Raises TimeoutError, KafkaException."""
        found = cls()
        for messages in topics.read(_results(MANY), ends):
            read = [((one.partition() or 0, one.offset() or 0), one) for one in messages]
            known = [(place, one) for place, one in read if place[1] < ends[place[0]]]
            values = (one.value() or b"" for _place, one in known)
            found.add((place for place, _one in known), values)
        return found

    def add(self, places: Iterable[tuple[int, int]], values: Iterable[bytes]) -> None:
        """Results, and the partition and offset of each."""
        rows = _rows.decode_lines(b"\n".join(values))
        for (partition, offset), row in zip(places, rows, strict=True):
            start = row.window_start
            self.keys.setdefault(start, array("q")).append(int(row.id))
            self.rows[start] = self.rows.get(start, 0) + row.rows
            self.last.setdefault(start, {})[partition] = offset

    def groups(self, start: int) -> int:
        """How many keys a window has."""
        return len(np.unique(np.array(self.keys.get(start, ()), dtype=np.int64)))

    def problems(self, sent: Mapping[int, int], last_start: int) -> list[str]:
        """What is wrong with the windows up to a start, a sentence each: each row is a key."""
        said = []
        for start, rows in sorted(sent.items()):
            results = len(self.keys.get(start, ()))
            counted, groups = self.rows.get(start, 0), self.groups(start)
            if start <= last_start and not rows == counted == groups == results:
                said.append(
                    f"window {start}: {rows} rows of as many keys were sent, {results} results of "
                    f"{groups} keys count {counted}"
                )
        return said


def _report(
    asked: Asked, about: Environment, starts: range, sent: Sent, watch: _Watch, found: Found
) -> GroupsReport:
    size = sent.rows / max(1, sent.messages)
    looks = watch.looks
    windows = [
        LargeWindow(
            start,
            sent.windows.get(start, 0),
            found.groups(start),
            round(_lag_at(looks, (start + asked.window_ms) / 1000) * size),
            _closed_s(start, asked.window_s, watch.commits, found),
        )
        for start in starts
    ]
    late = [SmallWindow(end, round(one, 3)) for end, one in sorted(watch.late_s.items())]
    return GroupsReport(
        about,
        asked.rate,
        asked.window_s,
        asked.format,
        asked.keys,
        asked.budget_mib * MIB,
        round(sent.behind_s, 3),
        windows,
        [one for one in late if one.end_ms > starts[0]],
        _cores(looks),
        _most_memory(looks),
        max(one.redis for one in looks),
        max(one.log for one in looks),
        found.problems(sent.windows, starts[-1]),
    )


def _lag_at(looks: Sequence[Look], at_s: float) -> int:
    return next((one.lag for one in looks if one.at_s >= at_s), looks[-1].lag)


def _closed_s(start: int, window_s: int, commits: Sequence[Sample], found: Found) -> float | None:
    if start not in found.last:
        return None
    at_s = committed_s(commits, found.last[start])
    return round(at_s - start / 1000 - window_s - DELAY_S, 3)


def _cores(looks: Sequence[Look]) -> dict[str, float]:
    first, last = looks[0], looks[-1]
    return cores_of(by_role(first.uses), by_role(last.uses), last.at_s - first.at_s)


def _most_memory(looks: Sequence[Look]) -> dict[str, int]:
    names = [name for name in looks[0].uses if name.partition("-")[0] in WATCHED_ROLES]
    return {name: max(one.uses[name].memory.now_bytes for one in looks) for name in names}
