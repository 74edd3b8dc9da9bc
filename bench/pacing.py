"""A producer in a process of its own that sends rows at an exact rate; event time is the clock."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import msgspec
from confluent_kafka import Producer

from bench.distinct import Distinct
from bench.errors import BenchError
from bench.narrow import NarrowFlows
from bench.topics import produce
from bench.wandering import Keyed, Keys
from mars.core.plan import FieldType
from mars.local.flows import Flows

TICK_S = 0.01
"""Rows are sent in bursts this far apart; a row waits as long at the most before it is sent."""

DISORDER_MS = 500
"""Rows are at most this late; half the delay of the queries."""

FLUSH_S = 30.0
READY_S = 60.0
"""Longest start of the process: it makes the pieces of its rows first."""

_DIED = "The producer has died; see its message above."

_PREFIX = b'{"timestamp":'
_STAMP = slice(len(_PREFIX), len(_PREFIX) + 13)
"""Where the generator puts a row's event time: 13 digits until the year 2286."""


class Pace(msgspec.Struct, frozen=True):
    """What to send. Times are seconds of the epoch.

    Rows are those of `Flows`, or of `keys`; with more than one in a message, one a line.
    """

    bootstrap: str
    topic: str
    partitions: int
    rate: int
    groups: int
    window_ms: int
    rows_per_message: int = 1
    keys: tuple[Keys, ...] = ()
    narrow: bool = False
    """Fields have few values, as in `NarrowFlows`."""
    distinct: FieldType | None = None
    """Each row has a key of its own, of this type, as in `Distinct`."""


class Sent(msgspec.Struct, frozen=True):
    """What was sent. `behind_s`: the most that a burst was late; `windows`: start -> rows."""

    rows: int
    messages: int
    behind_s: float
    windows: dict[int, int]


class Pacer:
    """The process. `begin` waits until it is ready; `finish` says when to end, and waits."""

    def __init__(self, pace: Pace) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_send, args=(pace, theirs))
        self._process.daemon = True

    def begin(self) -> None:
        """Start; rows go out from now on. Raises BenchError."""
        self._process.start()
        self._heard(READY_S, f"The producer was not ready within {READY_S:.0f} s.")

    def finish(self) -> Sent:
        """End it, and get what it has sent. Raises BenchError when it has died."""
        with suppress(OSError):  # One that has died is not heard of, either.
            self._ours.send("end")
        sent = self._heard(FLUSH_S, "The producer does not end; Kafka has not taken its rows.")
        self._process.join(FLUSH_S)
        assert isinstance(sent, Sent)
        return sent

    def _heard(self, within_s: float, silence: str) -> object:
        """What the process says next; `silence` is what it means if it says nothing."""
        try:
            if not self._ours.poll(within_s):
                raise BenchError(silence)
            return self._ours.recv()
        except (EOFError, OSError) as error:
            raise BenchError(_DIED) from error

    def check(self) -> None:
        """Raises BenchError when it has died: then no rows come."""
        if not self._process.is_alive():
            raise BenchError(_DIED)

    def stop(self) -> None:
        """End it whatever it does."""
        if self._process.is_alive():
            self._process.kill()
            self._process.join(FLUSH_S)


@contextmanager
def paced(pace: Pace) -> Iterator[None]:
    """Rows go out all the while. Raises BenchError when they do not begin, or went out no more at
    the end.
    """
    pacer = Pacer(pace)
    pacer.begin()
    try:
        yield
        pacer.finish()
    finally:
        pacer.stop()


def _send(pace: Pace, parent: Connection) -> None:
    """Burst after burst until the parent speaks."""
    producer = Producer(
        {"bootstrap.servers": pace.bootstrap, "linger.ms": 1, "compression.type": "lz4"}
    )
    flows = rows_of(pace)
    windows: Counter[int] = Counter()
    parent.send("ready")
    begun, sent, messages, behind_s = time.time(), 0, 0, 0.0
    while not parent.poll():
        now = time.time()
        due = int((now - begun) * pace.rate) - sent
        if due > 0:
            rows = flows.messages(due, round((begun + sent / pace.rate) * 1000), pace.rate)
            behind_s = max(behind_s, due / pace.rate - TICK_S)
            for at in range(0, due, pace.rows_per_message):
                message = b"\n".join(rows[at : at + pace.rows_per_message])
                produce(producer, pace.topic, message, messages % pace.partitions)
                messages += 1
            windows.update(int(row[_STAMP]) // pace.window_ms * pace.window_ms for row in rows)
            sent += due
        producer.poll(0)
        time.sleep(max(0.0, TICK_S - (time.time() - now)))
    producer.flush(FLUSH_S)
    parent.send(Sent(sent, messages, behind_s, dict(windows)))


def rows_of(pace: Pace) -> Flows | Keyed | Distinct:
    """What makes the rows."""
    if pace.distinct is not None:
        return Distinct(pace.distinct)
    if pace.keys:
        return Keyed(pace.keys)
    if pace.narrow:
        return NarrowFlows(disorder_ms=DISORDER_MS)
    return Flows(groups=pace.groups, disorder_ms=DISORDER_MS)
