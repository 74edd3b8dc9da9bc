"""The rows that a simulation feeds, the queries over them, and what must come out."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import Lane, Range, StreamName, lane_partition, live_lane
from mars.core.windows import Counting, CountingByKey, Window
from mars.core.windows.counting import first_place
from tests.simulation.keyed import counted_by_key

TOPIC = "flows"
STREAM = Stream(
    StreamName("flows"),
    TOPIC,
    Format.JSON,
    (
        Field("ts", FieldType.TIMESTAMP_MS),
        Field("k", FieldType.STRING),
        Field("v", FieldType.INT64),
    ),
    "ts",
)
DELAY_MS = 2_000
"""Delay of tasks, and most disorder of rows."""

DISORDER_MS = 8_000
"""The same in runs with tasks that revise, and the shortest lateness of these."""

OPTIONS: Mapping[str, object] = {"idle_after": "60min"}
"""No lane is ever idle, so the watermark is driven by rows alone and no row within the delay can be
late."""

HURRY = 10
"""How much shorter the windows are of tasks that revise, so that many rows come late."""

EVENT_START_MS = 100_000
LAST_MS = 900_000
"""Event time of the row that ends each lane: every window before it closes."""

KEYS = 5

SLOW_MS = 30_000
"""How far the slow keys are behind, in runs with tasks that close windows key by key."""

KEY_LAG_MS = 40_000
"""How far they may be: more than they are, disorder included."""

STRAY_MS = 60_000
"""How far keys are behind at most in runs in which rows may be late."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and its shape for the oracle; rows whose `v` this divides are filtered.

    With a `step_ms` windows of one size begin together, and end step by step. With a `landmark_ms`
    they all begin then, rows before it are filtered, and none ends with a step without rows.

    `max_keys` is the limit on the groups of a window; over it the task folds, or fails. A task
    with a `lateness_ms` revises windows for so long. `watermark`: whose rows close windows. Lanes
    are idle after `idle_after_ms`; 0: never.
    """

    sql: str
    size_ms: int
    slide_ms: int
    refused_multiples: int = 0
    max_keys: int | None = None
    folds: bool = True
    lateness_ms: int = 0
    delay_ms: int = DELAY_MS
    watermark: str = "partition"
    idle_after_ms: int = 0
    step_ms: int = 0
    landmark_ms: int = 0
    counts: Counting | None = None
    """Its windows are of so many rows, and go by no time."""
    buckets: str = "all"
    """Or `one`, for all of its groups."""
    most_ms: int = 0
    """Its windows are sessions with gaps of `size_ms`, and at most so long."""

    @property
    def maps_in_order(self) -> bool:
        """Whether mappers alone read its rows, lane by lane."""
        return self.counts is not None or self.most_ms > 0

    @property
    def is_tumbling(self) -> bool:
        """Whether each row is in one window."""
        return not (self.step_ms or self.most_ms) and self.slide_ms == self.size_ms

    def windows(self, time_ms: int) -> Iterator[Window]:
        """Those that a row of this time is in."""
        newest = time_ms // self.slide_ms * self.slide_ms
        if not self.step_ms:
            for start in range(newest, newest - self.size_ms, -self.slide_ms):
                yield Window(start + self.size_ms, start)
            return
        for end in range(newest + self.step_ms, newest + self.size_ms + 1, self.step_ms):
            if time_ms < end:
                yield Window(end, newest)

    def windows_of(self, times_ms: Iterable[int]) -> Mapping[int, Sequence[Window]]:
        """Those that a row of each of these times is in, given all times of the rows."""
        if not self.landmark_ms:
            return {time_ms: list(self.windows(time_ms)) for time_ms in times_ms}
        known = set(times_ms)
        ends = sorted({time_ms // self.step_ms * self.step_ms + self.step_ms for time_ms in known})
        windows = [Window(end, self.landmark_ms) for end in ends]
        return {time_ms: [one for one in windows if time_ms < one.end_ms] for time_ms in known}

    def takes(self, value: int, time_ms: int) -> bool:
        """Whether the filter lets a row pass."""
        if time_ms < self.landmark_ms:
            return False
        return not self.refused_multiples or value % self.refused_multiples != 0

    @property
    def key_lag_ms(self) -> int:
        """How far behind the partitions keys may be."""
        return 0 if self.watermark == "partition" else KEY_LAG_MS

    @property
    def options(self) -> Mapping[str, object]:
        """The options of a task with this query."""
        if self.counts is not None:
            return {}
        options = {**OPTIONS, "delay": f"{self.delay_ms}ms"}
        if self.buckets != "all":
            return {**options, "buckets": self.buckets}
        if self.idle_after_ms:
            return {**options, "idle_after": f"{self.idle_after_ms}ms"}
        if self.watermark != "partition":
            return {**options, "watermark": self.watermark, "key_lag": f"{KEY_LAG_MS}ms"}
        if self.lateness_ms:
            return {**options, "late": "revise", "lateness": f"{self.lateness_ms}ms"}
        if self.max_keys is None:
            return options
        policy = "fold" if self.folds else "fail"
        return {**options, "max_keys": self.max_keys, "over_max_keys": policy}


TUMBLING = Query(
    "SELECT k, ts, count(*) AS n, sum(v) AS total FROM flows GROUP BY k, ts WINDOWING 10 s",
    10_000,
    10_000,
)
FILTERED = Query(
    "SELECT k, ts, count(*) AS n, sum(v) AS total FROM flows WHERE v % 3 <> 0 "
    "GROUP BY k, ts WINDOWING 10 s",
    10_000,
    10_000,
    3,
)
SLIDING = Query(
    "SELECT k, ts, count(*) AS n, sum(v) AS total FROM flows GROUP BY k, ts "
    "WINDOWING 20 s SLIDE 10 s",
    20_000,
    10_000,
)

CUMULATING = Query(
    "SELECT k, ts, count(*) AS n, sum(v) AS total FROM flows GROUP BY k, ts "
    "WINDOWING 50 s EVERY 10 s",
    50_000,
    50_000,
    step_ms=10_000,
)

LANDMARK = Query(
    "SELECT k, ts, count(*) AS n, sum(v) AS total FROM flows GROUP BY k, ts "
    "WINDOWING LANDMARK '1970-01-01T00:02:00Z' EVERY 10 s",
    10_000,
    10_000,
    step_ms=10_000,
    landmark_ms=120_000,
)
"""Some rows lie before the landmark. The size is that of a step: what closes behind all rows."""
COUNTING = Query(
    "SELECT k, count(*) AS n, sum(v) AS total FROM flows WHERE v % 3 <> 0 GROUP BY k "
    "WINDOWING 7 ROWS SLIDE 3 ROWS",
    0,
    0,
    3,
    counts=Counting(7, 3),
)

OF_KEYS = Query(
    "SELECT k, count(*) AS n, sum(v) AS total FROM flows WHERE v % 3 <> 0 GROUP BY k "
    "WINDOWING 3 ROWS SLIDE 2 ROWS PER KEY EXPIRE 15 s",
    0,
    0,
    3,
    counts=CountingByKey(3, 2, 15_000),
)

SESSIONS = Query(
    "SELECT k, count(*) AS n, sum(v) AS total FROM flows GROUP BY k WINDOWING SESSION 6 s MAX 60 s",
    6_000,
    6_000,
    most_ms=60_000,
)

STRICT = replace(TUMBLING, max_keys=1, folds=False)
"""Sooner or later some window has two groups."""

OTHERS = "__other__"
"""The key of the row of all groups over `max_keys`."""


def revised(query: Query, lateness_ms: int) -> Query:
    """The same with short windows that wait for nothing and are revised instead."""
    assert lateness_ms >= DISORDER_MS, "rows could be too late"
    where, windowing = query.sql.split("WINDOWING")
    words = [str(int(word) // HURRY) if word.isdigit() else word for word in windowing.split()]
    return replace(
        query,
        sql=f"{where}WINDOWING {' '.join(words)}",
        size_ms=query.size_ms // HURRY,
        slide_ms=query.slide_ms // HURRY,
        step_ms=query.step_ms // HURRY,
        lateness_ms=lateness_ms,
        delay_ms=0,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One record; `key` is empty for one that cannot be read."""

    time_ms: int
    key: str
    value: int

    def encode(self) -> bytes:
        """As it lies in the topic."""
        if not self.key:
            return b"\x00 not JSON"
        return json.dumps({"ts": self.time_ms, "k": self.key, "v": self.value}).encode()


