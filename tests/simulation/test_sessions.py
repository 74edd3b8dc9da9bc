"""Sessions, while rows come late, owners change, rows are cut anew, and the store is lost anywhere.

Which rows are late depends on when commits are made. So each row is known in the results by a bit
of its own: whatever happens it is in one session, or counted as late, and sessions are what their
rows make of them.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from mars.core.plan import Field, FieldType
from mars.core.types import Lane, Partial, Records, TaskName, Topic
from mars.core.windows import Session
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import Applied
from mars.protocol.reducer.snapshots import Snapshots
from mars.protocol.runnable import RunnableTask
from mars.protocol.windows.closers import Arrived
from mars.protocol.windows.sessions import session_state
from mars.sql import compile_task
from tests.simulation.test_counting import LANES, Run
from tests.unit.machines.reducing_rows import NAME, STREAM, make_task
from tests.unit.machines.reducing_world import BUCKETS

ROWS = 120
SEEDS = 25
WITH_IDS = replace(STREAM, fields=(*STREAM.fields, Field("id", FieldType.INT64)))
KEYS = ("a", "b", "c", "d", "e", "f", "g", "h")
DELAY_S = 3
GAP_S, MOST_S = 10, 60
UNTIL_PROGRESS = 250
"""Rounds of a reducer until M is committed without rows."""
FAR_S = 100_000
"""When the rows come that close everything."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a lane: event time in seconds, key, and its number among those of the key."""

    at: int
    key: str
    number: int


@dataclass(frozen=True, slots=True)
class Found:
    """A session that was emitted, and which rows are in it."""

    version: int
    key: str
    start: int
    end: int
    rows: tuple[Row, ...]
    complete: bool


class SessionRun(Run):
    """One task with sessions, fed in batches that are cut anywhere."""

    def __init__(self, chance: random.Random, *, idle: bool = False) -> None:
        super().__init__(chance, Session(GAP_S * 1_000, MOST_S * 1_000))  # type: ignore[arg-type]
        self.idle = idle
        numbers: Counter[str] = Counter()
        self.sent = {lane: list(self._rows(chance, numbers)) for lane in LANES}
        self.known = {(row.key, row.number): row for lane in LANES for row in self.sent[lane]}

    def _rows(self, chance: random.Random, numbers: Counter[str]) -> Iterator[Row]:
        """Bursts and pauses, some rows out of order by more than the delay."""
        at = 100
        for _ in range(ROWS):
            at += chance.choice((0, 0, 1, 2, 5, 9, 14, 25))
            key, back = chance.choice(KEYS), chance.choice((0, 0, 0, 2, 6, 11, 20))
            yield Row(max(0, at - back), key, numbers[key])
            numbers[key] += 1
        yield Row(FAR_S, "end", numbers["end"])
        numbers["end"] += 1

    def _task(self, versions: Sequence[object]) -> RunnableTask:
        task = make_task(*versions)  # type: ignore[arg-type]
        plans = {
            number: compile_task(
                "SELECT k, count(*) AS n, sum(id) AS ids FROM flows GROUP BY k "
                f"WINDOWING SESSION {GAP_S} s MAX {MOST_S} s",
                task=TaskName(NAME),
                version=number,
                stream_of=lambda _name: WITH_IDS,
                options={"delay": f"{DELAY_S}s"},
            )
            for number in task.plans
        }
        return replace(task, plans=plans)

    def _append(self, lane: Lane, version: int, first: int, after: int, number: int) -> object:
        plan = self.task.plans[version]
        values = [
            json.dumps({"ts": row.at * 1_000, "k": row.key, "id": 2**row.number}).encode()
            for row in self.sent[lane][first:after]
        ]
        offsets = range(first, after)
        records = Records(lane, first, after, values, offsets, [-1] * len(offsets))
        mapped = map_batch(plan, BUCKETS, decode(WITH_IDS, plan.fields, records))
        return self.world.store.append(NAME, self.world.store_epoch, version, mapped)

    def _step(self) -> None:
        super()._step()
        if self.idle and self.chance.random() < 0.1:
            self.world.lease(NAME)
            self.reducer.run(self.chance.randrange(1, 6))

    def run(self, *, version_after: int | None = None) -> None:
        """Then a row comes in each lane that closes everything."""
        super().run(version_after=version_after)
        for lane in LANES:
            version = self.task.definition.current.version
            assert isinstance(self._append(lane, version, ROWS, ROWS + 1, 0), Applied)
        self.reducer.run(UNTIL_PROGRESS)

    # ------------------------------------------------------------------------------ results

    def sessions(self) -> list[Found]:
        """All that was emitted; no row of it twice."""
        found: list[Found] = []
        seen: set[Row] = set()
        for partition in self.world.broker.topics[Topic(f"mars.results.{NAME}")].partitions:
            for record in partition.committed(0, partition.stable_end):
                row, headers = json.loads(record.value or b""), dict(record.headers)
                assert json.loads(record.key or b"") == [row["window_start"], row["k"]]
                ids = row["ids"]
                rows = tuple(
                    self.known[row["k"], bit] for bit in range(ids.bit_length()) if ids >> bit & 1
                )
                assert len(rows) == row["n"], f"a row counts twice in {row}"
                assert not seen & set(rows), f"emitted twice: {seen & set(rows)}"
                seen |= set(rows)
                found.append(
                    Found(
                        int(headers["mars-version"]),
                        row["k"],
                        row["window_start"] // 1_000,
                        row["window_end"] // 1_000,
                        rows,
                        headers["mars-complete"] == b"1",
                    )
                )
        return found

    def late(self) -> int:
        """How many rows came too late."""
        return sum(record.ledger.late for record in self.world.newest())

    def lane_lates(self) -> set[Row]:
        """Rows further behind the rows before them in their lane than the delay."""
        behind: set[Row] = set()
        for lane in LANES:
            mark = 0
            for row in self.sent[lane]:
                if row.at < mark - DELAY_S:
                    behind.add(row)
                mark = max(mark, row.at)
        return behind


