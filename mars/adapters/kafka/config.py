"""The properties of our Kafka clients: one function per kind of client.

What is a matter of taste can be changed by `kafka.extra`; what our correctness rests on cannot.
Limits are set here, each with its reason. What librdkafka has to say goes to the logger of that
name, which is silent unless `kafka.extra` sets `log_level` or `debug`: what goes wrong is reported
to us too, and raised as an error of ours.
"""

from __future__ import annotations

import logging
from typing import Any

from mars.adapters.kafka.names import Names
from mars.adapters.probe import kafka_properties
from mars.core.settings import Settings
from mars.core.types import Bucket
from mars.engine.decode.limits import KAFKA_BATCH_BYTES_MAX
from mars.protocol.ports.queries import QueryId

Properties = dict[str, Any]
"""Strings, numbers and booleans, as librdkafka reads them, and objects of its Python binding."""

_silent = logging.getLogger("mars.adapters.kafka.silent")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

SESSION_TIMEOUT_MS = 6_000
"""A killed mapper's partitions go to the others after this; the least that brokers allow."""

HEARTBEAT_MS = 500
"""How soon a member hears of a rebalance, of which a moving partition needs two."""

MAX_POLL_INTERVAL_MS = 60_000
"""A mapper polls many times a second: one that is silent for so long hangs, others go on."""

METADATA_REFRESH_MS = 5_000
"""How soon new topics and partitions are seen; they are promised within 10 s."""

FETCH_QUEUE_KBYTES = 4_096
"""Prefetched values per partition. Four partitions at full speed cost 65 MB of memory in all, and
more is not faster: 32 MiB cost 116 MB at the same speed."""

FETCH_BYTES_MAX = 1_048_576
"""Per partition and request; larger ones were not faster. A larger message is still delivered."""

FETCH_ANSWER_BYTES_MAX = 52_428_800
"""All partitions together in one answer; the client's default."""

FETCH_BACKOFF_MS = 2
"""How long the fetcher sleeps when the queue is full; the default of 1 s empties the queue."""

FETCH_BYTES_MIN = 16 * 1024
END_WAIT_MS = 50
"""The broker waits for so many bytes of all partitions that a fetch asks for, and for so long at
most; then it confirms the ends, too. If it answered each row, a topic of many partitions at a
modest rate would make hundreds of requests a second, each for all of its partitions."""

RESULT_ROWS_QUEUED_MAX = 10_000
RESULT_KBYTES_QUEUED_MAX = 131_072
"""Records of one transaction that are on their way to the broker: whoever writes more waits. A row
takes more than a kilobyte in the client, whatever its size: six headers, each an object."""

RESULT_LINGER_MS = 100
"""Longest time that rows of a transaction wait in the client for those that are being handed over:
whoever has handed a request over asks for it to be sent."""

UNKNOWN_TOPIC_MS = 5_000
"""A topic that the brokers do not know for so long does not exist."""

SOCKET_TIMEOUT_MS = 10_000
"""A request without an answer fails after this; the default is a minute."""

RECONNECT_MAX_MS = 1_000
"""How soon a broker that is back is noticed; the default is 10 s."""


GROUP_COMMIT_MS = 1_000
"""How often a consumer of results commits: what a killed one handles again at most."""


def mapper_properties(settings: Settings, member: str) -> Properties:
    """A mapper's consumer, in the group of the mappers.

    The classic protocol with `cooperative-sticky`: partitions that stay are read on during a
    rebalance. The newer one (KIP-848, `group.protocol=consumer`) leaves the session time-out to
    the broker, whose lowest value is 45 s: so long would a killed mapper's partitions lie idle.
    """
    return {
        **_reader_properties(settings, member),
        "group.id": Names(settings.namespace).mappers,
        "partition.assignment.strategy": "cooperative-sticky",
    }


def lone_reader_properties(settings: Settings, member: str) -> Properties:
    """A consumer outside of any group, which reads what it is told to."""
    return {
        **_reader_properties(settings, member),
        "group.id": Names(settings.namespace).readers,
    }


