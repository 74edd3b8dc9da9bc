"""How far a log was read: which heads say something new."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mars.core.types import Lane, Mark, Sequence64, StoreEpoch
from mars.protocol.ports import Head
from mars.protocol.reducer.position import LogPosition

A, B = Lane("0"), Lane("1")
HEAD = Head(
    epoch=StoreEpoch(1),
    version=1,
    active=True,
    offsets={A: 10, B: 20},
    marks_ms={A: 1_000, B: 2_000},
    idle=frozenset(),
    seq=Sequence64(4),
    now_ms=5_000,
    log_bytes=300,
    run_id="run-1",
    born="life-1",
    begun_on="run-1",
)
LATER: dict[str, Any] = {"now_ms": 6_000, "log_bytes": 900}


def reached(first: Head, then: Head) -> LogPosition:
    position = LogPosition()
    assert position.reach(first)
    position.reach(then)
    return position


def test_time_and_the_size_of_the_log_are_no_news_while_each_lane_holds_the_watermark() -> None:
    position = reached(HEAD, replace(HEAD, **LATER))
    assert (position.looks, position.changes) == (1, 1)
    assert position.log_bytes == 900


@pytest.mark.parametrize(
    "head",
    [replace(HEAD, idle=frozenset({A})), replace(HEAD, ends={A: 10})],
    ids=["idle lanes", "lanes with an end"],
)
def test_time_is_news_where_a_lane_does_not_hold_the_watermark(head: Head) -> None:
    position = reached(head, replace(head, **LATER))
    assert (position.looks, position.changes) == (2, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": Sequence64(5)},
        {"version": 2},
        {"active": False},
        {"offsets": {A: 10, B: 21}},
        {"marks_ms": {A: 1_000, B: 2_001}},
        {"idle": frozenset({B})},
        {"ends": {B: 30}},
        {"restored": Mark(1, None)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_is_news(change: dict[str, Any]) -> None:
    position = reached(HEAD, replace(HEAD, **LATER, **change))
    assert (position.looks, position.changes) == (2, 2)
