"""The invariants, checked on what lies in Kafka and in the store when all is done."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from mars.adapters.kafka.wire import decode_progress
from mars.core.types import Bucket, StoreEpoch, TaskName, Topic, lane_partition, live_lane
from mars.core.windows import Counting, CountingByKey, Window
from mars.core.windows.counting import WindowNumber
from mars.engine.codec.result_headers import decode_ranges
from mars.protocol.ports import Claim, Ledger, Progress
from tests.simulation.cluster import BUCKETS, Servers
from tests.simulation.gone import Emitted, GoneRows
from tests.simulation.keyed import seen_in
from tests.simulation.lateness import Lateness
from tests.simulation.rows import (
    LAST_MS,
    OTHERS,
    Place,
    Query,
    Row,
    Span,
    Values,
    counted,
    expected,
    passing,
    recomputed,
    rows_of,
    with_others,
)
from tests.simulation.users import Users
from tests.support.progress import GROWING


@dataclass(slots=True)
class _Read:
    """What was read of a bucket's progress, below a stable end: it does not change any more."""

    records: list[Progress | Claim] = field(default_factory=list)
    end: int = 0


class Checks:
    """What must hold at the end of a run, and whether it has come to its end.

    `late`: whether rows may be late. `apart`: whether the groups of a window close apart.
    `lateness`: which rows may be late. `gone`: whether Kafka has deleted rows.
    """

    def __init__(
        self,
        servers: Servers,
        users: Users,
        written: dict[int, dict[int, Row]],
        *,
        late: bool = False,
        apart: bool = False,
        lateness: Lateness | None = None,
        gone: bool = False,
    ) -> None:
        self._late = late or lateness is not None
        self._lateness = lateness
        self._gone = gone
        self._apart = apart
        self._servers = servers
        self._users = users
        self._written = written
        self._spans: list[Span] = []
        self._exact: list[tuple[Span, dict[Place, Values]]] = []
        self._read: dict[Bucket, _Read] = {Bucket(number): _Read() for number in range(BUCKETS)}
        self._newest_read: dict[tuple[TaskName, int, Bucket], Progress] = {}
        """Of what was read, the newest record of each bucket of each version."""

    def begin(self) -> None:
        """All rows are written, all versions have begun: what is wanted is known."""
        self._spans = self._users.spans()
        self._exact = [(span, expected(span, self._written)) for span in self._spans]

    # ---------------------------------------------------------------------------------- the end

    def drained(self) -> bool:
        """Each bucket of each version has accounted for all rows and emitted all windows."""
        return self._failed_where_it_must() and all(
            self._accounted(record, span) and self._finished(record, span)
            for span, record in self._standing()
        )

    def accounted(self) -> bool:
        """Each bucket of each version has accounted for all rows."""
        return all(self._accounted(record, span) for span, record in self._standing())

    def _standing(self) -> Iterator[tuple[Span, Progress | None]]:
        """The newest record of each bucket of each version that is there to the end."""
        newest = self._newest()
        for span in self._spans:
            for bucket in range(BUCKETS if span.whole else 0):
                yield span, newest.get((TaskName(span.task), span.version, Bucket(bucket)))

    def _failed_where_it_must(self) -> bool:
        """The task that is over its limit has stopped, if it is."""
        for span, exact in self._exact:
            if span.query.max_keys is not None and not span.query.folds:
                groups = Counter(start for _task, _version, start, _key in exact)
                over = any(number > span.query.max_keys for number in groups.values())
                return not over or self._users.overfull_failed()
        return True

    def _accounted(self, record: Progress | None, span: Span) -> bool:
        if record is None:
            return False
        for lane in [*map(live_lane, self._written), *span.fences]:
            end = span.through(lane)
            if end is None:
                log = self._servers.broker.partition(Topic("flows"), lane_partition(lane) or 0)
                end = log.stable_end
            if record.merged.get(lane, 0) < end:
                return False
        return True

    def _finished(self, record: Progress | None, span: Span) -> bool:
        """Its windows are closed, and nothing is owed to those that rows came late for."""
        if record is None or record.owed:
            return False
        if span.ends is not None:
            return record.ledger.open == 0
        if span.query.counts is not None:
            return self._has_closed_full_windows(record, span, span.query.counts)
        if span.query.most_ms and not record.ledger.open:
            return True
        last_end_ms = LAST_MS - span.query.delay_ms - span.query.key_lag_ms - span.query.size_ms
        return (record.closed_ms or 0) >= last_end_ms

    def _has_closed_full_windows(self, record: Progress, span: Span, shape: Counting) -> bool:
        closed = {} if record.rows is None else record.rows.closed
        if isinstance(shape, CountingByKey):
            full = seen_in(span, self._written)
        else:
            full = {
                live_lane(partition): shape.closed_by(len(rows))
                for partition, rows in passing(span, self._written).items()
            }
        return all(closed.get(lane, 0) == rows for lane, rows in full.items())

    def standing(self) -> str:
        """Where everything is, for a run that does not come to its end."""
        newest = self._newest()
        lines = [f"spans {self._spans}", f"assignment {self._servers.ensemble.assignment}"]
        lines += [f"{key} {record}" for key, record in sorted(newest.items())]
        for name, task in sorted(self._servers.store.tasks.items()):
            lines.append(
                f"store {name}: E{task.epoch} v{task.version} active={task.active} "
                f"{task.offsets} seq={task.seq} bytes={task.log_bytes()} cuts={task.cuts} "
                f"bounds={task.bounds} marks={task.marks_ms}"
            )
        lines.append(f"sealed {self._servers.store.sealed} run {self._servers.store.run_id}")
        lines += [f"{name}: {info}" for name, info in self._servers.ensemble.registered.items()]
        lines += [str(task) for task in self._servers.registry.tasks().values()]
        return "\n".join(lines)

    # ------------------------------------------------------------------------------- invariants

    def all(self, *, lossy: bool = False) -> None:
        """Raises AssertionError. `lossy`: entries vanished, so windows may lack rows, and ledgers
        do; but nothing is doubled or invented.
        """
        self._references()
        if lossy:
            self._no_more_than_there_is()
            return
        if self._gone:
            GoneRows(self._servers, self._written, self._spans).check(
                list(self._emitted()), self._ledgers
            )
            for bucket in range(BUCKETS):
                self._progress(Bucket(bucket))
            assert not self._servers.watch.problems, self._servers.watch.problems[:5]
            return
        if self._late:
            self._results_less_late_rows()
        else:
            self._results()
            self._complete()
        self._ranges()
        for bucket in range(BUCKETS):
            self._progress(Bucket(bucket))
        for span in self._spans:
            if span.whole:
                self._ledger(span)
        assert not self._servers.watch.problems, self._servers.watch.problems[:5]

    def _references(self) -> None:
        """Nobody sees in `mars.dead` what settles aborts."""
        for partition in self._servers.broker.topics[Topic("mars.dead")].partitions:
            for record in partition.committed(0, partition.stable_end):
                assert record.value, f"I6: no reference, but what settles aborts: {record}"

    def _results(self) -> None:
        """I1, of the newest revision of each group."""
        rows = list(self._emitted())
        _check_revisions(rows, apart=self._apart)
        found = _newest_values(rows)
        wanted: dict[Place, Values] = {}
        allowed: dict[Place, Values] = {}
        for span, exact in self._exact:
            final = with_others(span, exact, found)
            if not span.whole and span.query.lateness_ms:  # its last revisions need not be there
                final |= {place: found[place] for place in final.keys() & found.keys()}
            (wanted if span.whole else allowed).update(final)
        lost = wanted.keys() - found.keys()
        assert not lost, f"I1: never emitted: {sorted(lost)[:5]} of {len(lost)}"
        right = wanted | allowed
        strange = found.keys() - right.keys()
        assert not strange, f"I1: not in the data: {sorted(strange)[:5]} of {len(strange)}"
        wrong = {place: (found[place], right[place]) for place in found}
        wrong = {place: pair for place, pair in wrong.items() if pair[0] != pair[1]}
        assert not wrong, f"I1: emitted, wanted: {sorted(wrong.items())[:5]} of {len(wrong)}"

    def _complete(self) -> None:
        """I1: a row that is called complete lacks none that other versions have counted.

        Where late rows are revised, those that come once the next version has begun are its own.
        """
        cut: defaultdict[tuple[str, int], set[Place]] = defaultdict(set)
        for older, newer in pairwise(self._spans):
            if (older.task, older.ends) != (newer.task, newer.starts):
                continue
            if older.query.counts or newer.query.counts:
                continue  # a window of one has no rows of the other
            if older.query.most_ms or newer.query.most_ms:
                for span, other in ((newer, older), (older, newer)):
                    cut[span.task, span.version].update(self._cut_sessions(span, other))
                continue
            pairs = [(newer, older)] + ([(older, newer)] if not older.query.lateness_ms else [])
            for span, other in pairs:
                of_other = replace(other, query=span.query, version=span.version)
                cut[span.task, span.version] |= expected(of_other, self._written).keys()
        for span in self._spans:
            if span.query.counts is not None:
                cut[span.task, span.version] = (
                    expected(span, self._written).keys()
                    - counted(span, span.query.counts, self._written, full=True).keys()
                )
        for row in self._emitted():
            lacks = row.complete and row.place in cut[row.place[:2]]
            assert not lacks, f"I1: {row}: complete, but other versions have rows of it"

    def _cut_sessions(self, span: Span, other: Span) -> Iterator[Place]:
        """Sessions of a version that would have rows of another one, too."""
        query = span.query
        rows = [row for row in rows_of(other, self._written) if row.key]
        for place in expected(span, self._written) if query.most_ms else ():
            _task, _version, window, key = place
            begin_ms = max(
                window.start_ms - query.size_ms + 1,
                window.start_ms // query.most_ms * query.most_ms,
            )
            times = (row.time_ms for row in rows if row.key == key)
            if any(begin_ms <= time_ms < window.end_ms for time_ms in times):
                yield place

    def _results_less_late_rows(self) -> None:
        """I1: each group comes once, with all its rows but those that the ledger calls late."""
        rows = list(self._emitted())
        _check_revisions(rows, apart=self._apart)
        found, right = _newest_values(rows), self._right()
        strange = found.keys() - right.keys()
        assert not strange, f"I1: not in the data: {sorted(strange)[:5]} of {len(strange)}"
        for span, exact in self._exact:
            if not span.whole:
                continue
            if self._lateness is not None:
                self._late_only_where_lanes_were_idle(span, self._lateness, found)
                continue
            lacking = sum(each[0] - found.get(place, (0, 0))[0] for place, each in exact.items())
            late = sum(ledger.late for ledger in self._ledgers(span))
            assert lacking == late, f"I1: {span.task} v{span.version}: {lacking} lack, {late} late"
            emitted = sum(each[0] for place, each in found.items() if place in exact)
            said = sum(ledger.emitted for ledger in self._ledgers(span))
            assert emitted == said, f"I2: {span.task} v{span.version}: {emitted}, ledger {said}"

    def _late_only_where_lanes_were_idle(
        self, span: Span, lateness: Lateness, found: Mapping[Place, Values]
    ) -> None:
        """I1: each window that must have closed has all rows that cannot be late, and what lacks is
        named late or still open. At the end all lanes are idle, so the last windows may close, too.
        """
        for place, (count, _total) in lateness.sure(span, self._written).items():
            closed = place[2].end_ms < LAST_MS or place in found
            assert not closed or found.get(place, (0, 0))[0] >= count, (
                f"I1: lacks rows that were in time: {place} {found.get(place)}, {count} in time"
            )
        right = self._with_last_windows(span)
        ledgers = self._ledgers(span)
        emitted = sum(each[0] for place, each in found.items() if place in right)
        said = sum(ledger.emitted for ledger in ledgers)
        assert emitted == said, f"I2: {span.task} v{span.version}: {emitted}, ledger {said}"
        lacking = sum(count for count, _total in right.values()) - emitted
        known = sum(ledger.late + ledger.open for ledger in ledgers)
        assert lacking == known, f"I1: {span.task} v{span.version}: {lacking} lack, {known} known"

    def _with_last_windows(self, span: Span) -> dict[Place, Values]:
        return expected(span, self._written, LAST_MS + 2 * span.query.size_ms)

    def late_rows(self) -> int:
        """How many rows the ledgers call late."""
        spans = [span for span in self._spans if span.whole]
        return sum(ledger.late for span in spans for ledger in self._ledgers(span))

    def _ledgers(self, span: Span) -> list[Ledger]:
        newest = self._newest()
        return [
            newest[TaskName(span.task), span.version, Bucket(bucket)].ledger
            for bucket in range(BUCKETS)
        ]

    def _no_more_than_there_is(self) -> None:
        """I1 where rows are gone: nothing comes twice, and no group has rows that are not there."""
        rows = list(self._emitted())
        found = _newest_values(rows)
        assert len(found) == len(rows), "I1: emitted twice"
        right = self._right()
        wrong = [
            (place, each) for place, each in found.items() if each[0] > right.get(place, (0, 0))[0]
        ]
        assert not wrong, f"I1: more than there is: {wrong[:5]}"

    def exact(self) -> bool:
        """Whether the results are exact all the same, where no task has limits."""
        return _newest_values(self._emitted()) == self._right()

    def _right(self) -> dict[Place, Values]:
        if self._lateness is not None:
            spans = [self._with_last_windows(span) for span in self._spans]
            return {place: each for right in spans for place, each in right.items()}
        return {place: each for _span, exact in self._exact for place, each in exact.items()}

    def _ranges(self) -> None:
        """Each row can be computed again from the offsets that its header names."""
        queries = {(span.task, span.version): span.query for span in self._spans}
        emitted = list(self._emitted())
        kept: defaultdict[tuple[str, int, Window], set[str]] = defaultdict(set)
        for row in emitted:
            kept[row.place[:3]].add(row.place[3])
        for row in emitted:
            query, others = queries[row.place[0], row.place[1]], kept[row.place[:3]]
            if query.counts is not None:
                continue  # which rows it has, their numbers say
            again = recomputed(row.place, query, self._written, row.ranges, others)
            assert row.value == again, f"I1: {row}: its ranges hold {again}"

    def revisions(self) -> int:
        """How many rows were emitted again, for their late rows."""
        return sum(row.revision > 0 for row in self._emitted())

    def counted(self) -> Counter[bool]:
        """How many rows of windows that count rows were emitted, by whether they are complete."""
        queries = {(span.task, span.version): span.query for span in self._spans}
        rows = (row for row in self._emitted() if queries[row.place[0], row.place[1]].counts)
        return Counter(row.complete for row in rows)

    def of_sessions(self) -> int:
        """How many rows were emitted that are sessions."""
        queries = {(span.task, span.version): span.query for span in self._spans}
        return sum(queries[row.place[:2]].most_ms > 0 for row in self._emitted())

    def _emitted(self) -> Iterator[Emitted]:
        queries = {(span.task, span.version): span.query for span in self._spans}
        for topic, log in self._servers.broker.topics.items():
            if not topic.startswith("mars.results."):
                continue
            for partition in log.partitions:
                for record in partition.committed(0, partition.stable_end):
                    assert record.value, f"I1: no row, but what settles aborts: {topic} {record}"
                    headers = dict(record.headers)
                    start, key, *end = json.loads(record.key or b"")
                    value = json.loads(record.value or b"")
                    assert (key == OTHERS) is (headers.get("mars-folded") == b"1"), headers
                    task, version = headers["mars-task"].decode(), int(headers["mars-version"])
                    window = Window(value["window_end"], value["window_start"])
                    named, query = [window.start_ms], queries[task, version]
                    if query.step_ms:
                        named.append(window.end_ms)
                    if query.counts is not None:
                        number = WindowNumber(value["window_number"], value["partition"])
                        named += [number.partition, number.number]
                        window = query.counts.window_numbered(number)
                    assert [start, *end] == named, f"I1: a strange key: {record}"
                    place = (task, version, window, key)
                    yield Emitted(
                        place,
                        int(headers["mars-revision"]),
                        int(headers["mars-bucket"]),
                        int(headers["mars-emit"]),
                        (value["n"], value["total"]),
                        decode_ranges(headers["mars-ranges"]),
                        headers["mars-complete"] == b"1",
                    )

    def _records(self, bucket: Bucket) -> Sequence[Progress | Claim]:
        """All that is committed, in order; what is new since the last time is read."""
        partition = self._servers.broker.partition(Topic("mars.progress"), bucket)
        read, end = self._read[bucket], partition.stable_end
        for record in partition.committed(read.end, end):
            assert record.value is not None
            decoded = decode_progress(record.value, "progress")
            read.records.append(decoded)
            if isinstance(decoded, Progress):
                self._newest_read[decoded.task, decoded.version, bucket] = decoded
        read.end = end
        return read.records

    def _newest(self) -> dict[tuple[TaskName, int, Bucket], Progress]:
        for bucket in self._read:
            self._records(bucket)
        return self._newest_read

    def counted_up_to(self, name: TaskName, bucket: Bucket, epoch: StoreEpoch) -> int:
        """The last SEQ that is committed as seen; 0 if there is none in this life of the store."""
        records = [one for one in self._records(bucket) if isinstance(one, Progress)]
        alive = [one for one in records if (one.task, one.store_epoch) == (name, epoch)]
        return max((one.seen.through for one in alive if one.seen is not None), default=0)

    def _progress(self, bucket: Bucket) -> None:
        """I2, I3 on the records of one bucket, in the order in which they were committed."""
        queries = {(span.task, span.version): span.query for span in self._spans}
        last: dict[tuple[TaskName, int], Progress] = {}
        for record in self._records(bucket):
            if isinstance(record, Claim):
                continue
            _check_balance(record)
            late = record.ledger.late
            assert self._late or not late, f"I1: rows within the delay are never late: {record}"
            older = last.get((record.task, record.version))
            if older is not None:
                _check_forward(older, record, queries[record.task, record.version])
            last[record.task, record.version] = record

    def _ledger(self, span: Span) -> None:
        """I2: the sum of the ledgers says what became of every row of a version."""
        ledgers = self._ledgers(span)
        rows = list(rows_of(span, self._written))
        bad = sum(not row.key for row in rows)
        takes = span.query.takes
        filtered = sum(bool(row.key) and not takes(row.value, row.time_ms) for row in rows)
        total = {name: sum(getattr(one, name) for one in ledgers) for name in _NAMES}
        late = total["late"] if self._late else 0
        wanted = {
            "read": len(rows),
            "bad": bad,
            "filtered": filtered,
            "future": 0,
            "late": late,
            "counted": len(rows) - bad - filtered - late,
        }
        for name, amount in wanted.items():
            assert total[name] == amount, (
                f"I2: {span.task} v{span.version} {name}: {total}, {wanted}"
            )


