"""The process that sends rows: a run during which it has died is none."""

from __future__ import annotations

import pytest

from bench.errors import BenchError
from bench.pacing import Pace, Pacer, paced
from bench.soak import _looks

PACE = Pace("127.0.0.1:1", "nowhere", partitions=1, rate=10, groups=10, window_ms=1_000)


@pytest.fixture
def dead() -> Pacer:
    """One whose process was killed."""
    pacer = Pacer(PACE)
    pacer.begin()
    pacer.check()
    pacer.stop()
    return pacer


def test_a_producer_that_has_died_is_told(dead: Pacer) -> None:
    with pytest.raises(BenchError, match="has died"):
        dead.check()
    with pytest.raises(BenchError, match="has died"):
        dead.finish()


def test_a_soak_ends_where_no_rows_come(dead: Pacer) -> None:
    with pytest.raises(BenchError, match="has died"):
        _looks([], dead, 3_600, lambda _line: None)


def test_a_block_in_which_the_producer_died_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Pacer] = []
    begin = Pacer.begin

    def noted(pacer: Pacer) -> None:
        begun.append(pacer)
        begin(pacer)

    monkeypatch.setattr(Pacer, "begin", noted)
    with pytest.raises(BenchError, match="has died"), paced(PACE):
        begun[0].stop()
