"""Results that are larger than Kafka takes: withheld, named, and their rows accounted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Unpack

import pytest

from mars.core.plan import Call, Column, Function, LatePolicy, Literal, ValueType
from mars.core.windows import Sliding
from mars.engine.codec.dead import DeadRange, decode_dead
from mars.protocol.ports import ResultBatch
from mars.protocol.reducer.events import CommitTransaction, Report, WriteDraft
from mars.protocol.reducer.preparation import Prepared
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from tests.unit.machines.owned_bucket import LIMITS, Bucket, only
from tests.unit.machines.reducing_rows import (
    BUCKET,
    NAME,
    OWNER,
    P0,
    SAVE_MS,
    SLIDING,
    TUMBLING,
    PlanOptions,
    RowSpec,
    balanced,
    make_entry,
    make_head,
    make_plan,
    make_slice,
    make_task,
)

LONG = "x" * 1_000
REVISE: PlanOptions = {"late": LatePolicy.REVISE, "lateness_ms": 20_000}

Sent = tuple[int, str, int | None, int, bool]
"""Window start in seconds, key, count, revision, whether it is marked as deleted."""


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result with a short key and a count of one digit is sent, one with two digits is not."""
    monkeypatch.setattr("mars.engine.finishing.RESULT_BYTES_MAX", size_of("y", 9))


def size_of(key: str, count: int) -> int:
    value = {"window_start": 0, "window_end": 10_000, "k": key, "n": count}
    return len(json.dumps(value, separators=(",", ":"))) + len(f'[0,"{key}"]')


def begin(window: Sliding = TUMBLING, **options: Unpack[PlanOptions]) -> TaskInBucket:
    return TaskInBucket(make_task(window=window, **options), OWNER, {}, SAVE_MS)


def feed(part: TaskInBucket, seq: int, first: int, rows: list[RowSpec], mark_s: int) -> Prepared:
    """A batch, and the commit after it."""
    part.absorb(make_slice(make_entry(seq, first, rows, plan=part.task.plans[1])))
    part.drained(make_head(seq, {P0: first + len(rows)}, mark_s))
    prepared = part.prepare()
    for record in prepared.progress:
        assert balanced(record.ledger)
        part.committed(record)
    return prepared