def make_rows(
    chance: random.Random, count: int, disorder_ms: int, newest_ms: int = EVENT_START_MS
) -> list[Row]:
    """One lane: event time goes on, each row is at most so far behind the newest before it."""
    rows: list[Row] = []
    newest = newest_ms + chance.randrange(3_000)
    for _ in range(count):
        newest += chance.randrange(1_500)
        behind_ms = chance.randrange(disorder_ms + 1)
        orderly = (0, 0, 0) if disorder_ms <= DELAY_MS else (0,)
        time_ms = newest - chance.choice((*orderly, behind_ms))
        key = f"k{chance.randrange(KEYS)}" if chance.random() > 0.03 else ""
        rows.append(Row(time_ms, key, chance.randrange(1, 2**31)))
    return rows


def make_keyed_rows(
    chance: random.Random, lane: int, count: int, newest_ms: int = EVENT_START_MS, *, stray: bool
) -> list[Row]:
    """One lane whose keys come in no other; one of them is slow.

    Each row is at most DELAY_MS behind the newest before it of its key, so none is late by its key.
    Where they `stray`, keys are those of all lanes and rows are behind at random.
    """
    rows: list[Row] = []
    newest = newest_ms + chance.randrange(3_000)
    for _ in range(count):
        newest += chance.randrange(5_000)
        number = chance.randrange(KEYS)
        behind_ms = chance.choice((0, chance.randrange(DELAY_MS + 1)))
        if stray:
            behind_ms += chance.choice((0, 0, 0, chance.randrange(STRAY_MS)))
        elif number == 0:
            behind_ms += SLOW_MS
        key = f"k{number}" if stray else own_key(lane, number)
        known = chance.random() > 0.03
        rows.append(Row(newest - behind_ms, key if known else "", chance.randrange(1, 2**31)))
    return rows


