"""Bad input of every kind against the running service: nothing stops, nothing is lost from view.

For each format one topic with two partitions and three tasks beside each other:

    by_sip        reads all fields but `spare`: every bad row is bad for it
    neighbour     the same topic, reads the event time and `sip` only; a wrong `bytes` is no matter
    bystander     another topic, with good rows only

Each kind of bad input is sent between good rows of its own; then the next one. The formats do so
beside each other: a process that dies is laid at the door of one kind of each at most.
"""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from mars.client.answers import Incident
from tests.support.bad_rows import BAD_FIELDS, KINDS, Kind, as_arrow, as_csv, as_json
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import assert_exactly_once, expected, messages

pytestmark = pytest.mark.acceptance

PARTITIONS = 2
WINDOW_MS = 1_000
PAYLOAD_BYTES = 512
NAMED_MAX = 100
MANY = 250
"""Broken messages in a row, more than are named one by one."""

OPTIONS = {"delay": "500ms", "idle_after": "5s"}
"""A partition that a busy machine serves a second late is not idle."""

SUMS = (
    "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
    "sum(hash) AS hashes, count(rate) AS rates FROM {stream} "
    "GROUP BY sip, type, timestamp WINDOWING 1 s"
)
COUNTS = "SELECT sip, timestamp, count(*) FROM {stream} GROUP BY sip, timestamp WINDOWING 1 s"


@dataclass(frozen=True, slots=True)
class Sent:
    """One bad input: where it went, and when (the restarts that were seen after it)."""

    kind: Kind
    partition: int
    offset: int
    payload: bytes
    restarts: dict[str, int]


@dataclass(slots=True)
class Feed:
    """What has been sent to the topic of one format."""

    mars: MarsCluster
    format: str
    good: list[dict[str, Any]] = field(default_factory=list)
    sent: dict[str, Sent] = field(default_factory=dict)
    bystanders: list[dict[str, Any]] = field(default_factory=list)
    next: Counter[int] = field(default_factory=Counter)
    ids: int = 0

    @property
    def name(self) -> str:
        return f"bad_{self.format}"

    @property
    def neighbour(self) -> str:
        return f"{self.name}_neighbour"

    @property
    def bystander(self) -> str:
        return f"{self.name}_bystander"

    def declare(self) -> None:
        """Two topics, their streams, three tasks."""
        client = self.mars.client
        self.mars.topic(self.name, PARTITIONS, max_message_bytes="20000000")
        declaration = {
            "topic": self.name,
            "format": self.format,
            "fields": BAD_FIELDS,
            "event_time": "timestamp",
        }
        client.put_stream(self.name, declaration)
        client.create_task(self.name, SUMS.format(stream=self.name), options=OPTIONS)
        client.create_task(self.neighbour, COUNTS.format(stream=self.name), options=OPTIONS)
        self.mars.declare(self.bystander, stream=self.bystander, partitions=PARTITIONS)
        query = SUMS.replace(", count(rate) AS rates", "").format(stream=self.bystander)
        client.create_task(self.bystander, query, options=OPTIONS)

    def row(self, sip: str) -> dict[str, Any]:
        """A good row of now."""
        self.ids += 1
        return {
            "timestamp": time.time_ns() // 1_000_000 + self.ids % 300,
            "sip": sip,
            "type": "dns",
            "bytes": 40 + self.ids,
            "id": self.ids,
            "hash": self.ids * 0x9E3779B97F4A7C15 % 2**31,
            "rate": 1.5,
            "spare": 0,
        }

    def message(self, rows: Sequence[dict[str, Any]], between: bytes | None = None) -> bytes:
        """Good rows in one message; in formats of lines, `between` the first and the others."""
        if self.format == "arrow":
            return as_arrow(*rows)
        lines = [as_csv(row) if self.format == "csv" else as_json(row) for row in rows]
        return b"\n".join(lines if between is None else [lines[0], between, *lines[1:]])

    def send(self, partition: int, values: Sequence[bytes | None]) -> int:
        """Produce to one partition; the offset of the first message."""
        first = self.next[partition]
        self.mars.produce(self.name, [(partition, value) for value in values])
        self.next[partition] += len(values)
        return first

    def try_all(self) -> None:
        """One kind after the other."""
        self.declare()
        for kind in KINDS[self.format]:
            self.try_kind(kind)

    def try_kind(self, kind: Kind) -> None:
        """Send one kind between good rows, and wait until everything is taken."""
        partition = len(self.sent) % PARTITIONS
        before, spoilt, after, beside = (self.row(kind.name) for _ in range(4))
        bad = kind.make(spoilt)
        self.good += [before, after, beside]
        if kind.reason is None:
            self.good.append(kind.counted(spoilt))
        lines = self.format in {"ndjson", "csv"} and not kind.alone
        if lines:
            offset = self.send(partition, [self.message([before, after], between=bad)])
        else:
            offset = 1 + self.send(partition, [self.message([before]), bad, self.message([after])])
        self.send(1 - partition, [self.message([beside])])
        self.send_bystanders()
        self.wait_taken()
        payload = _first_line(bad) if self.format in {"ndjson", "csv"} else bad
        self.sent[kind.name] = Sent(
            kind, partition, offset, (payload or b"")[:PAYLOAD_BYTES], self.mars.restarts
        )

    def send_bystanders(self) -> None:
        """Some good rows for the task on the other topic."""
        rows = [self.row(f"10.0.0.{number}") for number in range(4)]
        self.bystanders += rows
        self.mars.produce(self.bystander, messages(rows, PARTITIONS))

    def wait_taken(self) -> None:
        """Until the mappers have taken every message of the topic."""

        def taken() -> bool:
            task = self.mars.client.task(self.name)
            assert task.state == "running", task.detail
            return task.lag is not None and task.lag.rows == 0

        wait_for(f"{self.name} without lag", taken, pause_s=0.02)

    def bad_for(self, *, reads: frozenset[str]) -> Counter[str]:
        """How many kinds the ledger of a task counts in which place."""
        return Counter(
            sent.kind.place
            for sent in self.sent.values()
            if sent.kind.reason is not None and (not sent.kind.field or sent.kind.field in reads)
        )


