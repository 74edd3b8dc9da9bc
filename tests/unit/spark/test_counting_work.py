"""How the tasks of a query number the rows of a lane: one range after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mars.adapters.spark.planning import plan_of_query, tasks_of
from mars.adapters.spark.work import FinishWork, MapWork, answer_of
from mars.core.errors import JobFailed
from mars.core.plan import Plan
from mars.core.types import Range, Records, live_lane
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.messages import decode
from mars.protocol.ports import QueryAnswer
from tests.contracts.bulk_jobs import flows, query_job

LANE = live_lane(3)
SQL = "SELECT count(*) FROM s WINDOWING 100 ROWS"


@dataclass(frozen=True)
class Kept:
    """A source of which Kafka has deleted a range; its batches have 30 messages at most."""

    gone: Range

    def batches(self, plan: Plan, part: Range) -> Iterator[Decoded | Range]:
        for first in range(part.first, part.next, 30):
            after = min(first + 30, part.next)
            if self.gone.first <= first < self.gone.next:
                yield Range(part.lane, first, after)
                continue
            values = flows(after - first, first)
            stamps = [-1] * len(values)
            records = Records(part.lane, first, after, values, range(first, after), stamps)
            yield decode(plan.stream, plan.fields, records)


def asked(gone: Range) -> QueryAnswer:
    job = query_job("t", Range(LANE, 0, 270), sql=SQL)
    plan = plan_of_query(job)
    tasks = tasks_of(plan, job.ranges, 90)
    assert [part.next - part.first for task in tasks for part in task] == [90, 90, 90]
    assert len(tasks) == 1
    sent = list(MapWork(plan, job.buckets, Kept(gone))(tasks))
    return answer_of(plan, job.rows_max, job.ranges, FinishWork(plan, job.rows_max)(sent))


def test_numbers_go_on_over_batches_and_ranges() -> None:
    answer = asked(Range(LANE, 0, 0))
    assert [
        b'"window_first_offset":%d,' % first in row
        for first, row in zip((0, 100, 200), answer.rows, strict=True)
    ] == [True] * 3
    assert [row.rpartition(b":")[2] for row in answer.rows] == [b"100}", b"100}", b"70}"]
    assert answer.counted == {LANE: 270}


@pytest.mark.parametrize("gone", [60, 120])
def test_rows_that_are_gone_before_the_first_have_no_numbers(gone: int) -> None:
    answer = asked(Range(LANE, 0, gone))
    assert b'"window_number":0,"window_first_offset":%d,' % gone in answer.rows[0]
    assert answer.counted == {LANE: 270 - gone}


@pytest.mark.parametrize("first", [30, 90, 240])
def test_rows_that_go_while_they_are_counted_fail_the_query(first: int) -> None:
    """What lies behind them would have numbers that it has not."""
    with pytest.raises(JobFailed, match="partition 3 while the query counted them; run the query"):
        asked(Range(LANE, first, first + 30))


def test_rows_that_are_not_counted_are_cut_as_ever() -> None:
    job = query_job("t", Range(LANE, 0, 270))
    assert len(tasks_of(plan_of_query(job), job.ranges, 90)) == 3
