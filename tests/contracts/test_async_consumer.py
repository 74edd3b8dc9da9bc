"""Results as a program with an event loop reads them, on a real Kafka: each row handled once."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress

import pytest

from mars.adapters.kafka.read.groups import KafkaResultConsumer
from mars.aio import AsyncResultConsumer
from mars.core.errors import MarsError, NotFound
from mars.core.types import Topic
from tests.contracts.kafka_servers import KafkaCluster
from tests.contracts.test_result_consumer import SILENCE_S, TASK, write

pytestmark = pytest.mark.integration

JOINED_S = 30.0
"""For a first row: the group has let the consumer in by then."""

SOON_S = 10.0
"""To leave a group takes some round trips; whoever waits for a row would wait for ever."""


def consumer(
    kafka: KafkaCluster, topic: Topic, group: str, *, silence_s: float | None = SILENCE_S
) -> AsyncResultConsumer:
    return AsyncResultConsumer(
        lambda: KafkaResultConsumer(kafka.settings, topic, TASK, group, silence_s=silence_s)
    )


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


def test_each_row_is_handled_once_over_several_runs(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(20))
    handled: list[int] = []

    async def run(most: int) -> None:
        async with consumer(kafka_cluster, topic, group) as rows:
            async for row in rows:
                handled.append(row.row["number"])
                if len(handled) == most:
                    break

    for most in (7, 14, 99):
        asyncio.run(run(most))
    assert sorted(handled) == list(range(20))


def test_row_whose_handling_failed_comes_again_and_no_other(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(10))
    handled: list[int] = []

    async def fail() -> None:
        async with consumer(kafka_cluster, topic, group) as rows:
            async for row in rows:
                if len(handled) == 4:
                    raise ZeroDivisionError
                handled.append(row.row["number"])

    async def finish() -> None:
        async with consumer(kafka_cluster, topic, group) as rows:
            handled.extend([row.row["number"] async for row in rows])

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())
    asyncio.run(finish())
    assert sorted(handled) == list(range(10))


def test_waits_with_a_time_limit_lose_no_row_and_double_none(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(1)
    handled: list[int] = []

    async def next_number(rows: AsyncResultConsumer) -> int | None:
        with suppress(TimeoutError):
            return int((await asyncio.wait_for(anext(rows), 0.01)).row["number"])
        return None

    async def run(first: int) -> None:
        """Handle five of ten rows; the wait for the next one is given up when the block ends."""
        deadline_s = time.monotonic() + JOINED_S
        async with consumer(kafka_cluster, topic, group, silence_s=None) as rows:
            while len(handled) < first + 5:
                assert time.monotonic() < deadline_s
                found = await next_number(rows)
                if found is not None:
                    handled.append(found)

    write(kafka_cluster, topic, range(0, 20, 2))
    for first in (0, 5):
        asyncio.run(run(first))
    assert handled == list(range(0, 20, 2))


def test_program_that_is_cancelled_ends_soon_and_its_row_in_hand_comes_again(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(1)
    write(kafka_cluster, topic, [0, 2])
    taken: list[int] = []

    async def take(endless: bool) -> None:
        async with consumer(kafka_cluster, topic, group, silence_s=None) as rows:
            async for row in rows:
                taken.append(row.row["number"])
                if not endless and len(taken) % 2 == 0:
                    await asyncio.sleep(JOINED_S)

    async def cancelled(*, endless: bool, after: int) -> float:
        task = asyncio.create_task(take(endless))
        async with asyncio.timeout(JOINED_S):
            while len(taken) < after:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        begun_s = time.monotonic()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return time.monotonic() - begun_s

    # While the second row is being handled, and then while a third one is waited for.
    assert asyncio.run(cancelled(endless=False, after=2)) < SOON_S
    assert taken == [0, 2]
    assert asyncio.run(cancelled(endless=True, after=3)) < SOON_S
    assert taken == [0, 2, 2]


def test_frame_has_all_rows_and_they_are_handled_at_the_end(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(4))

    async def frame() -> list[int]:
        async with consumer(kafka_cluster, topic, group) as rows:
            return sorted(row["number"] for row in (await rows.df()).to_dicts())

    async def endless() -> None:
        async with consumer(kafka_cluster, topic, group, silence_s=None) as rows:
            await rows.df()

    assert asyncio.run(frame()) == [0, 1, 2, 3]
    assert asyncio.run(frame()) == []
    with pytest.raises(MarsError, match="silence_s"):
        asyncio.run(endless())


def test_topic_that_does_not_exist_is_named(kafka_cluster: KafkaCluster, group: str) -> None:
    async def run() -> None:
        async with consumer(kafka_cluster, Topic("none"), group):
            raise AssertionError

    with pytest.raises(NotFound, match="no topic"):
        asyncio.run(run())