def _first_line(value: bytes | None) -> bytes | None:
    return None if value is None else value.split(b"\n")[0]


@pytest.fixture(scope="module")
def feeds(shared_mars: MarsCluster) -> Iterator[dict[str, Feed]]:
    """For each format a topic to which every kind of it was sent."""
    feeds = {name: Feed(shared_mars, name) for name in KINDS}
    with ThreadPoolExecutor(len(feeds)) as pool:
        list(pool.map(Feed.try_all, feeds.values()))
    yield feeds
    for feed in feeds.values():
        for name in (feed.name, feed.neighbour, feed.bystander):
            shared_mars.client.delete_task(name)


@pytest.fixture(scope="module", params=KINDS)
def fed(feeds: dict[str, Feed], request: pytest.FixtureRequest) -> Feed:
    """The topic of one format, all windows closed."""
    feed = feeds[request.param]
    feed.mars.read_until(f"mars.results.{feed.name}", len(expected(feed.good, WINDOW_MS)))
    return feed


def dead(mars: MarsCluster, task: str) -> list[dict[str, Any]]:
    """The references of one task."""
    return [record for _key, record, _headers in mars.read("mars.dead") if record["task"] == task]


def test_no_process_dies_of_it(fed: Feed) -> None:
    culprits = {
        name: sent.restarts for name, sent in fed.sent.items() if any(sent.restarts.values())
    }

    assert not culprits


def test_good_rows_around_it_are_counted_exactly(fed: Feed) -> None:
    wanted = expected(fed.good, WINDOW_MS)

    assert_exactly_once(fed.mars.read_until(f"mars.results.{fed.name}", len(wanted)), wanted)


def test_a_task_on_another_topic_stays_exact(fed: Feed) -> None:
    wanted = expected(fed.bystanders, WINDOW_MS)

    assert_exactly_once(fed.mars.read_until(f"mars.results.{fed.bystander}", len(wanted)), wanted)


def test_the_ledger_balances_and_counts_it_in_the_right_place(fed: Feed) -> None:
    places = fed.bad_for(reads=frozenset(BAD_FIELDS) - {"spare"})
    rows = len(fed.good) + places.total()
    client = fed.mars.client

    wait_for(f"{rows} rows in the ledger", lambda: client.ledger(fed.name).read >= rows)
    wait_for("no open row", lambda: client.ledger(fed.name).open == 0)

    ledger = client.ledger(fed.name)
    assert (ledger.read, ledger.counted) == (rows, len(fed.good))
    assert (ledger.bad, ledger.future) == (places["bad"], places["future"])
    assert (ledger.late, ledger.filtered, ledger.emitted) == (0, 0, len(fed.good))


def test_a_wrong_field_is_good_for_a_task_that_does_not_read_it(fed: Feed) -> None:
    places = fed.bad_for(reads=frozenset({"timestamp", "sip"}))
    everything = len(fed.good) + sum(sent.kind.reason is not None for sent in fed.sent.values())
    client = fed.mars.client

    wait_for("all rows", lambda: client.ledger(fed.neighbour).read >= everything)

    ledger = client.ledger(fed.neighbour)
    assert ledger.read == everything, ledger
    assert (ledger.bad, ledger.future) == (places["bad"], places["future"]), ledger
    assert ledger.counted == everything - places.total(), ledger


