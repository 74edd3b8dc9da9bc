"""The loop of a mapper process: how much it asks for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mapper.loop import POLL_RECORDS_MAX, MapperLoop
from mars.machines.mapping import Mapping
from mars.machines.mapping_events import LIVE
from mars.process.life import Services


class Reader:
    """Notes what is asked of it, and has nothing."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def poll(self, records_max: int, _timeout_s: float) -> list[object]:
        self.asked.append(records_max)
        return []

    def lags(self) -> dict[object, int]:
        return {}


class NoTasks:
    def poll(self) -> dict[str, object]:
        return {}


class NeverDue:
    def due(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("batch", "asked"), [(500, 500), (10 * POLL_RECORDS_MAX, POLL_RECORDS_MAX)]
)
def test_a_poll_takes_no_more_than_a_batch_may_hold(batch: int, asked: int) -> None:
    reader, nothing = Reader(), cast(Any, None)
    loop = MapperLoop(
        Mapping(8, rows_max=batch, bytes_max=10**6, linger_ms=0),
        readers={LIVE: cast(Any, reader)},
        log=nothing,
        registry=nothing,
        coordinator=nothing,
        tasks=cast(Any, NoTasks()),
        reporter=cast(Any, NeverDue()),
        services=Services("mapper"),
        poll_s=0.0,
        records_max=batch,
    )
    loop.round()
    assert reader.asked == [asked]
