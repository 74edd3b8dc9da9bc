"""The source of rounds as Spark calls it, and what happens when a query ends; without Spark."""

from __future__ import annotations

import pickle
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql.streaming.datasource import ReadAllAvailable

from mars.adapters.spark import rounds
from mars.adapters.spark.rounds import (
    PLANNER_FILE,
    Rounds,
    RoundsReader,
    RoundsSource,
)
from mars.core.errors import MarsError, Unavailable
from mars.core.settings import Settings

ALL = ReadAllAvailable()


class Say:
    """A work that gives two outcomes."""

    def __init__(self, word: bytes) -> None:
        self._word = word

    def __call__(self) -> Iterator[bytes]:
        yield self._word
        yield self._word + b"!"


class Listed:
    """A planner with so many rounds left."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.closed = False

    def pending(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def plan(self) -> Sequence[Say]:
        return [Say(b"a"), Say(b"b")]

    def close(self) -> None:
        self.closed = True


class Ending:
    """Stops after some waits."""

    def __init__(self, waits: int) -> None:
        self._left = waits

    @property
    def stopping(self) -> bool:
        return self._left <= 0

    def wait(self, timeout_s: float) -> bool:
        assert timeout_s > 0
        self._left -= 1
        return self.stopping


def test_a_round_follows_the_last_one_while_something_is_pending() -> None:
    reader = RoundsReader(Listed(2))
    first = reader.latestOffset(reader.initialOffset(), ALL)
    second = reader.latestOffset(first, ALL)
    assert first != second
    assert reader.latestOffset(second, ALL) == second


def test_a_round_has_a_partition_for_each_work_and_an_empty_one_none() -> None:
    reader = RoundsReader(Listed(1))
    assert len(reader.partitions({"round": 3}, {"round": 4})) == 2
    assert reader.partitions({"round": 4}, {"round": 4}) == []


def test_an_executor_runs_works_and_has_no_planner() -> None:
    there = pickle.loads(pickle.dumps(RoundsReader(Listed(1))))
    (one, _other) = RoundsReader(Listed(1)).partitions({"round": 0}, {"round": 1})
    batches = list(there.read(pickle.loads(pickle.dumps(one))))
    assert [batch.to_pydict() for batch in batches] == [
        {"outcome": [b"a"]},
        {"outcome": [b"a!"]},
    ]
    with pytest.raises(RuntimeError, match="plans nothing"):
        there.latestOffset({"round": 0}, ALL)


def test_the_planner_is_made_where_it_plans_and_closed_with_the_query() -> None:
    with rounds._folder(planner_of_two_rounds) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        reader = RoundsSource({"folder": str(folder)}).streamReader(None)
        assert reader.latestOffset({"round": 0}, ALL) == {"round": 1}
        lazy = reader._here()
        assert isinstance(lazy, rounds._LazyPlanner)
        planner = lazy._made
        assert isinstance(planner, Listed)
        reader.stop()
        assert planner.closed
        assert (folder / PLANNER_FILE).exists()
    assert not folder.exists()


def planner_of_two_rounds() -> Listed:
    return Listed(2)


Failing = Callable[[Rounds, Ending], None]


def failing(problem: Exception) -> Failing:
    def query(_self: Rounds, _stop: Ending) -> None:
        raise problem

    return query


def noticed(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> tuple[Rounds, list[str]]:
    """Rounds of which every query fails, run for a while, and what was told."""
    told: list[str] = []

    def notice(error: MarsError | None) -> None:
        assert error is not None
        told.append(str(error))

    monkeypatch.setattr(Rounds, "_query", failing(problem))
    made = Rounds(Settings(), planner_of_two_rounds, lambda _raws: None, notice)
    made.run(Ending(3))
    return made, told


def test_a_query_that_fails_is_told_of_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _rounds, told = noticed(monkeypatch, Unavailable("spark", "no core is free\nand a plan"))
    assert told == ["spark is not available: no core is free"] * 3


def test_a_session_whose_java_process_is_gone_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten: list[bool] = []
    monkeypatch.setattr(rounds, "forget_session", lambda: forgotten.append(True))
    _rounds, told = noticed(monkeypatch, Py4JNetworkError("Answer from Java side is empty"))
    assert forgotten == [True] * 3
    assert "Java process is gone" in told[0]


def test_a_session_that_cannot_be_opened_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_session(_settings: Settings, name: str) -> None:
        opened.append(name)
        raise Unavailable("spark", "no Java")

    monkeypatch.setattr(rounds, "open_session", open_session)
    told: list[MarsError | None] = []
    Rounds(Settings(), planner_of_two_rounds, lambda _raws: None, told.append).run(Ending(2))
    assert opened == ["mapper", "mapper"]
    assert [str(one) for one in told] == ["spark is not available: no Java"] * 2


def test_no_folder_is_left_behind_by_a_query_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def query() -> None:
        with rounds._folder(planner_of_two_rounds):
            assert len(list(tmp_path.iterdir())) == 1
            raise Unavailable("spark", "gone")

    with pytest.raises(Unavailable):
        query()
    assert list(tmp_path.iterdir()) == []