def sent(batches: tuple[ResultBatch, ...]) -> list[Sent]:
    found: list[Sent] = []
    for batch in batches:
        headers = dict(batch.headers)
        for key, value in zip(batch.keys, batch.values, strict=True):
            start_ms, name = json.loads(key)
            revision, deleted = int(headers["mars-revision"]), "mars-deleted" in headers
            found.append((start_ms // 1000, name, json.loads(value)["n"], revision, deleted))
    return found


def letters(dead: tuple[bytes, ...]) -> list[tuple[str, int, int, int, int | None]]:
    """Reason, first, next, rows and window of each reference; its key is among what it says."""
    found = []
    for raw in dead:
        letter = decode_dead(raw)
        assert isinstance(letter, DeadRange)
        assert letter.key is not None
        assert letter.key in letter.detail
        place = (letter.first, letter.next, letter.rows, letter.window_start)
        found.append((letter.reason, *place))
    return found


def test_the_others_of_its_window_come_and_its_rows_count_as_emitted() -> None:
    prepared = feed(begin(), 1, 0, [(1, "y"), (2, LONG), (3, LONG), (15, "y")], mark_s=15)

    assert sent(prepared.results) == [(0, "y", 1, 0, False)]
    assert letters(prepared.dead) == [("too_large", 0, 4, 0, 0)]
    (record,) = prepared.progress
    assert (record.ledger.counted, record.ledger.emitted, record.ledger.bad) == (4, 3, 0)
    assert record.emission is not None
    assert record.emission.count == 1
    assert "1 result is withheld" in prepared.withheld
    assert "1970-01-01 00:00:00Z" in prepared.withheld


def test_a_window_may_have_no_other() -> None:
    prepared = feed(begin(), 1, 0, [(1, LONG), (15, "y")], mark_s=15)

    (record,) = prepared.progress
    assert (prepared.results, record.emission, record.closed_ms) == ((), None, 10_000)
    assert len(prepared.dead) == 1


def test_its_key_is_cut_where_it_is_named() -> None:
    (raw,) = feed(begin(), 1, 0, [(1, LONG), (15, "y")], mark_s=15).dead
    assert len(raw) < 1_000
    assert json.loads(raw)["key"] == f'[0,"{LONG}'[:256] + "..."


def test_every_sliding_window_withholds_its_own_and_the_ledger_balances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mars.engine.finishing.RESULT_BYTES_MAX", 200)
    part = begin(SLIDING)
    first = feed(part, 1, 0, [(1, LONG), (12, "y")], mark_s=12)
    last = feed(part, 2, 2, [(45, "y")], mark_s=45)

    assert sent(first.results) == []  # that of `y` begins at 0
    assert [place[-1] for place in letters(first.dead)] == [-10_000]
    assert [place[-1] for place in letters(last.dead)] == [0]
    assert sent(last.results) == [(0, "y", 1, 0, False), (10, "y", 1, 0, False)]
    assert [one.ledger.emitted for one in (*first.progress, *last.progress)] == [0, 2]


def test_a_revision_that_is_withheld_takes_back_what_was_emitted() -> None:
    part = begin(**REVISE)
    first = feed(part, 1, 0, [*[(1, "y")] * 9, (15, "z")], mark_s=15)
    assert sent(first.results) == [(0, "y", 9, 0, False)]

    revised = feed(part, 2, 10, [(2, "y"), (3, "a")], mark_s=15)

    assert sent(revised.results) == [(0, "a", 1, 1, False), (0, "y", None, 1, True)]
    value = json.loads(revised.results[1].values[0])
    assert value == {"window_start": 0, "window_end": 10_000, "k": None, "n": None}
    assert letters(revised.dead) == [("too_large", 0, 12, 0, 0)]
    (record,) = revised.progress
    assert (record.revisions, record.ledger.counted, record.ledger.emitted) == ({0: 1}, 12, 11)


def test_what_having_refuses_is_taken_back_however_large_and_not_named() -> None:
    few = Call(
        Function.LESS,
        (Column("a0", ValueType.INT64), Literal(10, ValueType.INT64)),
        ValueType.BOOL,
    )
    plan = replace(make_plan(**REVISE), having=few)
    part = TaskInBucket(replace(make_task(**REVISE), plans={1: plan}), OWNER, {}, SAVE_MS)
    feed(part, 1, 0, [*[(1, "y")] * 9, (15, "z")], mark_s=15)

    revised = feed(part, 2, 10, [(2, "y")], mark_s=15)

    assert sent(revised.results) == [(0, "y", None, 1, True)]
    assert (revised.dead, revised.withheld) == ((), "")


def test_a_draft_withholds_what_its_commit_names_and_people_hear_once_it_is_durable() -> None:
    task = make_task(delay_ms=4_000)
    here = Bucket(task, limits=replace(LIMITS, draft_rows_min=1))
    here.own()
    here.read(make_head(1, {P0: 2}, marks_ms={P0: 13_500}), make_entry(1, 0, [(1, LONG), (2, "y")]))
    draft = only(here.machine.ticked(1), WriteDraft)
    assert sent(draft.results) == [(0, "y", 1, 0, False)]

    entry = make_entry(2, 2, [(15, "y")])
    here.read(make_head(2, {P0: 3}, marks_ms={P0: 14_000}), entry)
    commit = only(here.machine.ticked(3), CommitTransaction)

    assert commit.transaction.results == draft.results
    assert letters(commit.transaction.dead) == [("too_large", 0, 2, 0, 0)]
    told = [one for one in here.commit(commit) if isinstance(one, Report)]
    assert [(one.kind, one.bucket, one.task) for one in told] == [("withheld", BUCKET, NAME)]
    assert "1 result is withheld" in told[0].detail
