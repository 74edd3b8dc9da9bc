"""The last seconds of a topic, read once by this process: no group, nothing committed.

offsets_at(now - seconds) ──▶ first          nothing came since? the newest messages instead
ends                      ──▶ end            never more than MESSAGES_MAX, BYTES_MAX, READ_S_MAX
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from mars.core.types import Lane, Records, Topic, live_lane
from mars.protocol.ports import (
    EndReached,
    Fetched,
    OffsetGone,
    SourceEvent,
    SourceReader,
    TopicAdmin,
)

MESSAGES_MAX = 200_000
"""Messages of one preview, shared among the partitions: about a second of computing."""

BYTES_MAX = 64 * 1024 * 1024
"""Of their values: what one preview reads from the brokers, and about what it holds in memory."""

READ_S_MAX = 10.0
"""Reading and computing; who waits longer looks whether it still works."""

NEWEST_MESSAGES = 1_000
"""Messages of each partition that are looked at where none came in the last seconds."""

PIECE_MESSAGES = 20_000
"""Messages in one piece: some tenths of a second between two signs of life."""

POLL_S = 0.2

YOUNG_S_MIN = 1.0
"""Seconds in which messages of a young partition came from which its rate is that since the first
of them: what one program writes at once says nothing of how much will come."""


class PreviewSource(Enum):
    """Where the rows of a preview come from."""

    LAST_SECONDS = "last_seconds"
    NEWEST = "newest"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class PreviewSpan:
    """Offsets `[first, end)` of a partition.

    `cut`: older ones of the last seconds are left out. `young`: there is none from before those.
    """

    first: int
    end: int
    cut: bool = False
    young: bool = False


@dataclass(frozen=True, slots=True)
class ToRead:
    """What there is to read of a topic; `silent` are the partitions with nothing."""

    source: PreviewSource
    spans: dict[int, PreviewSpan]
    silent: tuple[int, ...]


def to_read(admin: TopicAdmin, topic: Topic, since_ms: int) -> ToRead:
    """The last messages of a topic; no spans if it is empty. Raises Unavailable."""
    firsts, ends = admin.offsets_at(topic, since_ms), admin.ends(topic)
    starts = admin.starts(topic)
    source = PreviewSource.LAST_SECONDS
    if all(first >= ends.get(partition, 0) for partition, first in firsts.items()):
        source = PreviewSource.NEWEST
        firsts = {
            partition: max(starts.get(partition, 0), end - NEWEST_MESSAGES)
            for partition, end in ends.items()
        }
    most = MESSAGES_MAX // max(len(ends), 1)
    spans = {}
    for partition, first in sorted(firsts.items()):
        end = ends.get(partition, 0)
        if first < end:
            cut, oldest = end - first > most, starts.get(partition, 0)
            spans[partition] = PreviewSpan(max(first, end - most), end, cut, first <= oldest)
    return ToRead(source, spans, tuple(sorted(firsts.keys() - spans.keys())))


class TopicReading:
    """Reads spans of a topic; it is over when all are read, or at a limit."""

    def __init__(
        self,
        reader: SourceReader,
        topic: Topic,
        spans: dict[int, PreviewSpan],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._spans = {live_lane(partition): span for partition, span in spans.items()}
        self._left = dict(self._spans)
        self._monotonic_s = monotonic_s
        self.messages = 0
        self.bytes = 0
        self._stopped = False
        self._stamps_ms: dict[Lane, tuple[int, int]] = {}
        """The Kafka timestamps of the first and the last message of each lane."""

    def pieces(self) -> Iterator[Records]:
        """The records, per lane in the order of offsets; free it by closing the reader.

        Raises Unavailable.
        """
        for lane, span in self._left.items():
            self._reader.seek(self._topic, int(lane), span.first)
        deadline = self._monotonic_s() + READ_S_MAX
        while self._left:
            for event in self._reader.poll(PIECE_MESSAGES, POLL_S):
                yield from self._taken(event)
            if self.bytes >= BYTES_MAX or self._monotonic_s() > deadline:
                self.stop()
                return

    def stop(self) -> None:
        """Read no more, as at a limit."""
        self._stopped = bool(self._left)

    @property
    def truncated(self) -> bool:
        """Whether a limit left messages out."""
        return self._stopped or any(span.cut for span in self._spans.values())

    def seconds(self, asked: float, now_ms: int) -> dict[Lane, float]:
        """In how many seconds each lane's messages came; 0: nobody can say."""
        return {
            lane: self._seconds(lane, asked, now_ms, *stamps)
            for lane, stamps in self._stamps_ms.items()
        }

    def _seconds(
        self, lane: Lane, asked: float, now_ms: int, oldest_ms: int, newest_ms: int
    ) -> float:
        if lane in self._left:
            return max(newest_ms - oldest_ms, 0) / 1_000
        span = self._spans[lane]
        came_on = newest_ms - oldest_ms >= YOUNG_S_MIN * 1_000
        if span.cut or (span.young and came_on):
            return max(now_ms - oldest_ms, 0) / 1_000
        return asked

    def _taken(self, event: SourceEvent) -> Iterator[Records]:
        match event:
            case Fetched(records=records) if records.lane in self._left:
                span = self._left[records.lane]
                if records.next >= span.end:
                    self._done(records.lane)
                if records.values:
                    self.messages += len(records.values)
                    self.bytes += sum(len(value or b"") for value in records.values)
                    stamps = records.timestamps_ms
                    oldest, _newest = self._stamps_ms.get(records.lane, (stamps[0], 0))
                    self._stamps_ms[records.lane] = (oldest, stamps[-1])
                    yield records
            case EndReached(partition=partition) | OffsetGone(partition=partition):
                self._done(live_lane(partition))
            case _:
                pass

    def _done(self, lane: Lane) -> None:
        if self._left.pop(lane, None) is not None:
            self._reader.drop(self._topic, int(lane))
