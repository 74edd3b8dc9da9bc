"""Background loops outlive whatever their rounds raise, and say so."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable

import pytest

from api.services.operation.health import Health
from mars.core.types import StoreEpoch
from mars.process.life import REMIND_S, RETRY_S, Life
from mars.process.outliving import Outliving
from mars.process.telemetry.incidents import IncidentTeller, rewound


def test_a_round_that_fails_is_told_with_its_trace_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waited: list[float] = []
    now_s = 0.0
    rounds = Outliving("the loop", waited.append, lambda: now_s)
    assert rounds.round(lambda: None)
    assert not any(rounds.round(lambda: 1 // 0) for _ in range(3))
    (line,) = caplog.records
    assert (line.levelno, line.name) == (logging.ERROR, "background")
    assert "the loop failed, and goes on" in line.getMessage()
    assert line.exc_info is not None
    assert waited == [RETRY_S] * 3
    now_s = REMIND_S
    rounds.round(lambda: 1 // 0)
    assert len(caplog.records) == 2


def test_rounds_come_until_the_process_stops() -> None:
    life, seen = Life(), list[int]()

    def work() -> None:
        seen.append(1)
        if len(seen) == 3:
            life.stop()
        raise OSError(24, "Too many open files")

    Outliving("the loop", lambda _s: None).until(life, 0.0, work)
    assert len(seen) == 3


def test_a_probe_that_breaks_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    answers: queue.Queue[Callable[[], str | None]] = queue.Queue()
    answers.put(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    probed = queue.Queue[int]()

    def probe() -> str | None:
        probed.put(1)
        return answers.get_nowait()() if not answers.empty() else None

    health = Health({"kafka": probe})
    health.start()
    for _ in range(2):
        probed.get(timeout=30)
    health.stop()
    assert "the probe of kafka failed" in caplog.text


def test_incidents_are_told_after_one_that_broke_the_teller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    life, written = Life(), queue.Queue[str]()

    class Log:
        broken = True

        def put(self, incident: object) -> None:
            if Log.broken:
                Log.broken = False
                raise ZeroDivisionError
            written.put(str(incident))

    teller = IncidentTeller(Log())  # type: ignore[arg-type]
    teller.start(life)
    for number in (1, 2):
        teller.tell(rewound(StoreEpoch(number), "because"))
    assert written.get(timeout=30)
    life.stop()
    assert "the teller of incidents failed" in caplog.text
