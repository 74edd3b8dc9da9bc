"""The consumer of an executor's process, once it hears nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from mars.adapters.spark import reading
from mars.adapters.spark.lane_work import LaneWork, Share, Unread, decode_outcome
from mars.adapters.spark.reading import TopicSource, discard_consumers
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import Lane, Range
from tests.unit.machines.mapping_world import BUCKETS, EPOCH, TOPIC, make_plan

PART = Range(Lane("0"), 0, 10)


class Deaf:
    """A consumer to which no broker's answer comes."""

    open: ClassVar[list[Deaf]] = []

    def __init__(self, _properties: object) -> None:
        self.open.append(self)

    def assign(self, places: object) -> None:
        pass

    def unassign(self) -> None:
        assert self in self.open

    def consume(self, _rows: int, _timeout_s: float) -> list[object]:
        return []

    def close(self) -> None:
        self.open.remove(self)


@pytest.fixture(autouse=True)
def deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    discard_consumers()
    monkeypatch.setattr(reading, "Consumer", Deaf)
    monkeypatch.setattr(reading, "SILENCE_S", 0.0)
    yield
    discard_consumers()


def in_bulk() -> None:
    """A history's job, or a query's."""
    with pytest.raises(Unavailable, match="no row up to offset 10 came"):
        list(TopicSource(Settings(), TOPIC).batches(make_plan("a"), PART))


def in_a_round() -> None:
    """The work of a mapper on Spark."""
    share = Share(make_plan("a").task, (1, 0), EPOCH, 1, make_plan("a"), PART)
    work = LaneWork(Settings(), TOPIC, PART, BUCKETS, 10**9, (share,))
    (outcome,) = map(decode_outcome, work())
    assert isinstance(outcome, Unread)
    assert "no row up to offset 10 came" in outcome.detail


@pytest.mark.parametrize("read", [in_bulk, in_a_round])
def test_a_consumer_that_hears_nothing_is_not_used_again(read: Callable[[], None]) -> None:
    read()
    assert Deaf.open == []