_NAMES = ("read", "bad", "filtered", "future", "late", "counted")


def _check_revisions(rows: Iterable[Emitted], *, apart: bool) -> None:
    """Each revision of a group comes once, with more rows; their numbers step by one, by window.

    Unless its groups close `apart`, one of a window comes in one transaction.
    """
    last: dict[Place, Emitted] = {}
    emits: defaultdict[tuple[str, int, Window, int], dict[int, int]] = defaultdict(dict)
    for row in rows:
        before = last.get(row.place)
        if before is not None:
            both = _Both(before, row)
            assert before.revision < row.revision, f"I1: emitted twice: {both}"
            assert before.value[0] <= row.value[0], f"I1: a revision without its rows: {both}"
        last[row.place] = row
        emit = emits[*row.place[:3], row.bucket].setdefault(row.revision, row.emit)
        assert apart or emit == row.emit, f"I1: a revision in two transactions: {row}"
    for window, numbers in emits.items():
        highest = max(numbers)
        missing = set(range(1, highest)) - numbers.keys()
        assert not missing, f"I1: {window} has revision {highest}, and never had {missing}"


def _newest_values(rows: Iterable[Emitted]) -> dict[Place, Values]:
    return {row.place: row.value for row in rows}


def _check_balance(record: Progress) -> None:
    ledger: Ledger = record.ledger
    fates = ledger.counted + ledger.filtered + ledger.bad + ledger.future + ledger.late
    assert ledger.read == fates, f"I2: {record}"
    assert 0 <= ledger.emitted <= ledger.counted, f"I2: {record}"


