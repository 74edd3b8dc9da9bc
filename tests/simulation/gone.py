"""What must hold in a run in which Kafka deletes rows that were still needed: each is named, each
window that lacks one says so, and nothing else is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mars.core.types import Lane, Range, Topic, lane_partition, live_lane
from mars.engine.codec.dead import DeadRange, decode_dead
from mars.protocol.ports import Ledger
from tests.simulation.cluster import Servers
from tests.simulation.rows import (
    TOPIC,
    Place,
    Query,
    Row,
    Span,
    Values,
    Written,
    expected,
    recomputed,
    rows_of,
)


@dataclass(frozen=True, slots=True)
class Emitted:
    """One result row."""

    place: Place
    revision: int
    bucket: int
    emit: int
    value: Values
    ranges: tuple[Range, ...]
    complete: bool


Version = tuple[str, int]
"""Task and version."""


class GoneRows:
    """Compares results and ledgers with all rows, and with those that are not named as gone."""

    def __init__(self, servers: Servers, written: Written, spans: Sequence[Span]) -> None:
        self._servers = servers
        self._written = written
        self._spans = spans
        self._named: defaultdict[Version, list[Range]] = defaultdict(list)
        dead = servers.broker.partition(Topic("mars.dead"), 0)
        for record in dead.committed(0, dead.stable_end):
            one = decode_dead(record.value or b"")
            if isinstance(one, DeadRange) and one.reason == "gone":
                lane = Lane(one.lane) if one.lane is not None else live_lane(one.partition or 0)
                self._named[one.task, one.version].append(Range(lane, one.first, one.next))

    def check(self, rows: Sequence[Emitted], ledgers: Callable[[Span], Iterable[Ledger]]) -> None:
        """Raises AssertionError."""
        self._named_are_gone()
        found = {row.place: row for row in rows}
        assert len(found) == len(rows), "I1: emitted twice"
        right = {place: each for span in self._spans for place, each in self._exact(span).items()}
        strange = found.keys() - right.keys()
        assert not strange, f"I1: not in the data: {sorted(strange)[:5]} of {len(strange)}"
        queries = {(span.task, span.version): span.query for span in self._spans}
        for row in rows:
            self._row(row, right[row.place], queries[row.place[:2]])
        for span in self._spans:
            if span.whole:
                self._groups(span, found)
                self._ledger(span, ledgers(span))

    def _named_are_gone(self) -> None:
        partitions = self._servers.broker.topics[Topic(TOPIC)].partitions
        for version, parts in self._named.items():
            for part in parts:
                start = partitions[lane_partition(part.lane) or 0].start
                assert part.next <= start, f"I6: {version}: {part} named as gone, Kafka has {start}"

    def _row(self, row: Emitted, right: Values, query: Query) -> None:
        """A row lacks what is named only, and says so."""
        assert row.value == right or not row.complete, f"I1: {row}: complete, but not {right}"
        others: set[str] = set()
        highest = recomputed(row.place, query, self._written, row.ranges, others)
        lowest = recomputed(row.place, query, self._left(row.place[:2]), row.ranges, others)
        for low, value, high in zip(lowest, row.value, highest, strict=True):
            assert low <= value <= high, f"I1: {row}: its ranges hold {lowest} to {highest}"

    def _groups(self, span: Span, found: dict[Place, Emitted]) -> None:
        """No group lacks a row that is not named."""
        for place, wanted in expected(span, self._left((span.task, span.version))).items():
            value = found[place].value if place in found else (0, 0)
            lacks = value[0] < wanted[0] or value[1] < wanted[1]
            assert not lacks, f"I1: {place} has {value}, and {wanted} that are not named as gone"

    def _ledger(self, span: Span, ledgers: Iterable[Ledger]) -> None:
        """I2: what became of every row that is not named."""
        known = list(ledgers)
        least = _fates(span, rows_of(span, self._left((span.task, span.version))))
        most = _fates(span, rows_of(span, self._written))
        for name, high in most.items():
            total = sum(getattr(ledger, name) for ledger in known)
            where = f"{span.task} v{span.version}"
            assert least[name] <= total <= high, f"I2: {where} {name}: {total}, not {least}, {most}"

    def _left(self, version: Version) -> dict[int, dict[int, Row]]:
        """The rows that are not named as gone."""
        left = {partition: dict(rows) for partition, rows in self._written.items()}
        for part in self._named[version]:
            rows = left[lane_partition(part.lane) or 0]
            for offset in range(part.first, part.next):
                rows.pop(offset, None)
        return left

    def _exact(self, span: Span) -> dict[Place, Values]:
        return expected(span, self._written)


def _fates(span: Span, rows: Iterable[Row]) -> dict[str, int]:
    known = list(rows)
    bad = sum(not row.key for row in known)
    filtered = sum(bool(row.key) and not span.query.takes(row.value, row.time_ms) for row in known)
    return {
        "read": len(known),
        "bad": bad,
        "filtered": filtered,
        "counted": len(known) - bad - filtered,
        "future": 0,
        "late": 0,
    }
