"""The thread of queries goes on after an error that nobody foresaw."""

from __future__ import annotations

import threading

import pytest

from mapper.bulk.queries import QueryWork
from mars.process.life import Life, ServiceHealth


def test_queries_are_looked_at_again_after_an_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, steps, second = Life(), list[int](), threading.Event()

    def step(_self: QueryWork) -> None:
        steps.append(1)
        if len(steps) == 1:
            raise OSError(24, "Too many open files")
        second.set()
        life.stop()

    class Desk:
        services = ServiceHealth("bulk")

        class registry:  # noqa: N801 -- stands for an attribute
            @staticmethod
            def watch(_call: object) -> None:
                return

    monkeypatch.setattr(QueryWork, "step", step)
    QueryWork("bulk-1", Desk(), alive=list).run(life)  # type: ignore[arg-type]
    assert second.is_set()
    assert "the look at queries failed" in caplog.text
