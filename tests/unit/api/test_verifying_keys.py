"""Windows that count the rows of each key, computed again: what agrees, what does not, and what
cannot be said.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from api.services.inside import rereading, verifying_keys
from mars.core.types import Bucket, Topic
from mars.inspect import verifying_keys as inspecting
from mars.protocol.ports import CommittedRow, Progress, RowsRecord
from mars.protocol.windows.folding import Folding
from tests.unit.api.reducing import LANES, TASK, Reducers, Row, ask, change_at
from tests.unit.api.twins import BUCKETS, World

SQL = (
    "SELECT sip, count(*) AS n, sum(bytes) AS bytes FROM flows WHERE sip <> 'x' GROUP BY sip {} "
    "WINDOWING {} ROWS SLIDE {} ROWS PER KEY EXPIRE 1 min"
)


class Buckets(Reducers):
    """What all buckets do with the rows, batch by batch."""

    def batch(self, *rows: Row, partition: int = 0, silent: Sequence[int] = ()) -> None:
        """Rows are read, and committed by all buckets that are not silent."""
        self.read(rows, partition)
        for bucket, folding in enumerate(self.foldings):
            if bucket not in silent:
                self._commit(bucket, folding)

    def _commit(self, bucket: int, folding: Folding) -> None:
        state, kafka, merged = folding.state, self.world.kafka, dict(self.ends)
        head = self.world.log.head([TASK])[TASK]
        assert head is not None
        folding.reached(head)
        level = state.level(head)
        closing = state.commits.closing(level, merged, caught_up=True, none_to_come=False)
        for closed in state.close(state.due(level)):
            for key, value in zip(closed.finished.keys, closed.finished.values, strict=True):
                offset = sum(row.partition == bucket for row in kafka.rows)
                version, complete = folding.plan.version, closed.complete
                row = CommittedRow(bucket, offset, key, value, version, 0, complete, Bucket(bucket))
                kafka.rows.append(replace(row, emit=self.emits))
        ledger = folding.ledger(state.commits.closed_in(closing.frontier))
        folding.committed(closing.frontier, ledger)
        has_rows = any(row.bucket == bucket for row in kafka.rows)
        self.world.commit(
            bucket,
            version=folding.plan.version,
            merged=merged,
            emit=self.emits,
            emits=has_rows,
        )
        last = kafka.progress[Bucket(bucket)][-1]
        assert isinstance(last, Progress)
        rows = RowsRecord(closing.frontier.closed_rows, {})
        kafka.progress[Bucket(bucket)][-1] = replace(last, rows=rows)


def started(world: World, size: int = 3, slide: int = 3, having: str = "") -> Buckets:
    sql = SQL.format(having, size, slide)
    assert world.register(sql=sql, start="earliest").status_code == 201
    world.start_in_store()
    return Buckets(world)


@pytest.fixture
def emitted(world: World) -> World:
    """In partition 0 full windows of `a` and `b`, and one that `a` has left as it fell silent."""
    reducers = started(world)
    reducers.batch((1, "a"), (2, "b"), (3, "x"), (4, "a"), (5, "b"))
    reducers.batch((6, "a"), (7, "b"), (8, "a"), (9, "c"))
    reducers.batch((90, "b"), (91, "a"), (92, "a"), (93, "a"))
    return world


def kinds(answer: Any) -> list[tuple[str, str, int]]:
    """What differs: how, the key, and the number of the window."""
    return sorted((one["kind"], one["key"][1], one["key"][3]) for one in answer["differences"])


def place_of(world: World, sip: str, number: int) -> int:
    keys = [json.loads(row.key) for row in world.kafka.rows]
    return next(at for at, key in enumerate(keys) if key[1::2] == [sip, number])


def change(world: World, sip: str, number: int, **values: object) -> None:
    """Somebody changed a result."""
    change_at(world, place_of(world, sip, number), **values)


def test_the_newest_windows_are_equal_if_all_rows_before_make_them(emitted: World) -> None:
    answer = ask(emitted)

    rows = {(json.loads(row.key)[1], json.loads(row.key)[3]) for row in emitted.kafka.rows}
    assert rows == {("a", 0), ("b", 1), ("a", 6), ("c", 7), ("a", 9)}
    assert (answer["equal"], answer["differences"], answer["rows"]) == (True, [], 5)
    assert (answer["complete"], answer["versions"], answer["source_rows"]) == (False, [1], 13)
    assert (answer["window_start"], answer["window_end"]) == (1_000, 93_000)
    assert (answer["partition"], answer["window_number"]) == (None, None)
    assert answer["summary"].startswith("The newest windows of 1 partition are equal: 5 result")


@pytest.mark.parametrize(("sip", "number"), [("a", 0), ("a", 6), ("c", 7)])
def test_a_window_that_was_changed_is_different(emitted: World, sip: str, number: int) -> None:
    change(emitted, sip, number, n=99)
    assert kinds(ask(emitted)) == [("different", sip, number)]


@pytest.mark.parametrize(("sip", "number"), [("a", 0), ("a", 9), ("a", 6)])
def test_a_window_that_nobody_emitted_is_missing(emitted: World, sip: str, number: int) -> None:
    """Also one that a silent key has left."""
    del emitted.kafka.rows[place_of(emitted, sip, number)]
    renumber(emitted)
    assert kinds(ask(emitted)) == [("missing", sip, number)]


def renumber(world: World, first: int = 0) -> None:
    """Offsets of results as if there had been no others, behind so many of each partition."""
    ends: dict[int, int] = {}
    for place, row in enumerate(world.kafka.rows):
        at = ends[row.partition] = ends.get(row.partition, first - 1) + 1
        world.kafka.rows[place] = replace(row, offset=at)


def test_the_only_window_of_a_bucket_may_be_missing(world: World) -> None:
    started(world).batch(*((at, key) for at in range(3) for key in "abcd"))
    rows = world.kafka.rows
    gone = next(one for one in rows if sum(row.bucket == one.bucket for row in rows) == 1)
    rows.remove(gone)
    (record,) = world.kafka.progress[gone.bucket]
    assert isinstance(record, Progress)
    world.kafka.progress[gone.bucket] = [replace(record, emission=None)]
    _start, sip, _partition, number = json.loads(gone.key)
    assert kinds(ask(world)) == [("missing", sip, number)]


def test_windows_of_no_rows_and_those_that_came_twice_are_told(emitted: World) -> None:
    row = emitted.kafka.rows[place_of(emitted, "a", 0)]
    value = json.loads(row.value) | {"window_number": 4}
    raw = json.dumps(value, separators=(",", ":")).encode()
    emitted.kafka.rows.append(replace(row, key=b'[1000,"a",0,4]', value=raw))
    emitted.kafka.rows.append(emitted.kafka.rows[place_of(emitted, "b", 1)])
    assert kinds(ask(emitted)) == [("doubled", "b", 1), ("extra", "a", 4)]


def test_a_window_under_a_wrong_number_is_told(emitted: World) -> None:
    """Its rows are right: which row of its partition is the first one is computed, too."""
    place = place_of(emitted, "a", 9)
    row = emitted.kafka.rows[place]
    value = json.loads(row.value) | {"window_number": 8}
    raw = json.dumps(value, separators=(",", ":")).encode()
    emitted.kafka.rows[place] = replace(row, key=b'[91000,"a",0,8]', value=raw)
    assert kinds(ask(emitted)) == [("extra", "a", 8), ("missing", "a", 9)]


@pytest.mark.parametrize(("sip", "number"), [("a", 0), ("a", 6)])
def test_a_window_that_says_wrongly_whether_it_is_full_is_told(
    emitted: World, sip: str, number: int
) -> None:
    place = place_of(emitted, sip, number)
    row = emitted.kafka.rows[place]
    emitted.kafka.rows[place] = replace(row, complete=not row.complete)
    answer = ask(emitted)
    assert (answer["equal"], answer["differences"]) == (False, [])
    assert "mars-complete is wrong in 1 row." in answer["summary"]


def test_one_window_is_verified_alone(emitted: World) -> None:
    change(emitted, "a", 0, n=99)
    answer = ask(emitted, partition=0, window_number=6)
    assert (answer["equal"], answer["rows"], answer["complete"]) == (True, 1, False)
    assert (answer["partition"], answer["window_number"]) == (0, 6)
    assert answer["summary"].startswith("Window 6 of partition 0 is equal: 1 result row agrees")
    assert kinds(ask(emitted, partition=0, window_number=0)) == [("different", "a", 0)]
    nothing = ask(emitted, 404, partition=0, window_number=3)["detail"]
    assert "no results of a window that has number 3 in partition 0" in nothing


@pytest.mark.parametrize("asked", [{"window_start": 1_000}, {"partition": 0}])
def test_no_window_is_named_otherwise(emitted: World, asked: dict[str, int]) -> None:
    assert "window_number" in ask(emitted, 422, **asked)["detail"]


def test_what_came_after_the_records_were_read_is_not_extra(emitted: World) -> None:
    row = emitted.kafka.rows[-1]
    value = json.loads(row.value) | {"window_number": 77}
    raw = json.dumps(value, separators=(",", ":")).encode()
    emitted.kafka.rows.append(replace(row, key=b'[1,"a",0,77]', value=raw, emit=row.emit + 1))
    assert ask(emitted)["rows"] == 5


def test_what_a_bucket_has_not_committed_yet_is_not_missing(world: World) -> None:
    reducers = started(world)
    reducers.batch((1, "a"), (2, "b"), (2, "a"), (3, "b"), (4, "a"), (5, "b"))
    behind = next(row.bucket for row in world.kafka.rows if b'"a"' in row.key)
    reducers.batch(*((at, key) for at in range(6, 9) for key in "ab"), silent=[behind])
    answer = ask(world)
    assert (answer["equal"], answer["rows"]) == (True, 3)


def test_windows_that_may_lie_before_the_newest_results_are_not_missing(world: World) -> None:
    """Those of a bucket's first commit at hand, and what silent keys have left."""
    reducers = started(world)
    reducers.batch(*((0, "a") for _ in range(6)))
    for begin in range(6, 12, 3):
        reducers.batch(*((begin + at, "a") for at in range(3)))
    reducers.batch((13, "a"))
    reducers.batch((100, "b"))
    reducers.batch(*((101, "a") for _ in range(3)))
    renumber(world, first=50)
    answer = ask(world)
    assert (answer["equal"], answer["rows"]) == (True, 6)
    for number in (12, 3, 0):
        del world.kafka.rows[place_of(world, "a", number)]
        assert ask(world)["equal"]


