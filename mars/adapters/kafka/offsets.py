"""Where partitions begin and end, asked of the brokers; safe for threads.

Consumers ask, although the admin client has a call for it (`list_offsets`): that one looks for the
leaders of the partitions in the thread of its caller. Where it does not know one of them yet, and
is told of topics or of the cluster at this moment, its own thread goes on with the same question,
and frees what the first is still using: the process ends by a segmentation fault, a lock at address
zero (librdkafka 2.16.0, `rd_kafka_topic_partition_list_query_leaders_async`). What the consumers
have for it works in one thread, up to the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException, TopicPartition

from mars.adapters.kafka.asking import Asker, go_on
from mars.adapters.kafka.config import slice_reader_properties
from mars.adapters.kafka.errors import NO_LEADER, kafka_error, translated
from mars.adapters.kafka.names import Place
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import Topic

BEGINNING = -2
END = -1
"""What Kafka takes in place of a time, for the lowest offset and for the one behind the last."""

ASK_AGAIN_S = (0.05, 1.0)
"""Between two questions of where a partition ends: first, and at last, doubled each time."""

LEADER_WAIT_S = 10.0
"""How long a partition may be without a leader that answers: it was made or has moved just now. The
some hundred of a cluster with 64 buckets took a busy broker six seconds."""

ASKING_AT_ONCE_MAX = 16
"""Questions under way; further ones wait. Each has a thread, which is made when it is needed."""


class KafkaOffsets:
    """Asks for offsets of any partitions; `within_s` is for each question.

    It has two clients, each made when it is first needed: the isolation level is a client's.
    """

    def __init__(self, settings: Settings, within_s: float) -> None:
        self._settings = settings
        self._within_s = within_s
        self._askers: dict[bool, Asker[Consumer]] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(ASKING_AT_ONCE_MAX, thread_name_prefix="offsets")

    def ask(
        self,
        places: Collection[Place],
        time_ms: int,
        *,
        committed: bool = True,
        stop: Callable[[], None] = go_on,
        patient: bool = True,
    ) -> dict[Place, int]:
        """Of each place the first offset at or after a time, in one request to each broker.

        For a time behind the last record it is -1; BEGINNING and END serve as times, too. Unless
        `committed`, records count of which nobody knows yet whether they are. `stop` is called
        again and again, and raises when nobody wants the answer any more. Raises Unavailable, also
        if one of the places is not there, for which it waits if `patient`.
        """
        if not places:
            return {}
        asker = self._asker(committed)
        deadline = time.monotonic() + (LEADER_WAIT_S if patient else 0.0)
        wait_s, longest_s = ASK_AGAIN_S
        with translated():
            while True:
                question = self._put(asker.client, places, time_ms, all_or_none=True)
                try:
                    return asker.answer(question, stop)
                except KafkaException as error:
                    problem = kafka_error(error)
                    moved = problem is not None and problem.code() in NO_LEADER
                    if not moved or time.monotonic() > deadline:
                        raise
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_s)
                # Told that a partition is led by another broker, the client keeps asking the one
                # it knows for minutes. All topics: asking for one may make it.
                asker.client.list_topics(timeout=self._within_s)

    def known(self, places: Collection[Place], time_ms: int) -> dict[Place, int]:
        """The same of committed records, at once, without the places that have no answer just now.

        Raises Unavailable if that are all of them.
        """
        asker = self._asker(committed=True)
        with translated():
            question = self._put(asker.client, places, time_ms, all_or_none=False)
            found = asker.answer(question)
            if len(found) < len(places):
                asker.client.list_topics(timeout=self._within_s)  # see above
        return found

    def _put(
        self, client: Consumer, places: Collection[Place], time_ms: int, *, all_or_none: bool
    ) -> Future[dict[Place, int]]:
        try:
            return self._threads.submit(self._asked, client, places, time_ms, all_or_none)
        except RuntimeError as error:  # of the interpreter, once its main thread has ended
            raise Unavailable("kafka", "this process is stopping") from error

    def _asker(self, committed: bool) -> Asker[Consumer]:
        with self._lock:
            if committed not in self._askers:
                member = f"{self._settings.member or 'mars'}-offsets"
                properties = slice_reader_properties(self._settings, member, committed=committed)
                self._askers[committed] = Asker(Consumer, properties)
            return self._askers[committed]

    def _asked(
        self, client: Consumer, places: Collection[Place], time_ms: int, all_or_none: bool
    ) -> dict[Place, int]:
        asked = [TopicPartition(topic, partition, time_ms) for topic, partition in places]
        found = client.offsets_for_times(asked, self._within_s)
        errors = [place.error for place in found if place.error is not None]
        if errors and (all_or_none or len(errors) == len(found)):
            raise KafkaException(errors[0])
        return {
            (Topic(place.topic), place.partition): place.offset
            for place in found
            if place.error is None
        }