def newest_of(lane: int, rows: Iterable[Row]) -> int:
    """How far a lane is, were none of its keys slow: what `make_rows` and its like go on from."""
    slow = own_key(lane, 0)
    times = (row.time_ms + (SLOW_MS if row.key == slow else 0) for row in rows)
    return max(times, default=EVENT_START_MS)


def own_key(lane: int, number: int) -> str:
    """A key of one lane; number 0 is the slow one."""
    return f"l{lane}k{number}"


def last_row(key: str = "k0") -> Row:
    """The row that ends a lane."""
    return Row(LAST_MS, key, 1)


Place = tuple[str, int, Window, str]
"""Task, version, window, key."""


@dataclass(frozen=True, slots=True)
class Span:
    """What belongs to one version of a task: offsets `[starts, ends)`; no end: all that is there.

    `fences` is where the lanes of backfills end. `whole` is False for a task that was deleted: what
    it emitted must be right, but not all of it need be there.
    """

    task: str
    version: int
    query: Query
    starts: Mapping[Lane, int]
    ends: Mapping[Lane, int] | None
    whole: bool
    fences: Mapping[Lane, int] = field(default_factory=dict)

    def through(self, lane: Lane) -> int | None:
        """Where the version's part of a lane ends; None: where the lane does."""
        fence = self.fences.get(lane)
        if self.ends is None:
            return fence
        end = self.ends.get(lane, 0)
        return end if fence is None else min(end, fence)

    def holds(self, lane: Lane, offset: int) -> bool:
        """Whether an offset of a lane belongs to the version."""
        end = self.through(lane)
        return offset >= self.starts.get(lane, 0) and (end is None or offset < end)


Values = tuple[int, int]
"""Count and sum."""

Written = Mapping[int, Mapping[int, Row]]
"""Partition -> offset -> row."""


def rows_of(span: Span, written: Written) -> Iterable[Row]:
    """The rows that belong to a version, live or by a backfill."""
    for partition, rows in written.items():
        lanes = [lane for lane in span.fences if lane_partition(lane) == partition]
        for offset, row in rows.items():
            if any(span.holds(lane, offset) for lane in (live_lane(partition), *lanes)):
                yield row