def _not_back(older_ms: int | None, newer_ms: int | None) -> bool:
    """True if a time has not gone back; None is before all of them."""
    return older_ms is None or (newer_ms is not None and newer_ms >= older_ms)


@dataclass(frozen=True, slots=True)
class _Both:
    """One after the other, put into words only where it is told."""

    older: object
    newer: object

    def __str__(self) -> str:
        return f"{self.older} then {self.newer}"


def _check_forward(older: Progress, newer: Progress, query: Query) -> None:
    both = _Both(older, newer)
    assert newer.emit == older.emit + 1, f"I3: emit numbers: {both}"
    assert newer.assignment_epoch >= older.assignment_epoch, f"I3: owners: {both}"
    assert newer.deleted or _not_back(older.ahead_ms, newer.ahead_ms), f"I3: X: {both}"
    assert _not_back(older.closed_ms, newer.closed_ms), f"I3: C: {both}"
    _check_kept(older, newer, query)
    for name in GROWING:
        before, now = getattr(older.ledger, name), getattr(newer.ledger, name)
        assert newer.deleted or before <= now, f"I2: {name}: {both}"
    for lane, offset in older.merged.items():
        assert newer.merged.get(lane, -1) >= offset, f"I3: M of lane {lane}: {both}"
    for lane, offset in older.needed.items():
        assert newer.needed.get(lane, -1) >= offset, f"I3: L of lane {lane}: {both}"
    for lane, offset in newer.merged.items():
        assert newer.needed.get(lane, 0) <= offset, f"I3: L <= M of lane {lane}: {both}"
    if older.snapshot is not None and newer.snapshot is not None:
        for lane, offset in older.snapshot.merged.items():
            assert newer.snapshot.merged.get(lane, -1) >= offset, f"I3: S of lane {lane}: {both}"


def _check_kept(older: Progress, newer: Progress, query: Query) -> None:
    """D and the revisions of the windows after it."""
    both = _Both(older, newer)
    if newer.forgotten_ms is None:
        assert older.forgotten_ms is None, f"I3: D: {both}"
        return
    assert newer.closed_ms is not None, f"I3: D <= C: {both}"
    assert (older.forgotten_ms or 0) <= newer.forgotten_ms <= newer.closed_ms, f"I3: D: {both}"
    if newer.deleted:
        return
    for name, number in newer.revisions.items():
        assert number - older.revisions.get(name, 0) in {0, 1}, f"I3: revisions: {both}"
    gone = older.revisions.keys() - newer.revisions.keys()
    ends = [name if query.step_ms else name + query.size_ms for name in gone]
    assert all(end <= newer.forgotten_ms for end in ends), f"I3: revisions: {both}"