def check(run: SessionRun) -> None:
    """Each row is in one session, or late; sessions are what their rows make of them."""
    sessions = run.sessions()
    emitted = {row for one in sessions for row in one.rows}
    lost = [row for row in run.known.values() if row not in emitted and row.key != "end"]
    assert len(lost) == run.late(), f"{len(lost)} rows are in no session: {lost}"
    for one in sessions:
        times = sorted(row.at for row in one.rows)
        cell = times[0] // MOST_S * MOST_S
        assert (one.start, one.end) == (times[0], min(times[-1] + GAP_S, cell + MOST_S)), one
        assert all(after - before < GAP_S for before, after in pairwise(times)), one
        assert times[-1] < cell + MOST_S, one
    by_key: defaultdict[tuple[int, str], list[Found]] = defaultdict(list)
    for one in sessions:
        by_key[one.version, one.key].append(one)
    for own in by_key.values():
        for before, after in pairwise(sorted(own, key=lambda one: one.start)):
            assert after.start >= before.end, f"they touch: {before}, {after}"
    if not run.idle:
        assert set(lost) <= run.lane_lates(), "I1: a row within the delay is late"
    for record in run.world.newest():
        ledger = record.ledger
        assert ledger.read == ledger.counted + ledger.late, record


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_row_is_in_one_session_or_late_whatever_fails(seed: int) -> None:
    run = SessionRun(random.Random(seed))
    run.run()

    check(run)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_so_it_is_where_lanes_fall_idle_and_come_back(seed: int) -> None:
    run = SessionRun(random.Random(seed), idle=True)
    run.run()

    check(run)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_new_version_begins_with_sessions_of_its_own(seed: int) -> None:
    chance = random.Random(seed)
    run = SessionRun(chance)
    run.run(version_after=chance.randrange(5, 30))

    assert len(run.task.definition.versions) == 2
    check(run)


def test_without_anchors_late_rows_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = session_state.SessionState.judge

    def judged(self: session_state.SessionState, partial: Partial, *, accounted: bool) -> Arrived:
        arrived = judge(self, partial, accounted=accounted)
        self.needs_anchor = False
        return arrived

    monkeypatch.setattr(session_state.SessionState, "judge", judged)
    assert any(map(fails, range(SEEDS)))


def test_rows_read_again_for_another_bucket_do_not_bring_a_late_row_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """b@5 is emitted, b@14 is late while nothing of its bucket is open, and b@21 opens a session.

    The session of a, in another bucket, has the lane read again from its beginning.
    """
    monkeypatch.setattr(Snapshots, "is_due", lambda *_args: False)
    run = SessionRun(random.Random(1))
    lanes = ("1a 5b 9a 18a 20a 14b 21b", "20a 22a")
    numbers: Counter[str] = Counter()
    for lane, rows in zip(LANES, lanes, strict=True):
        run.sent[lane] = []
        for at, key in ((int(word[:-1]), word[-1]) for word in rows.split()):
            run.sent[lane].append(Row(at, key, numbers[key]))
            numbers[key] += 1
        run.sent[lane].append(Row(FAR_S, "end", numbers["end"]))
        numbers["end"] += 1
    run.known = {(row.key, row.number): row for lane in LANES for row in run.sent[lane]}
    first, second = LANES
    for lane, count in ((first, 5), (second, 1), (first, 1), (first, 1)):
        run.feed(lane, count)
        run.reducer.run(UNTIL_PROGRESS if count == 1 else 0)
    assert run.late() == 1
    run.lose_store()
    while run.head.offsets[first] < 7:
        run.feed(first, 7 - run.head.offsets[first])
    while run.head.offsets[second] < 1:
        run.feed(second, 1)
    run.reducer.run(UNTIL_PROGRESS)
    for lane, end in ((first, 8), (second, 3)):
        while run.head.offsets[lane] < end:
            run.feed(lane, 1)
    run.reducer.run(UNTIL_PROGRESS)

    check(run)
    assert {(one.start, one.end) for one in run.sessions() if one.key == "b"} == {(5, 15), (21, 31)}


def fails(seed: int) -> bool:
    """Whether a row is doubled, lost, or in a session that is none."""
    run = SessionRun(random.Random(seed))
    run.run()
    try:
        check(run)
    except AssertionError:
        return True
    return False