def expected(span: Span, written: Written, upto_ms: int = LAST_MS) -> dict[Place, Values]:
    """Count and sum of every group of every window that ends before `upto_ms`: the last row's."""
    if span.query.counts is not None:
        return counted(span, span.query.counts, written)
    found: dict[Place, Values] = {}
    query = span.query
    rows = [
        row
        for row in rows_of(span, written)
        if row.key and query.takes(row.value, row.time_ms) and row.time_ms < upto_ms - query.size_ms
    ]
    if query.most_ms:
        return sessions(span, rows)
    windows = query.windows_of({row.time_ms for row in rows})
    for row in rows:
        for window in windows[row.time_ms]:
            place = (span.task, span.version, window, row.key)
            count, total = found.get(place, (0, 0))
            found[place] = (count + 1, total + row.value)
    return found


def sessions(span: Span, rows: Iterable[Row]) -> dict[Place, Values]:
    """The same of sessions: rows of a key that follow each other by less than the gap."""
    found: dict[Place, Values] = {}
    gap_ms, most_ms = span.query.size_ms, span.query.most_ms
    ordered = sorted(rows, key=lambda row: (row.key, row.time_ms))
    parts: list[list[Row]] = []
    for row in ordered:
        last = parts[-1][-1] if parts else None
        if (
            last is None
            or last.key != row.key
            or row.time_ms - last.time_ms >= gap_ms
            or row.time_ms // most_ms != last.time_ms // most_ms
        ):
            parts.append([])
        parts[-1].append(row)
    for part in parts:
        start_ms, cut_ms = part[0].time_ms, (part[0].time_ms // most_ms + 1) * most_ms
        window = Window(min(part[-1].time_ms + gap_ms, cut_ms), start_ms)
        place = (span.task, span.version, window, part[0].key)
        found[place] = len(part), sum(row.value for row in part)
    return found


def counted(
    span: Span, shape: Counting, written: Written, *, full: bool = False
) -> dict[Place, Values]:
    """The same of windows that count rows: those that are `full`, or are not and are the last ones
    of a version that has ended.
    """
    if isinstance(shape, CountingByKey):
        return counted_by_key(span, shape, written, full=full)
    found: dict[Place, Values] = {}
    for partition, numbered in passing(span, written).items():
        for start in range(0, len(numbered), shape.slide):
            rows = numbered[start : start + shape.size]
            if len(rows) < shape.size and (full or span.ends is None):
                break
            begin = first_place(partition) + start
            for row in rows:
                place = (span.task, span.version, Window(begin + shape.size, begin), row.key)
                count, total = found.get(place, (0, 0))
                found[place] = (count + 1, total + row.value)
    return found


def passing(span: Span, written: Written) -> dict[int, list[Row]]:
    """The rows of each partition that count for a version, in the order of their offsets."""
    return {
        partition: [
            row
            for offset, row in sorted(rows.items())
            if span.holds(live_lane(partition), offset)
            and row.key
            and span.query.takes(row.value, row.time_ms)
        ]
        for partition, rows in written.items()
    }


def recomputed(
    place: Place, query: Query, written: Written, ranges: Iterable[Range], kept: Collection[str]
) -> Values:
    """Count and sum of the rows of one group of one window that lie in these ranges.

    The group OTHERS has the rows of all groups that are not `kept` with a row of their own.
    """
    _task, _version, window, key = place
    values = [
        row.value
        for part in ranges
        for offset, row in written[lane_partition(part.lane) or 0].items()
        if part.first <= offset < part.next
        and (bool(row.key) and row.key not in kept if key == OTHERS else row.key == key)
        and window.start_ms <= row.time_ms < window.end_ms
        and query.takes(row.value, row.time_ms)
    ]
    return len(values), sum(values)


def with_others(
    span: Span, exact: Mapping[Place, Values], found: Collection[Place]
) -> dict[Place, Values]:
    """The final rows, given which groups of windows over the limit have a row of their own."""
    most = span.query.max_keys
    if most is None or not span.query.folds:
        return dict(exact)
    windows: defaultdict[Window, dict[Place, Values]] = defaultdict(dict)
    for place, values in exact.items():
        windows[place[2]][place] = values
    wanted: dict[Place, Values] = {}
    for window, groups in windows.items():
        if len(groups) <= most:
            wanted.update(groups)
            continue
        kept = {place: groups[place] for place in groups if place in found}
        assert len(kept) <= most, f"more than {most} groups have rows: {sorted(kept)}"
        folded = [groups[place] for place in groups if place not in kept]
        count, total = (sum(part) for part in zip(*folded, strict=True))
        wanted |= {**kept, (span.task, span.version, window, OTHERS): (count, total)}
    return wanted
