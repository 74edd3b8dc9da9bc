"""Finds out that a client has gone deaf: its partition has more, and nothing comes of it.

librdkafka (seen with 2.16.0) can lose a partition that loses its leader and has it again within
some milliseconds, as when a broker stood still for longer than its session with the controller:
no error, no message, and to assign the partition anew does not help. A new client does.
https://github.com/confluentinc/librdkafka/issues/5430 and /pull/5593 describe how it comes about.

It can also lose all its brokers, those of `kafka.bootstrap` among them, and connect to none any
more: a broker that the controller has fenced, for it stood still, answers that the cluster has no
brokers at all (issue 5301; seen with 2.16.1, in one of some fifty groups at a stop of 11 s). A new
client does here, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.names import Place
from mars.core.errors import Unavailable
from mars.core.types import Topic

DEAF_S = 15.0
"""Between two looks. A client whose position lies at the first below the end, and is the same at
the second, is deaf: one that hears gets what there is within milliseconds."""

ENDS_S = 1.0
"""For the answer where partitions end; a broker that lives needs milliseconds."""

BROKER_S = 1.0
"""For the question whether a client has a broker to ask; one that has gets its answer in time."""

Positions = Mapping[Place, int]


class Deafness:
    """Compares how far a client is with the ends of its partitions, now and then.

    `admin` asks for these, not by way of the client.
    """

    def __init__(self, admin: KafkaTopicAdmin) -> None:
        self._admin = admin
        self._behind: Positions = {}
        self._due_s = 0.0

    def reason(self, positions: Positions, now_s: float) -> str | None:
        """Why the client is deaf: of which partitions nothing came since the last look."""
        if now_s < self._due_s:
            return None
        self._due_s = now_s + DEAF_S
        before, self._behind = self._behind, {}
        try:
            ends = self._ends(positions)
        except Unavailable:
            return None  # whose fault it is cannot be told
        self._behind = {place: at for place, at in positions.items() if ends.get(place, at) > at}
        deaf = sorted(place for place, at in self._behind.items() if before.get(place) == at)
        names = ", ".join(f"{topic}[{partition}]" for topic, partition in deaf)
        return f"no more rows come from {names}, although there are more" if deaf else None

    def _ends(self, places: Positions) -> Positions:
        """The last stable offsets; who polls does not wait long for them. Raises Unavailable."""
        deadline = time.monotonic() + ENDS_S

        def stop() -> None:
            if time.monotonic() > deadline:
                raise Unavailable("kafka", f"no answer within {ENDS_S:.0f} s; check the brokers")

        return self._admin.stable_ends(places, stop)

    def forget(self, place: Place) -> None:
        """Its reading begins anew."""
        self._behind = {one: at for one, at in self._behind.items() if one != place}


class Stalled:
    """Asks whether a client that hears nothing still has a broker."""

    def __init__(self) -> None:
        self._failed = False
        self._due_s = 0.0

    def heard(self, now_s: float) -> None:
        """Something came: there is one."""
        self._failed, self._due_s = False, now_s + DEAF_S

    def reason(self, client: Consumer, topics: Sequence[Topic], now_s: float) -> str | None:
        """Why it is cut off: it had none at this look, nor at the one `DEAF_S` before.

        It is asked for the first of the topics; a reader of none needs no broker.
        """
        if not topics or now_s < self._due_s:
            return None
        self._due_s = now_s + DEAF_S
        before, self._failed = self._failed, not _answers(client, topics[0])
        return "no broker was found for some time" if before and self._failed else None


def _answers(client: Consumer, topic: Topic) -> bool:
    try:
        client.list_topics(topic, BROKER_S)
    except KafkaException:
        return False
    return True
