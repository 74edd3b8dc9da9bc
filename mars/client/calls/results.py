"""What comes out of a task."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from mars.client.answers import FinishedWindows, MissedResults, ResultEvent, Task
from mars.client.calls.base import Calls, task_path, window_query
from mars.client.cluster_file import find_kafka
from mars.client.wire import events
from mars.core.errors import Unavailable
from mars.core.settings import KafkaSettings, load
from mars.core.types import TaskName, Topic

if TYPE_CHECKING:
    from mars.adapters.kafka.read.groups import KafkaResultConsumer

SILENCE_S = 60.0
"""Longest silence of an event stream: the API sends a comment every 15 s."""


class ResultCalls(Calls):
    """Read results of a task, and follow them as they come."""

    def results(
        self,
        name: str,
        *,
        window_start: int | None = None,
        window_end: int | None = None,
        partition: int | None = None,
        window_number: int | None = None,
        limit: int | None = None,
    ) -> FinishedWindows:
        """The last finished windows, or one; `window_end` is needed where windows cumulate.

        `partition` and `window_number` name one that counts rows, of the task's current version.
        """
        query = {
            **window_query(window_start, window_end, partition, window_number),
            "limit": limit,
        }
        return self._call("GET", f"{task_path(name)}/results", FinishedWindows, query=query)

    def tail(
        self,
        name: str,
        *,
        after: str | None = None,
        reached: Callable[[str], None] | None = None,
        missed: Callable[[MissedResults], None] | None = None,
    ) -> Generator[ResultEvent, None, None]:
        """Result rows as they are committed, from now on; close the iterator to end it.

        `after` is the `id` of an event: rows behind it come first. `reached` is told from where
        one can go on: where it begins, and behind each row once the next one is asked for.
        `missed` is told of rows that Kafka had deleted before they were read. The connection is
        made by the first `next`. Raises Unavailable when the API goes away.
        """
        resumed = {} if after is None else {"Last-Event-ID": after}
        pieces = self._connection.pieces(
            f"{task_path(name)}/results",
            headers={"Accept": "text/event-stream", **resumed},
            silence_s=SILENCE_S,
        )
        with closing(pieces):
            yield from events(pieces, reached or _ignore, missed or _ignore)

    def consume(
        self,
        name: str,
        *,
        group: str,
        kafka: str | None = None,
        begin: Mapping[int, int] | None = None,
        silence_s: float | None = None,
    ) -> KafkaResultConsumer:
        """Iterate over all result rows, read from Kafka by a consumer group that keeps its place.

        `kafka` is its address [default: MARS_KAFKA_BOOTSTRAP, else that of the cluster that runs on
        .mars, else 127.0.0.1:9092; further MARS_KAFKA_* count, too];
        `begin` names offsets by partition, and leaves the group alone; with `silence_s` it ends
        when no row came for so long, once the group has let it in. Rows come when windows close:
        a silence that is shorter than a window gives what is there, and does not wait for the
        next. See `KafkaResultConsumer` for what it promises. Raises NotFound, Unavailable.
        """
        # Whoever only talks to the API does without Kafka's library.
        from mars.adapters.kafka.read.groups import KafkaResultConsumer  # noqa: PLC0415

        output = self._call("GET", task_path(name), Task).output
        if output is None:
            raise Unavailable("api", f"it does not say which topic the results of {name} go to")
        settings = load(None)
        if kafka is None and settings.kafka.bootstrap == KafkaSettings().bootstrap:
            kafka = find_kafka(self._connection.address)
        if kafka is not None:
            settings = replace(settings, kafka=replace(settings.kafka, bootstrap=kafka))
        return KafkaResultConsumer(
            settings,
            Topic(output.topic),
            TaskName(name),
            group,
            begin=begin,
            silence_s=silence_s,
        )


def _ignore(_told: object) -> None:
    """Nobody asks for it."""