def test_each_is_named_with_its_place_reason_and_payload(fed: Feed) -> None:
    wanted = {
        (sent.partition, sent.offset): (sent.kind.reason, sent.payload)
        for sent in fed.sent.values()
        if sent.kind.reason is not None
    }

    wait_for("all references", lambda: len(dead(fed.mars, fed.name)) >= len(wanted), pause_s=0.5)

    records = dead(fed.mars, fed.name)
    named = {
        (record["partition"], record["offset"]): (
            record["reason"],
            base64.b64decode(record["payload"]),
        )
        for record in records
    }
    assert {record["topic"] for record in records} == {fed.name}
    assert named == wanted
    assert len(records) == len(wanted), "each is named once"


def test_why_shows_samples_of_what_was_dropped(fed: Feed) -> None:
    wanted = {
        (sent.partition, sent.offset, sent.kind.reason)
        for sent in fed.sent.values()
        if sent.kind.reason is not None
    }
    places = fed.bad_for(reads=frozenset(BAD_FIELDS) - {"spare"})

    dropped = fed.mars.client.why(fed.name).dropped

    samples = {(sample.partition, sample.offset, sample.reason) for sample in dropped.samples}
    assert (dropped.bad, dropped.future, dropped.late) == (places["bad"], places["future"], 0)
    assert samples
    assert samples <= wanted


def declare(mars: MarsCluster, name: str, *, fields: dict[str, str] | None = None) -> None:
    """A JSON topic, its stream and a task on it, all of one name."""
    mars.topic(name, PARTITIONS)
    mars.client.put_stream(
        name,
        {
            "topic": name,
            "format": "json",
            "fields": fields or BAD_FIELDS,
            "event_time": "timestamp",
        },
    )
    # No partition is ever idle, so rows alone say when windows close.
    options = {**OPTIONS, "idle_after": "1h"}
    mars.client.create_task(name, COUNTS.format(stream=name), options=options)


def closing(timestamp_ms: int) -> list[tuple[int, bytes]]:
    """A row in each partition that closes the window of this time."""
    return [(partition, flow("end", timestamp_ms + 2_500)) for partition in range(PARTITIONS)]


def flow(sip: str, timestamp_ms: int) -> bytes:
    return json.dumps({"timestamp": timestamp_ms, "sip": sip}).encode()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_seconds_in_a_field_of_milliseconds_are_late(shared_mars: MarsCluster) -> None:
    mars, name = shared_mars, "bad_unit"
    declare(mars, name)
    now = now_ms()
    mars.produce(name, [(0, flow("a", now)), (1, flow("a", now)), *closing(now)])
    mars.read_until(f"mars.results.{name}", 1)

    seconds = now // 1000
    mars.produce(name, [(1, flow("a", seconds)), (1, flow("a", seconds))])

    wait_for("two late rows", lambda: mars.client.ledger(name).late == 2)
    ledger = mars.client.ledger(name)
    assert (ledger.read, ledger.counted, ledger.emitted) == (6, 4, 2)
    records = [
        {
            key: record[key]
            for key in ("topic", "partition", "first", "next", "window_start", "rows")
        }
        for record in dead(mars, name)
    ]
    window = seconds // WINDOW_MS * WINDOW_MS
    assert sum(record["rows"] for record in records) == 2
    assert {record["window_start"] for record in records} == {window}
    assert all(record["partition"] == 1 for record in records)
    assert (records[0]["first"], records[-1]["next"]) == (2, 4)
    why = mars.client.why(name)
    assert why.dropped.late == 2
    assert {sample.reason for sample in why.dropped.samples} == {"late"}


def test_rows_of_the_future_move_no_watermark(shared_mars: MarsCluster) -> None:
    mars, name = shared_mars, "bad_future"
    declare(mars, name)
    ahead = now_ms() + 3_600_000
    mars.produce(name, [(0, flow("a", ahead)), (1, flow("a", ahead))])
    wait_for("the future rows", lambda: mars.client.ledger(name).future == 2)

    now = now_ms()
    mars.produce(name, [(0, flow("a", now)), (1, flow("b", now)), *closing(now)])

    results = mars.read_until(f"mars.results.{name}", 2)
    assert [value["count"] for _key, value, _headers in results] == [1, 1]
    ledger = mars.ledger(name, 6, emitted=2)
    assert (ledger.read, ledger.future, ledger.late, ledger.emitted) == (6, 2, 0, 2)
    records = dead(mars, name)
    assert [(record["offset"], record["reason"]) for record in records] == [(0, "future")] * 2


