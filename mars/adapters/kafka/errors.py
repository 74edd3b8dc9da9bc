"""The one table from librdkafka's errors to ours.

Nothing of the client library gets out of this package: calls stand in `with translated():`, and
errors that come as events are turned by `unavailable`.
"""

# ruff: noqa: SLF001 -- librdkafka marks the codes of its own with an underscore, but they are public
from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager

from confluent_kafka import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
)

from mars.core.errors import SettingsError, TopicRefused, Unavailable

PARTITION_EOF = KafkaError._PARTITION_EOF
OFFSETS_LOST = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._LOG_TRUNCATION,
    }
)
"""A reader asked for an offset that is not there, or no more."""

TIMED_OUT = KafkaError._TIMED_OUT
ALL_BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN
UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)

NO_LEADER = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._DESTROY_BROKER,
    }
)
"""A partition was made or has moved just now. The last two are the client's: it knows a leader of
none of those that were asked for, or that broker has left the cluster with the question."""

UNANSWERED = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
    }
)
"""Nothing came back, be it the brokers' fault or the client's own."""

OUTPUT_REFUSALS = UNKNOWN_TOPIC | {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
}
"""What is wrong with a topic or a row, whoever writes it and whenever."""

TOPIC_REFUSALS = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
    }
)
"""What Kafka says of one topic that is to be looked at or made; waiting does not change it."""

_AWAY = "no connection; check that it runs and that kafka.bootstrap is right"
_SLOW = "no answer in time; check the brokers"
_REFUSED = "it refuses the credentials; check kafka.sasl_mechanism, name and password"
_FORBIDDEN = "the user may not do this; allow it the source topics and all that begins with mars."
_MOVING = "a leader is being elected; wait"
_COPIES = "too few brokers hold copies; start those that are missing"
_GONE = "there is no such topic; create it again"
_LARGE = (
    "a record is too large; select less text, or raise max.message.bytes of the topic and "
    "message.max.bytes in kafka.extra (1 MB unless set)"
)
_OLD = "the broker is too old; Mars needs Kafka 2.5 or newer"

_SENTENCES: dict[int, str] = {
    KafkaError._ALL_BROKERS_DOWN: _AWAY,
    KafkaError._TRANSPORT: _AWAY,
    KafkaError._RESOLVE: _AWAY,
    KafkaError.BROKER_NOT_AVAILABLE: _AWAY,
    KafkaError.NETWORK_EXCEPTION: _AWAY,
    KafkaError._TIMED_OUT: _SLOW,
    KafkaError._TIMED_OUT_QUEUE: _SLOW,
    KafkaError._MSG_TIMED_OUT: _SLOW,
    KafkaError._WAIT_COORD: _SLOW,
    KafkaError.REQUEST_TIMED_OUT: _SLOW,
    KafkaError._AUTHENTICATION: _REFUSED,
    KafkaError.SASL_AUTHENTICATION_FAILED: _REFUSED,
    KafkaError.ILLEGAL_SASL_STATE: _REFUSED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: _REFUSED,
    KafkaError._SSL: "the TLS handshake failed; check kafka.security_protocol and kafka.ssl_*",
    KafkaError.SECURITY_DISABLED: "it has no security; set kafka.security_protocol to plaintext",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _FORBIDDEN,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _FORBIDDEN,
    KafkaError.LEADER_NOT_AVAILABLE: _MOVING,
    KafkaError.NOT_LEADER_FOR_PARTITION: _MOVING,
    KafkaError.NOT_CONTROLLER: _MOVING,
    KafkaError.NOT_COORDINATOR: _MOVING,
    KafkaError.COORDINATOR_NOT_AVAILABLE: _MOVING,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: _MOVING,
    KafkaError.OFFSET_NOT_AVAILABLE: _MOVING,
    KafkaError.REPLICA_NOT_AVAILABLE: _MOVING,
    KafkaError.FENCED_LEADER_EPOCH: _MOVING,
    KafkaError.UNKNOWN_LEADER_EPOCH: _MOVING,
    KafkaError.NOT_ENOUGH_REPLICAS: _COPIES,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _COPIES,
    KafkaError.INVALID_REPLICATION_FACTOR: "lower kafka.replication_factor or start more brokers",
    KafkaError.KAFKA_STORAGE_ERROR: "a broker cannot write; look at its disk and its log",
    KafkaError.POLICY_VIOLATION: "a policy of the cluster forbids it; look at the broker's log",
    KafkaError.TOPIC_EXCEPTION: (
        "Kafka refuses the name, or another topic's differs only in . and _; choose another"
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: _GONE,
    KafkaError._UNKNOWN_TOPIC: _GONE,
    KafkaError._UNKNOWN_PARTITION: _GONE,
    KafkaError.MSG_SIZE_TOO_LARGE: _LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _LARGE,
    KafkaError.UNSUPPORTED_VERSION: _OLD,
    KafkaError._UNSUPPORTED_FEATURE: _OLD,
}
_FULL = (
    "this process has no room for another client, it can have some 1,000 at most: start more "
    "reducers, so that each owns fewer buckets, and so has fewer clients"
)
_OTHER = "the call failed; check the broker's log"

REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
"""A broker is there, and lets us not in."""

AWAY = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, *REFUSALS})
"""No broker can be talked to; it is over when one answers. Lesser errors a client mends itself."""

FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)

MOVED = frozenset({KafkaError._STATE, KafkaError._UNKNOWN_PARTITION})
"""A partition is another member's of the group now."""

CALL_FAILED = (KafkaException, SystemError)
"""What a call of the client raises when Kafka says no. The SystemError is a slip of the client's:
it raises a fatal error in the middle of other callbacks, and the interpreter notices."""

_CLIENT_ERRORS = (
    *CALL_FAILED,
    BufferError,
    FutureTimeoutError,
    ConcurrentModificationException,
    IllegalStateException,
)


@contextmanager
def translated() -> Iterator[None]:
    """Turn whatever a call of the client raises into `Unavailable`."""
    try:
        yield
    except _CLIENT_ERRORS as error:
        raise unavailable(kafka_error(error) or str(error)) from error


def refusal(topic: str, error: KafkaException) -> TopicRefused | None:
    """What to say if it is this topic that is wrong, and not the brokers."""
    problem = kafka_error(error)
    if problem is None or problem.code() not in TOPIC_REFUSALS:
        return None
    refused = TopicRefused(topic, unavailable(problem).detail)
    refused.__cause__ = error
    return refused


@contextmanager
def configured() -> Iterator[None]:
    """Turn what the client says of its properties into `SettingsError`.

    What it says when there are too many of it becomes `Unavailable`.
    """
    try:
        yield
    except RuntimeError as error:
        raise Unavailable("kafka", f"{_FULL} ({error})") from error
    except (KafkaException, TypeError, ValueError) as error:
        detail = kafka_error(error)
        text = detail.str() if detail else str(error)
        raise SettingsError(f"[kafka] cannot be used: {text}; check kafka.extra too.") from error


def kafka_error(error: BaseException) -> KafkaError | None:
    """The error that a KafkaException carries, or the one behind a SystemError."""
    if isinstance(error, SystemError) and error.__cause__ is not None:
        return kafka_error(error.__cause__)
    first = error.args[0] if error.args else None
    return first if isinstance(first, KafkaError) else None


def unavailable(error: KafkaError | str) -> Unavailable:
    """The error of ours for one of the client's: what to do, and the client's own words."""
    if isinstance(error, str):
        return Unavailable("kafka", f"{_SLOW} ({error})" if error else _SLOW)
    sentence = _SENTENCES.get(error.code(), _OTHER)
    return Unavailable("kafka", f"{sentence} ({error.str()})")
