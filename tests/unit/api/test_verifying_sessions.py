"""Finished sessions computed again: what agrees, what does not, and what cannot be said."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from api.services.inside import rereading, verifying_sessions
from mars.adapters.kafka.read.rows import dead_letter
from mars.adapters.kafka.wire import state_key
from mars.core.types import Bucket, Lane, Range, Topic
from mars.engine.codec.snapshot import encode_snapshot, parts_checksum
from mars.protocol.ports import CommittedRow, Frontier, Progress, Snapshot
from mars.protocol.windows.folding import Folding
from tests.unit.api.reducing import LANES, TASK, Reducers, Row, ask, change_at
from tests.unit.api.twins import BUCKETS, World, problem

SQL = "SELECT {} count(*) AS n, sum(bytes) AS bytes FROM flows {} WINDOWING SESSION 10 s MAX 1 h"


class Buckets(Reducers):
    """What all buckets do with the rows, batch by batch."""

    def batch(
        self, rows: Sequence[Row], level_s: float, *, partition: int = 0, silent: Sequence[int] = ()
    ) -> None:
        """Rows are read, and what is over at a level is committed; not in buckets that are
        silent.
        """
        self.read(rows, partition)
        for bucket, folding in enumerate(self.foldings):
            if bucket not in silent:
                self._commit(bucket, folding, int(level_s * 1000))

    def _commit(self, bucket: int, folding: Folding, level_ms: int) -> None:
        commits, kafka = folding.state.commits, self.world.kafka
        merged = dict(self.ends)
        closing = commits.closing(level_ms, merged, caught_up=True, none_to_come=False)
        for closed in folding.state.close(folding.state.due(level_ms)):
            ranges = tuple(Range(lane, at, merged[lane]) for lane, at in closed.firsts.items())
            for key, value in zip(closed.finished.keys, closed.finished.values, strict=True):
                offset = sum(row.partition == bucket for row in kafka.rows)
                row = CommittedRow(bucket, offset, key, value, 1, 0, True, Bucket(bucket))
                kafka.rows.append(replace(row, emit=self.emits, ranges=ranges))
        letters = [dead_letter(raw) for raw in folding.input.dead]
        kafka.letters += [one for one in letters if one is not None]
        snapshot, needed = None, commits.needed(merged, closing.frontier)
        if folding.state.needs_anchor:
            snapshot = self._saved(bucket, folding, closing.frontier)
            needed = merged
        ledger = folding.ledger(commits.closed_in(closing.frontier))
        folding.committed(closing.frontier, ledger)
        has_rows = any(row.bucket == bucket for row in kafka.rows)
        closed_ms = closing.frontier.closed_ms
        self.world.commit(
            bucket, closed_ms=closed_ms, merged=merged, emit=self.emits, emits=has_rows
        )
        records = kafka.progress[Bucket(bucket)]
        older = next((one for one in records[-2:-1] if isinstance(one, Progress)), None)
        if snapshot is None and older is not None and older.snapshot is not None:
            snapshot, needed = older.snapshot, with_saved(needed, older.snapshot)
        assert isinstance(records[-1], Progress)
        records[-1] = replace(
            records[-1], needed=needed, ledger=ledger, snapshot=snapshot, anchored=True
        )

    def _saved(self, bucket: int, folding: Folding, frontier: Frontier) -> Snapshot:
        """What is open, as a commit that drops late rows saves it."""
        entry = folding.snapshot(frontier)
        assert entry is not None
        parts = encode_snapshot(entry)
        key = state_key(TASK, 1, Bucket(bucket), 0)
        offset = self.world.broker.append(Topic("mars.state"), bucket, parts[0], key=key)
        merged = dict(frontier.merged)
        return Snapshot(merged, 0, len(parts), parts_checksum(parts), offset, offset)


def with_saved(needed: Mapping[Lane, int], snapshot: Snapshot) -> dict[Lane, int]:
    return {lane: max(at, snapshot.merged[lane]) for lane, at in needed.items()}


def started(world: World, key: str = "sip,", group: str = "GROUP BY sip") -> Buckets:
    assert world.register(sql=SQL.format(key, group), start="earliest").status_code == 201
    world.start_in_store()
    return Buckets(world)


@pytest.fixture
def emitted(world: World) -> World:
    """Sessions of three groups that came in three commits; one of `a` is open."""
    reducers = started(world)
    reducers.batch([(1, "a"), (5, "b"), (8, "a"), (9, "c")], 12)
    reducers.batch([(14, "a"), (30, "b"), (31, "c")], 42)
    reducers.batch([(60, "a"), (61, "b"), (75, "b"), (95, "a")], 96)
    return world


def kinds(answer: Any) -> list[tuple[str, int, str]]:
    return [(one["kind"], *one["key"]) for one in answer["differences"]]


def change(world: World, key: list[object], **values: object) -> None:
    """Somebody changed a result."""
    change_at(world, place_of(world, key), **values)


def place_of(world: World, key: list[object]) -> int:
    return next(at for at, row in enumerate(world.kafka.rows) if json.loads(row.key) == key)


def test_the_newest_sessions_are_equal_if_their_offsets_hold_their_rows(emitted: World) -> None:
    answer = ask(emitted)

    assert (answer["equal"], answer["differences"]) == (True, [])
    assert (answer["rows"], answer["complete"], answer["versions"]) == (8, True, [1])
    assert (answer["window_start"], answer["window_end"]) == (1_000, 85_000)
    assert answer["summary"].startswith(
        "The sessions that end from 1970-01-01 00:00:15Z to 1970-01-01 00:01:25Z are equal: 8 "
        "result rows agree with "
    )


def test_a_session_that_was_changed_is_different(emitted: World) -> None:
    change(emitted, [1_000, "a"], n=9)
    assert kinds(ask(emitted)) == [("different", 1_000, "a")]


def test_a_session_that_nobody_emitted_is_missing(emitted: World) -> None:
    del emitted.kafka.rows[place_of(emitted, [31_000, "c"])]
    answer = ask(emitted)
    assert kinds(answer) == [("missing", 31_000, "c")]
    assert "1 group does not agree (1 missing)" in answer["summary"]


def test_the_only_session_of_a_bucket_may_be_missing(world: World) -> None:
    reducers = started(world)
    reducers.batch([(1, "a"), (2, "b"), (3, "c")], 40)
    gone = world.kafka.rows[place_of(world, [3_000, "c"])]
    assert sum(row.bucket == gone.bucket for row in world.kafka.rows) == 1
    world.kafka.rows.remove(gone)
    (record,) = world.kafka.progress[gone.bucket]
    assert isinstance(record, Progress)
    world.kafka.progress[gone.bucket] = [replace(record, emission=None)]
    assert kinds(ask(world)) == [("missing", 3_000, "c")]


def test_a_session_of_no_rows_and_one_that_came_twice_are_told(emitted: World) -> None:
    row = emitted.kafka.rows[place_of(emitted, [1_000, "a"])]
    forged = json.dumps(json.loads(row.value) | {"window_start": 2_000}, separators=(",", ":"))
    emitted.kafka.rows.append(replace(row, key=b'[2000,"a"]', value=forged.encode()))
    emitted.kafka.rows.append(emitted.kafka.rows[place_of(emitted, [5_000, "b"])])
    assert kinds(ask(emitted)) == [("extra", 2_000, "a"), ("doubled", 5_000, "b")]


def test_a_session_that_came_in_two_parts_is_told(emitted: World) -> None:
    """As if the row at 8 s had never been: one session of `a` came as two."""
    whole = emitted.kafka.rows[place_of(emitted, [1_000, "a"])]
    change(emitted, [1_000, "a"], window_end=11_000, n=1, bytes=0)
    other = {"window_start": 14_000, "window_end": 24_000, "sip": "a", "n": 1, "bytes": 4}
    raw = json.dumps(other, separators=(",", ":")).encode()
    emitted.kafka.rows.append(replace(whole, key=b'[14000,"a"]', value=raw))
    assert kinds(ask(emitted)) == [("different", 1_000, "a"), ("extra", 14_000, "a")]


def test_sessions_that_begin_at_a_time_are_verified_alone(emitted: World) -> None:
    change(emitted, [1_000, "a"], n=9)
    answer = ask(emitted, window_start=30_000)
    assert (answer["equal"], answer["rows"]) == (True, 1)
    assert answer["summary"].startswith("The sessions that begin at 1970-01-01 00:00:30Z are equal")
    assert kinds(ask(emitted, window_start=1_000)) == [("different", 1_000, "a")]
    assert ask(emitted, window_start=1_000, window_end=24_000)["rows"] == 1
    nothing = ask(emitted, 404, window_start=2_000)["detail"]
    assert "no results of a session that starts at 2000" in nothing


@pytest.mark.parametrize("page", [1, 10_000])
def test_rows_that_were_late_for_an_open_session_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(verifying_sessions, "LETTERS_A_PAGE", page)
    reducers = started(world)
    reducers.batch([(1, "a"), (9, "a"), (9, "b")], 9)
    reducers.batch([(0, "c")], 9)
    reducers.batch([(10, "a"), (3, "a"), (16, "b")], 12)  # 3 s is late, and its session is open
    reducers.batch([(40, "a")], 40)
    assert [letter.rows for letter in world.kafka.letters] == [1, 1]
    answer = ask(world)
    assert (answer["equal"], answer["rows"]) == (True, 2)
    assert ask(world, window_start=1_000)["equal"]


def test_nothing_is_said_to_differ_where_late_rows_are_not_known_any_more(world: World) -> None:
    reducers = started(world)
    reducers.batch([(1, "a"), (9, "a"), (9, "b")], 9)
    reducers.batch([(10, "a"), (3, "a"), (16, "b")], 12)
    reducers.batch([(40, "a")], 40)
    world.kafka.letters.clear()
    answer = world.http.get("/v1/tasks/by_sip/verify")
    assert "not all rows that came too late are named" in problem(answer, 409)["detail"]
    assert ask(world, window_start=9_000)["equal"]


def test_parts_of_an_open_session_are_not_missing(world: World) -> None:
    """Its row at 15 s lies below all that is read: without it 8 s and 24 s seem to be two."""
    reducers = started(world)
    reducers.batch([(15, "a")], 1)
    reducers.batch([(1, "b"), (8, "a"), (24, "a"), (4, "b")], 21)
    answer = ask(world)
    assert (answer["equal"], answer["rows"], answer["source_rows"]) == (True, 1, 4)


def test_sessions_of_a_query_with_having_are_compared_and_none_is_missed(world: World) -> None:
    reducers = started(world, group="GROUP BY sip HAVING count(*) > 1")
    reducers.batch([(1, "a"), (5, "b"), (8, "a"), (9, "b")], 40)
    del world.kafka.rows[place_of(world, [1_000, "a"])]
    assert ask(world)["equal"]
    change(world, [5_000, "b"], n=9)
    assert kinds(ask(world)) == [("different", 5_000, "b")]


def test_sessions_of_the_whole_stream_are_compared(world: World) -> None:
    reducers = started(world, "", "")
    reducers.batch([(1, "a"), (5, "b"), (8, "a"), (30, "b")], 60)
    answer = ask(world)
    assert (answer["equal"], answer["rows"]) == (True, 2)


def test_what_another_bucket_has_not_committed_yet_is_not_missing(world: World) -> None:
    reducers = started(world)
    reducers.batch([(1, "a"), (2, "b"), (3, "c")], 4)
    own = next(part.bucket for part in reducers.foldings if len(part.state.panes.open))
    reducers.batch([(5, "a"), (6, "b"), (7, "c")], 40, silent=[own])
    answer = ask(world)
    assert (answer["equal"], answer["differences"]) == (True, [])


def test_fewer_sessions_are_verified_where_all_are_too_many(
    emitted: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying_sessions, "SESSIONS_AT_ONCE", (100, 2))
    monkeypatch.setattr(rereading, "SOURCE_OFFSETS_MAX", 6)
    answer = ask(emitted)
    assert (answer["equal"], answer["rows"]) == (True, 2)
    monkeypatch.setattr(rereading, "SOURCE_OFFSETS_MAX", 1)
    assert "are read again here" in ask(emitted, 409)["detail"]


def test_nothing_to_verify_is_said(world: World) -> None:
    started(world).batch([(1, "a")], 2)
    assert "no session of task by_sip can be verified yet" in ask(world, 404)["detail"]


def test_what_a_bucket_has_not_read_yet_is_not_missing(world: World) -> None:
    """`c` at 2 s comes so late that its bucket, once it reads it, will drop it."""
    reducers = started(world)
    reducers.batch([(1, "a"), (3, "b"), (4, "c")], 30)
    own = world.kafka.rows[place_of(world, [4_000, "c"])].bucket
    del world.kafka.rows[place_of(world, [4_000, "c"])]
    (record,) = world.kafka.progress[own]
    assert isinstance(record, Progress)
    behind = replace(record, emission=None, merged=dict.fromkeys(LANES, 0))
    world.kafka.progress[own] = [behind]
    assert ask(world)["equal"]


def test_what_lies_before_the_newest_results_is_not_missing(world: World) -> None:
    """Rows of a commit lie in no order, and the topic may have been cut between them."""
    reducers = started(world)
    reducers.batch([(1, "a"), (30, "a"), (60, "a")], 50)
    reducers.batch([(90, "a")], 80)
    del world.kafka.rows[place_of(world, [30_000, "a"])]
    assert kinds(ask(world)) == [("missing", 30_000, "a")]
    world.kafka.rows = [replace(row, offset=row.offset + 100) for row in world.kafka.rows]
    assert ask(world)["equal"]


def test_rows_of_more_late_panes_than_are_named_are_not_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars.protocol.windows.input.LATE_WINDOWS_NAMED_MAX", 2)
    monkeypatch.setattr("mars.inspect.verifying_sessions.LATE_WINDOWS_NAMED_MAX", 2)
    reducers = started(world)
    reducers.batch([(1, "a"), (9, "a"), (18, "a")], 19)
    reducers.batch([(3, "a"), (6, "a"), (11, "a"), (27, "a")], 20)
    reducers.batch([(60, "a")], 60)
    assert sum(letter.rows for letter in world.kafka.letters) == 3
    answer = world.http.get("/v1/tasks/by_sip/verify")
    assert "not all rows that came too late are named" in problem(answer, 409)["detail"]


def test_open_sessions_are_not_looked_at_where_nothing_is_missing(
    emitted: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = emitted.services.windows
    monkeypatch.setattr(type(windows), "open_sessions", None)
    assert ask(emitted)["equal"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_is_equal_until_somebody_changes_it(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Two lanes out of order, late rows, buckets that stand still, and few results at hand."""
    chance = random.Random(seed)
    monkeypatch.setattr(verifying_sessions, "NEWEST_ROWS", chance.choice((2, 10, 1_000)))
    monkeypatch.setattr(verifying_sessions, "SESSIONS_AT_ONCE", (chance.choice((2, 10, 1_000)),))
    reducers, now = started(world), 20.0
    for _ in range(25):
        now += chance.choice((0, 1, 5, 12, 30))
        rows = [
            (max(0, now - chance.choice((0, 1, 4, 9, 15, 30))), chance.choice("abcdef"))
            for _ in range(chance.randint(1, 6))
        ]
        silent = [one for one in range(BUCKETS) if chance.random() < 0.3]
        reducers.batch(rows, now - 6, partition=chance.randrange(2), silent=silent)
    answer = ask(world)
    assert answer["equal"], answer["summary"]
    assert answer["rows"]

    newest = max(world.kafka.rows[-2:], key=lambda row: row.window)
    change(world, json.loads(newest.key), n=99)
    assert [kind for kind, *_key in kinds(ask(world))] == ["different"]