def _reader_properties(settings: Settings, client: str) -> Properties:
    return {
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
        "queued.max.messages.kbytes": FETCH_QUEUE_KBYTES,
        "fetch.message.max.bytes": FETCH_BYTES_MAX,
        "fetch.queue.backoff.ms": FETCH_BACKOFF_MS,
        "fetch.min.bytes": FETCH_BYTES_MIN,
        "fetch.wait.max.ms": END_WAIT_MS,
        **_client_properties(settings, client),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "receive.message.max.bytes": KAFKA_BATCH_BYTES_MAX,
        # What is said here is bounded by that.
        "fetch.max.bytes": FETCH_ANSWER_BYTES_MAX,
        "message.max.bytes": FETCH_BYTES_MAX,
    }


def consumer_properties(settings: Settings, group: str) -> Properties:
    """A consumer of results in a group of the user's; what was stored is committed by itself."""
    return {
        "partition.assignment.strategy": "cooperative-sticky",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": GROUP_COMMIT_MS,
        **_client_properties(settings, f"{group}-consumer"),
        "group.id": group,
        "enable.partition.eof": True,
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
    }


def slice_reader_properties(
    settings: Settings, member: str, *, committed: bool = True
) -> Properties:
    """A consumer that reads a known stretch of a partition and stops.

    A stretch that begins before what is left of the partition is read from there. Not `committed`:
    it reads aborted records, too, and those of open transactions.
    """
    return {
        **lone_reader_properties(settings, member),
        # The end of a stretch is often a commit marker: the broker confirms it after this. And the
        # next stretch begins when the last question for the one before is answered.
        "fetch.wait.max.ms": 1,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
    }


def transaction_properties(settings: Settings, member: str, bucket: Bucket) -> Properties:
    """The producer of one bucket's transaction."""
    transactional_id = Names(settings.namespace).transactional_id(bucket)
    return {
        "linger.ms": RESULT_LINGER_MS,
        **_transactional(settings, f"{member}-bucket-{bucket}", transactional_id),
    }


def answer_properties(settings: Settings, member: str, query: QueryId) -> Properties:
    """The producer of one query's answer."""
    transactional_id = Names(settings.namespace).query_transactional_id(query)
    return _transactional(settings, f"{member}-{query}", transactional_id)


def _transactional(settings: Settings, client: str, transactional_id: str) -> Properties:
    return {
        # CPU of client and broker together, per row with its headers: none 5.7 us, lz4 4.9,
        # zstd 4.7.
        "compression.type": "lz4",
        "queue.buffering.max.messages": RESULT_ROWS_QUEUED_MAX,
        "queue.buffering.max.kbytes": RESULT_KBYTES_QUEUED_MAX,
        "topic.metadata.propagation.max.ms": UNKNOWN_TOPIC_MS,
        **_client_properties(settings, client),
        "acks": "all",
        "enable.idempotence": True,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.reducer.transaction_timeout_ms,
    }


def control_properties(settings: Settings, member: str) -> Properties:
    """The producer of `mars.control` and of `mars.incidents`: a few records an hour."""
    return {
        "linger.ms": 0,
        "message.timeout.ms": SOCKET_TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": UNKNOWN_TOPIC_MS,
        **_client_properties(settings, f"{member}-control"),
        "acks": "all",
        "enable.idempotence": True,
    }


def admin_properties(settings: Settings, member: str) -> Properties:
    """The client that asks about topics and offsets."""
    return _client_properties(settings, f"{member}-admin")


def _client_properties(settings: Settings, client: str) -> Properties:
    def ignore(_error: object) -> None:
        """Without this, a fatal error is thrown into whatever callback is running."""

    wanted = {"log_level", "debug"} & settings.kafka.extra.keys()
    return {
        "logger": logging.getLogger("librdkafka") if wanted else _silent,
        "log_level": 0,
        "error_cb": ignore,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
        "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
        "client.id": client,
        **kafka_properties(settings.kafka),
    }