def test_a_row_that_names_no_window_is_of_somebody_else(emitted: World) -> None:
    emitted.kafka.rows[0] = replace(emitted.kafka.rows[0], value=b"{}")
    assert "somebody else wrote it" in ask(emitted, 409)["detail"]


def test_a_window_behind_the_first_commit_that_is_at_hand_is_missing(world: World) -> None:
    reducers = started(world)
    for begin in range(0, 12, 3):
        reducers.batch(*((begin + at, "a") for at in range(3)))
    renumber(world, first=50)
    del world.kafka.rows[place_of(world, "a", 6)]
    assert kinds(ask(world)) == [("missing", "a", 6)]


def test_a_query_with_having_misses_nothing(world: World) -> None:
    reducers = started(world, having="HAVING sum(bytes) > 5")
    reducers.batch(*((at, key) for at in range(3) for key in "ab"))
    reducers.batch(*((at, "a") for at in range(3, 6)))
    answer = ask(world)
    assert (answer["equal"], answer["rows"]) == (True, 3)


def test_fewer_partitions_are_read_where_all_are_too_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reducers = started(world)
    reducers.batch(*((at, "a") for at in range(3)))
    reducers.batch(*((at, "a") for at in range(3, 6)), partition=1)
    monkeypatch.setattr(rereading, "SOURCE_OFFSETS_MAX", 6)
    assert ask(world)["summary"].startswith("The newest windows of 2 partitions are equal: 2 ")
    monkeypatch.setattr(rereading, "SOURCE_OFFSETS_MAX", 5)
    answer = ask(world)
    assert answer["summary"].startswith("The newest windows of 1 partition are equal: 1 ")
    assert (answer["window_start"], answer["source_rows"]) == (3_000, 3)
    monkeypatch.setattr(rereading, "SOURCE_OFFSETS_MAX", 2)
    detail = ask(world, 409)["detail"]
    assert "PER KEY counts from the first row of the version on, so a window was counted" in detail
    assert "3 offsets, and at most 2 are read again here: let Spark compute those" in detail


