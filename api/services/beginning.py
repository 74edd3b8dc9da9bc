"""Where a new task begins, and the history that Spark computes for it.

             first             fence
partition 3  ├──── 3@b1 ───────┤──── 3 ────▶      much history: Spark up to the fence
partition 3  ├──── 3 ──────────────────────▶      little: the mappers read all of it
files        ├──── f@b2 ──┤                       always Spark
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.callers import caller
from api.schemas import HistoryRequest, StartAt
from api.services.context import ClusterContext, Ports
from mars.core.definitions import Backfill, FileHistory, LaneSpan
from mars.core.errors import Rejected
from mars.core.locations import canonical
from mars.core.plan import Plan, Stream
from mars.core.types import Lane, Topic, backfill_lane, file_lane, live_lane

TOPIC_BACKFILL = "b1"
FILES_BACKFILL = "b2"

TEXT_ROW_BYTES = 200
"""What a row takes in a text file, about: it sets the size of a chunk, nothing else."""

PARQUET = "parquet"

CHUNKS_SEEN = 10
"""A short history is cut into so many chunks too: windows close, and a bar moves, meanwhile."""

SMALLEST_CHUNK_ROWS = 25_000
"""... but none is smaller than this for that: each costs some tenths of a second of Spark."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first offsets of a task's lanes, from when on its windows are complete, its history, and
    the time before the topic's rows that its files do not reach.
    """

    starts: Mapping[Lane, int]
    complete_from_ms: int | None
    backfills: tuple[Backfill, ...]
    unread_ms: tuple[int, int] | None


class Beginnings:
    """Finds out where a task begins."""

    def __init__(self, ports: Ports, cluster: ClusterContext) -> None:
        self._ports = ports
        self._cluster = cluster

    def time_ms(self, start: str | StartAt) -> int | None:
        """When a task begins that is registered now; None: it is not known from when its rows are.

        Windows since a landmark that is not named begin then, or a part of a step before.
        """
        if isinstance(start, StartAt):
            return start.timestamp
        return None if start == "earliest" else self._ports.now_ms()

    def of(
        self,
        plan: Plan,
        start: str | StartAt,
        history: HistoryRequest | None,
        landmark_ms: int | None = None,
    ) -> Beginning:
        """The beginning of a task. Raises Rejected for files that are none, or of no use.

        `landmark_ms`: it is no later than that, so that the first window is whole. Rows that are
        counted are read one after the other, by mappers alone.
        """
        stream, in_order = plan.stream, plan.maps_in_order
        if in_order and history is not None:
            raise Rejected(
                "history: windows of so many rows, and sessions, are read in the order of a "
                "partition, and rows of files lie in none; leave history out, or start at earliest"
            )
        if landmark_ms is not None and start != "earliest":
            start = StartAt(timestamp=max(0, landmark_ms))
        files = None if history is None else self.files(stream, history)
        topic = Topic(stream.topic)
        offsets, complete_from_ms = self._offsets(topic, start)
        spans = {} if start == "latest" or in_order else self._history(topic, offsets)
        unread_ms = None
        backfills = [self._of_topic(spans)] if spans else []
        live = offsets | {partition: span.end for partition, span in spans.items()}
        if files is not None:
            backfills.append(self._of_files(files))
            # Up to their bound the files are taken to hold all rows that the topic does not.
            unread_ms = _between(files, complete_from_ms)
            complete_from_ms = None
        starts = {live_lane(partition): offset for partition, offset in live.items()}
        for backfill in backfills:
            starts |= {lane: span.first for lane, span in backfill.lanes.items()}
        return Beginning(starts, complete_from_ms, tuple(backfills), unread_ms)

    def files(self, stream: Stream, history: HistoryRequest) -> FileHistory:
        """The files that a request names. Raises Rejected, Forbidden, Unavailable."""
        _check_location(history.files)
        location = canonical(history.files)
        caller().check_files(location)
        found = self._ports.list_history(
            location,
            history.format,
            stream,
            csv_header=history.csv_header,
            until_ms=history.until,
        )
        for file in found.files:  # a link may lead where the key may not read
            caller().check_files(file.path)
        return found

    def _offsets(self, topic: Topic, start: str | StartAt) -> tuple[dict[int, int], int | None]:
        """Start offsets per partition, and from when on windows are complete."""
        admin = self._ports.admin
        if isinstance(start, StartAt):
            return admin.offsets_at(topic, start.timestamp), start.timestamp
        if start == "earliest":
            return admin.starts(topic), None
        # The clock is read last: a row that came before the offsets were taken is then in a window
        # that began before, which is marked incomplete.
        ends = admin.ends(topic)
        return ends, self._ports.now_ms()

    def _history(self, topic: Topic, offsets: Mapping[int, int]) -> dict[int, LaneSpan]:
        """What lies between the starts and now, if it is so much that Spark is to read it."""
        fences = self._ports.admin.ends(topic)
        spans = {
            partition: LaneSpan(first, fences[partition])
            for partition, first in offsets.items()
            if first < fences.get(partition, 0)
        }
        rows = sum(span.end - span.first for span in spans.values())
        return spans if rows > self._cluster.history_rows_min else {}

    def _of_topic(self, spans: Mapping[int, LaneSpan]) -> Backfill:
        rows = sum(span.end - span.first for span in spans.values())
        return Backfill(
            TOPIC_BACKFILL,
            {backfill_lane(partition, TOPIC_BACKFILL): span for partition, span in spans.items()},
            _chunks(rows, self._cluster.chunk_rows),
            self._ports.now_ms(),
        )

    def _of_files(self, files: FileHistory) -> Backfill:
        offsets_per_row = 1 if files.format == PARQUET else TEXT_ROW_BYTES
        end = files.files[-1].next
        return Backfill(
            FILES_BACKFILL,
            {file_lane(FILES_BACKFILL): LaneSpan(0, end)},
            _chunks(end, self._cluster.chunk_rows * offsets_per_row, offsets_per_row),
            self._ports.now_ms(),
            files,
        )


def _between(files: FileHistory, topic_from_ms: int | None) -> tuple[int, int] | None:
    """The time between the bound of files and the topic's rows, as far as both are known."""
    until_ms = files.until_ms
    if until_ms is None or topic_from_ms is None or until_ms >= topic_from_ms:
        return None
    return until_ms, topic_from_ms


def _check_location(location: str) -> None:
    """Raise Rejected for a URI that says more than where files lie; it is not shown.

    What a key may read is told by the text of a location, so nothing in it may be decoded or lead
    elsewhere; and it is stored, listed and named in errors, so it holds no password. Of a path each
    character is taken as it is.
    """
    if location.startswith("/"):
        return
    if "@" in location:
        raise Rejected(
            "the location of files has an @, and others could read a user or password before it: "
            "leave it out, and give credentials to the processes that open the files"
        )
    if any(sign in location for sign in "?#%"):
        raise Rejected(
            "the location of files has one of ? # %, which mean something else in a URI: write it "
            "plainly, with * for any text; options belong to the processes that open the files"
        )


def _chunks(offsets: int, most: int, each: int = 1) -> int:
    """How many chunks of at most `most` offsets (`each` a row), some more to show progress."""
    return max(-(-offsets // most), min(CHUNKS_SEEN, offsets // (SMALLEST_CHUNK_ROWS * each)))
