"""What is said of messages that cannot be unpacked: where they are, and not of each again."""

from __future__ import annotations

import logging

import pytest

from mars.core.types import UNDECODABLE, Mapped, Topic
from mars.engine.decode.messages import decode
from mars.engine.kernel import map_batch
from mars.process.life import REMIND_S
from mars.process.telemetry.reminding import Reminders
from mars.process.telemetry.undecodable import UndecodableRows
from tests.unit.codec.samples import JSON, NAME, plan_of, records, row


def test_a_thing_is_told_again_after_half_a_minute_whatever_else_is() -> None:
    now_s = 100.0
    reminders = Reminders(lambda: now_s)
    assert [reminders.due(what) for what in ("a", "a", "b")] == [True, False, True]
    now_s += REMIND_S - 0.1
    assert not reminders.due("a")
    now_s += 0.1
    assert [reminders.due(what) for what in ("a", "b")] == [True, True]


def batch(lane: str, first: int, rows: int) -> Mapped:
    plan = plan_of(NAME, fields=["at", "name"])
    values = [row(at=1, name="a"), *[UNDECODABLE] * rows, b"{"]
    return map_batch(plan, 4, decode(JSON, plan.fields, records(values, first, lane=lane)))


def test_a_line_names_partition_and_offsets_once_for_all_tasks_and_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = UndecodableRows(logging.getLogger("mapper"))
    with caplog.at_level(logging.WARNING):
        for mapped in (batch("0", 10, 300), batch("0", 10, 300), batch("0", 900, 5)):
            told.tell(Topic("flows"), mapped)
        told.tell(Topic("flows"), batch("1", 50, 1))
        told.tell(Topic("flows"), batch("2", 50, 0))
    first, second = (one.getMessage() for one in caplog.records)
    assert "flows partition 0: 300 messages from offset 11 to 310" in first
    assert "flows partition 1: 1 messages from offset 51 to 51" in second