def test_windows_are_not_verified_without_the_first_rows(emitted: World) -> None:
    emitted.broker.partition(Topic("flows"), 0).truncate(2)
    detail = ask(emitted, 409, partition=0, window_number=9)["detail"]
    assert "no longer has offsets 0 to 1 of lane 0, and PER KEY counts from the first" in detail


def test_rows_before_the_version_begins_are_not_read(world: World) -> None:
    assert world.register(sql=SQL.format("", 2, 2), start="earliest").status_code == 201
    for _ in range(5):
        world.broker.append(Topic("flows"), 0, b'{"timestamp": 1, "sip": "a", "bytes": 1}')
    starts = {LANES[0]: 5, LANES[1]: 0}
    world.begin_newest(starts=starts)
    world.start_in_store()
    Buckets(world, ends=starts).batch((6, "b"), (7, "a"), (8, "a"))
    answer = ask(world)
    assert (answer["equal"], answer["rows"], answer["source_rows"]) == (True, 1, 3)
    world.broker.partition(Topic("flows"), 0).truncate(5)
    assert ask(world, partition=0, window_number=1)["equal"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_is_equal_until_somebody_changes_it(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Two lanes out of order, keys that fall silent, buckets that stand still, few results."""
    chance = random.Random(seed)
    monkeypatch.setattr(verifying_keys, "NEWEST_ROWS", chance.choice((3, 20, 1_000)))
    monkeypatch.setattr(inspecting, "ROWS_WAITING_MAX", chance.choice((0, 30, 1_000)))
    size, slide = chance.choice(((3, 3), (4, 2), (5, 3), (1, 1)))
    reducers, now = started(world, size, slide), 100.0
    for _ in range(30):
        rows = []
        for _ in range(chance.randint(1, 8)):
            now += chance.choice((0, 1, 5, 12, 40))
            rows.append((now - chance.choice((0, 0, 9, 70)), chance.choice("aaabbcdex")))
        silent = [one for one in range(BUCKETS) if chance.random() < 0.3]
        reducers.batch(*rows, partition=chance.randrange(2), silent=silent)
    answer = ask(world)
    assert answer["equal"], json.dumps(answer)
    assert answer["rows"]

    row = chance.choice(world.kafka.rows[-3:])
    _start, sip, partition, number = json.loads(row.key)
    named = {"partition": partition, "window_number": number}
    assert ask(world, **named)["equal"]
    place = world.kafka.rows.index(row)
    value = json.loads(row.value) | {"n": 99}
    raw = json.dumps(value, separators=(",", ":")).encode()
    world.kafka.rows[place] = replace(row, value=raw)
    assert kinds(ask(world, **named)) == [("different", sip, number)]
    assert kinds(ask(world)) == [("different", sip, number)]
    if verifying_keys.NEWEST_ROWS == 1_000:
        del world.kafka.rows[place]
        renumber(world)
        assert kinds(ask(world)) == [("missing", sip, number)]