def test_many_bad_rows_are_named_in_ranges(shared_mars: MarsCluster) -> None:
    mars, name = shared_mars, "bad_many"
    declare(mars, name)
    values = [flow("a", now_ms()), *[b"{"] * MANY, flow("a", now_ms())]

    mars.produce(name, [(0, value) for value in values])

    ledger = mars.ledger(name, MANY + 2)
    assert (ledger.bad, ledger.counted) == (MANY, 2)
    records = dead(mars, name)
    rows = [record for record in records if "offset" in record]
    ranges = [record for record in records if "first" in record]
    assert len(rows) >= NAMED_MAX
    assert len(rows) + sum(part["rows"] for part in ranges) == MANY
    assert all(1 <= row["offset"] <= MANY for row in rows)
    assert all(1 <= part["first"] < part["next"] <= MANY + 1 for part in ranges)
    assert {record["reason"] for record in records} == {"unreadable"}


LONG = "x" * 600_000
"""A message with it is smaller than the 1 MB that Kafka takes."""


def test_a_text_too_long_to_group_by_stops_nothing(shared_mars: MarsCluster) -> None:
    mars, name = shared_mars, "bad_key"
    declare(mars, name)
    query = f"SELECT count(*) FROM {name} WINDOWING 1 s"
    mars.client.create_task("bad_key_total", query, options={**OPTIONS, "idle_after": "1h"})
    now = now_ms()

    mars.produce(name, [(0, flow("a", now)), (0, flow(LONG, now)), (1, flow("b", now))])
    mars.produce(name, closing(now))

    results = mars.read_until(f"mars.results.{name}", 2)
    assert {value["sip"] for _key, value, _headers in results} == {"a", "b"}
    ((_key, total, _headers),) = mars.read_until("mars.results.bad_key_total", 1)
    assert total["count"] == 3
    ledger = mars.ledger(name, 5, emitted=2)
    assert (ledger.bad, ledger.counted, ledger.emitted) == (1, 4, 2)
    assert mars.ledger("bad_key_total", 5, emitted=3).bad == 0
    (record,) = dead(mars, name)
    assert (record["partition"], record["offset"], record["reason"]) == (0, 1, "too_large")


def test_a_result_too_large_to_send_is_withheld_and_the_others_come(
    shared_mars: MarsCluster,
) -> None:
    mars, name = shared_mars, "bad_result"
    fields = {"timestamp": "timestamp_ms", "sip": "string", "note": "string"}
    mars.topic(name, PARTITIONS)
    declaration = {"topic": name, "format": "json", "fields": fields, "event_time": "timestamp"}
    mars.client.put_stream(name, declaration)
    query = (
        f"SELECT sip, count(*), min(note) AS low, max(note) AS high FROM {name} "
        "GROUP BY sip WINDOWING 2 s SLIDE 1 s"
    )
    mars.client.create_task(name, query, options={**OPTIONS, "idle_after": "1h"})
    start = now_ms() // WINDOW_MS * WINDOW_MS

    def noted(sip: str, note: str, at_ms: int = start) -> bytes:
        return json.dumps({"timestamp": at_ms, "sip": sip, "note": note}).encode()

    rows = [(0, noted("big", LONG)), (1, noted("small", "a")), (0, noted("small", "b"))]
    ends = [(partition, noted("end", "", start + 3_600)) for partition in range(PARTITIONS)]
    mars.produce(name, [*rows, *ends])

    results = mars.read_until(f"mars.results.{name}", 2)
    assert {(value["sip"], value["count"]) for _key, value, _headers in results} == {("small", 2)}
    windows = [start - WINDOW_MS, start]
    assert sorted(value["window_start"] for _key, value, _headers in results) == windows
    ledger = mars.ledger(name, 5, emitted=3)
    assert (ledger.bad, ledger.counted, ledger.emitted) == (0, 5, 3)
    withheld = dead(mars, name)
    assert {record["window_start"] for record in withheld} == set(windows)
    assert {(record["reason"], record["rows"]) for record in withheld} == {("too_large", 0)}
    assert {record["key"] for record in withheld} == {f'[{one},"big"]' for one in windows}
    assert all(record["first"] == 0 for record in withheld if record["partition"] == 0)
    # Results come bucket by bucket: a bucket without rows of this window may finish it last.
    verified = wait_for("the window in every bucket", lambda: mars.client.verify(name, start))
    assert (verified.equal, verified.rows) == (True, 1)
    told = wait_for("an incident", lambda: _of_task(mars, name))
    assert {one.kind for one in told} == {"withheld"}


def _of_task(mars: MarsCluster, name: str) -> list[Incident]:
    """Those of the task alone: others of these tests empty the store, which is told of all."""
    return [one for one in mars.client.incidents(task=name) if one.task == name]


def test_all_tasks_still_run_and_no_process_was_started_again(shared_mars: MarsCluster) -> None:
    tasks = [task for task in shared_mars.client.tasks() if task.name.startswith("bad_")]

    assert {task.state for task in tasks} == {"running"}
    assert not any(shared_mars.restarts.values())
