"""Ad-hoc queries on the side that runs them, on twins.

shelf ── the registry, shared by all processes      broker ── Kafka, shared too
Process("bulk-1") ── a QueryWork with an engine that does what the test says
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mapper.bulk.answering import QueryAnswerer, output_rows
from mapper.bulk.queries import QUERIES_AT_ONCE, QueryWork
from mapper.bulk.query_run import QueryDesk
from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.queries import MemoryQueryRegistry, MemoryQueryRows
from mars.core.definitions import FileHistory, HistoryFile
from mars.core.errors import JobCancelled, JobFailed, Unavailable
from mars.core.plan import Field, FieldType, Format, RecordTime, Stream
from mars.core.types import Lane, Mapped, MemberId, Range, RowCounts, StreamName, Topic
from mars.core.windows import Counting, CountingByKey, Session, Sliding
from mars.process.life import Life, ServiceHealth
from mars.protocol.ports import (
    Answer,
    MapJob,
    Query,
    QueryAnswer,
    QueryId,
    QueryJob,
    QueryRecord,
    QueryState,
)
from tests.contracts.waiting import eventually

FLOWS = Topic("flows")
OUTPUT = Topic("mine")
ANSWERS = Topic("mars.queries")
STREAM = Stream(
    StreamName("flows"),
    FLOWS,
    Format.JSON,
    (Field("timestamp", FieldType.TIMESTAMP_MS), Field("sip", FieldType.STRING)),
    "timestamp",
)
ID = QueryId("q-1")
ROWS = tuple(
    b'{"window_start":%d,"window_end":%d,"sip":"a","count":1}' % (start, start + 60_000)
    for start in (0, 60_000, 120_000)
)
KEYS = tuple(b'[%d,"a"]' % start for start in (0, 60_000, 120_000))
COUNTS = RowCounts(counted=3, filtered=1)
FOUND = QueryAnswer(ROWS, COUNTS, KEYS)


class ScriptedEngine:
    """Answers with what `script` does; `gate` holds jobs back until they are cancelled."""

    def __init__(self) -> None:
        self.jobs: list[QueryJob] = []
        self.script: list[Callable[[], QueryAnswer]] = []
        self.holds = False
        self._cancelled: dict[str, threading.Event] = {}

    def map(self, job: MapJob) -> Mapped:
        raise AssertionError(job)

    def query(self, job: QueryJob) -> QueryAnswer:
        cancelled = self._cancelled[job.id] = threading.Event()
        self.jobs.append(job)
        if self.holds:
            assert cancelled.wait(10)
            raise JobCancelled(job.id)
        return self.script.pop(0)() if self.script else FOUND

    def cancel(self, job_id: str) -> None:
        if job_id in self._cancelled:
            self._cancelled[job_id].set()

    def close(self) -> None:
        for job_id in self._cancelled:
            self.cancel(job_id)


class Process:
    """One bulk process."""

    def __init__(self, world: World, member: str = "bulk-1") -> None:
        self.engine = ScriptedEngine()
        self.registry = world.registry.connect()
        self.rows = MemoryQueryRows(world.broker)
        self.services = ServiceHealth("queries")
        self.working = True
        desk = QueryDesk(
            QueryAnswerer(self.engine, MemoryTopicAdmin(world.broker), 4, "default"),
            self.registry,
            self.rows,
            self.services,
            lambda: world.now_ms,
        )
        self.work = QueryWork(
            MemberId(member), desk, alive=lambda: world.alive, working=lambda: self.working
        )

    def settle(self) -> None:
        """Go on until nothing runs."""

        def settled() -> bool:
            self.work.step()
            return self.work.idle()

        eventually(settled)

    def begin(self) -> None:
        """Take what waits; its jobs have begun when this returns."""
        before = len(self.engine.jobs)
        self.work.step()
        eventually(lambda: len(self.engine.jobs) > before)


@dataclass
class World:
    now_ms: int = 1_000_000
    alive: set[MemberId] = field(default_factory=lambda: {MemberId("bulk-1")})
    registry: MemoryQueryRegistry = field(default_factory=MemoryQueryRegistry)
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(lambda: self.now_ms)
        self.broker.create_topic(ANSWERS, 1)
        self.broker.create_topic(FLOWS, 2)
        self.broker.create_topic(OUTPUT, 3)
        for partition, rows in ((0, 5), (1, 3)):
            for number in range(rows):
                self.broker.append(FLOWS, partition, b"{}", timestamp_ms=number * 100_000)

    def process(self, member: str = "bulk-1") -> Process:
        made = Process(self, member)
        self.processes.append(made)
        return made

    def ask(self, query: QueryId = ID, **members: Any) -> None:
        asked: dict[str, Any] = {
            "id": query,
            "sql": "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 60 s",
            "options": {},
            "stream": STREAM,
            "created_ms": self.now_ms,
            "from_ms": None,
            "until_ms": None,
            "rows_max": 10,
            "timeout_ms": 5_000,
        }
        assert self.registry.create(QueryRecord(Query(**{**asked, **members})))

    def record(self, query: QueryId = ID) -> QueryRecord:
        found = self.registry.get(query)
        assert found is not None
        return found[0]

    def cancel(self, query: QueryId = ID) -> None:
        found = self.registry.get(query)
        assert found is not None
        assert self.registry.replace(replace(found[0], state=QueryState.CANCELLED), found[1])

    def output(self) -> list[tuple[bytes | None, dict[str, bytes]]]:
        """Committed rows of the output topic: key and headers."""
        return [
            (record.key, dict(record.headers))
            for log in self.broker.topics[OUTPUT].partitions
            for record in log.committed(0, log.stable_end)
        ]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for process in made.processes:
        process.work.close()


def raising(error: Exception) -> Callable[[], QueryAnswer]:
    def fail() -> QueryAnswer:
        raise error

    return fail


# ------------------------------------------------------------------------------ answering


def test_waiting_query_is_run_and_its_rows_are_kept(world: World) -> None:
    world.ask()
    process = world.process()
    process.settle()
    record = world.record()
    assert (record.state, record.attempt, record.member) == (QueryState.DONE, 1, "bulk-1")
    assert (record.counts, record.input_offsets) == (COUNTS, 8)
    assert record.place is not None
    assert process.rows.read(ID, record.place) == list(ROWS)
    (job,) = process.engine.jobs
    assert job.ranges == (Range(Lane("0"), 0, 5), Range(Lane("1"), 0, 3))
    assert (job.rows_max, job.buckets, job.files) == (10, 4, None)


def test_range_of_time_narrows_what_is_read_by_kafkas_times(world: World) -> None:
    world.ask(from_ms=500_000, until_ms=560_000, options={"future_limit": "200s"})
    process = world.process()
    process.settle()
    (job,) = process.engine.jobs
    assert job.ranges == (Range(Lane("0"), 3, 5),)
    assert (job.from_ms, job.until_ms) == (500_000, 560_000)


def test_range_of_time_near_the_epoch_reads_from_the_beginning(world: World) -> None:
    world.ask(from_ms=1)
    process = world.process()
    process.settle()
    assert [part.first for part in process.engine.jobs[0].ranges] == [0, 0]


def test_all_is_read_where_the_stream_ignores_record_times(world: World) -> None:
    """Rows whose event time is far ahead of Kafka's are usable there."""
    world.ask(from_ms=500_000, stream=replace(STREAM, record_time=RecordTime.IGNORE))
    process = world.process()
    process.settle()
    assert [part.first for part in process.engine.jobs[0].ranges] == [0, 0]


def test_files_are_one_lane(world: World) -> None:
    files = FileHistory("csv", (HistoryFile("/a", 0, 7), HistoryFile("/b", 7, 9)))
    world.ask(files=files)
    process = world.process()
    process.settle()
    (job,) = process.engine.jobs
    assert (job.ranges, job.files) == ((Range(Lane("f@q"), 0, 9),), files)


def test_empty_topic_needs_no_job(world: World) -> None:
    for log in world.broker.topics[FLOWS].partitions:
        log.truncate(log.end)
    world.ask()
    process = world.process()
    process.settle()
    record = world.record()
    assert record.place is not None
    assert (record.state, record.place.rows, process.engine.jobs) == (QueryState.DONE, 0, [])


def test_output_topic_gets_result_rows_of_one_partition_with_their_headers(world: World) -> None:
    world.ask(output_topic=OUTPUT, from_ms=30_000, until_ms=200_000)
    world.process().settle()
    assert world.record().state is QueryState.DONE
    rows = world.output()
    assert [key for key, _headers in rows] == list(KEYS)
    assert [headers["mars-complete"] for _key, headers in rows] == [b"0", b"1", b"1"]
    assert rows[0][1] == {
        "mars-task": b"q-1",
        "mars-version": b"1",
        "mars-revision": b"0",
        "mars-complete": b"0",
    }


def test_a_step_is_complete_where_the_range_of_time_holds_it_though_not_its_cycle(
    world: World,
) -> None:
    world.ask(from_ms=0, until_ms=120_000)
    query = world.record().query
    values = [
        b'{"window_start":0,"window_end":%d,"sip":"a"}' % end for end in (60_000, 120_000, 180_000)
    ]
    keys = (b'[0,"a",1]',) * len(values)
    rows = output_rows(query, Sliding(60_000, 60_000), QueryAnswer(tuple(values), keys=keys))
    assert [dict(row.headers)["mars-complete"] for row in rows] == [b"1", b"1", b"0"]


def test_a_window_that_counts_rows_is_complete_where_it_is_full(world: World) -> None:
    world.ask(from_ms=50_000, until_ms=60_000)
    values = [
        b'{"window_start":1,"window_end":2,"partition":%d,"window_number":%d,'
        b'"window_first_offset":7}' % place
        for place in ((0, 0), (0, 1), (0, 2), (1, 0), (2, 0))
    ]
    found = QueryAnswer(
        tuple(values), keys=(b"[1,0,0]",) * len(values), counted={Lane("0"): 14, Lane("1"): 9}
    )
    rows = output_rows(world.record().query, Counting(10, 4), found)
    flags = [dict(row.headers)["mars-complete"] for row in rows]
    assert flags == [b"1", b"1", b"0", b"0", b"0"]


def test_a_window_of_rows_of_a_key_is_complete_where_it_is_full(world: World) -> None:
    world.ask()
    values = [
        b'{"window_start":0,"window_end":9,"partition":0,"window_number":%d}' % n for n in (3, 8)
    ]
    keys = (b'[0,"a",0,3]', b'[0,"b",0,8]')
    found = QueryAnswer(
        tuple(values), keys=keys, counted={Lane("0"): 100}, unfilled=frozenset(keys[1:])
    )
    rows = output_rows(world.record().query, CountingByKey(10, 4, 60_000), found)
    assert [dict(row.headers)["mars-complete"] for row in rows] == [b"1", b"0"]


def test_a_session_is_complete_where_the_range_of_time_has_all_rows_of_it(world: World) -> None:
    """A row less than a gap before its first one would be of it, too."""
    world.ask(from_ms=50_000, until_ms=90_000)
    spans = ((59_998, 80_000), (59_999, 80_000), (60_000, 90_000), (60_000, 90_001))
    values = [b'{"window_start":%d,"window_end":%d,"sip":"a"}' % span for span in spans]
    keys = tuple(b'[%d,"a"]' % start for start, _end in spans)
    found = QueryAnswer(tuple(values), keys=keys)
    rows = output_rows(world.record().query, Session(10_000, 3_600_000), found)
    flags = [dict(row.headers)["mars-complete"] for row in rows]
    assert flags == [b"0", b"1", b"1", b"0"]


def test_oldest_queries_are_taken_first_and_only_so_many_at_once(world: World) -> None:
    names = [QueryId(f"q-{number}") for number in range(QUERIES_AT_ONCE + 1)]
    for name in names:
        world.now_ms += 1
        world.ask(name)
    process = world.process()
    process.engine.holds = True
    process.work.step()
    eventually(lambda: len(process.engine.jobs) == QUERIES_AT_ONCE)
    process.work.step()
    assert world.record(names[-1]).state is QueryState.WAITING
    assert {job.id for job in process.engine.jobs} == set(names[:-1])


def test_process_that_stands_by_takes_nothing(world: World) -> None:
    world.ask()
    process = world.process()
    process.working = False
    process.settle()
    assert world.record().state is QueryState.WAITING


# -------------------------------------------------------------------------------- failing


@pytest.mark.parametrize(
    ("found", "part"),
    [
        (QueryAnswer(ROWS * 4, COUNTS, KEYS * 4), "more than 10 result rows"),
        (QueryAnswer((b"x" * (65 * 2**20),), COUNTS, KEYS[:1]), "bytes"),
    ],
)
def test_answer_over_a_limit_fails_and_names_it(
    world: World, found: QueryAnswer, part: str
) -> None:
    world.ask()
    process = world.process()
    process.engine.script.append(lambda: found)
    process.settle()
    assert world.record().state is QueryState.FAILED
    assert part in world.record().detail


def test_job_that_cannot_succeed_fails_at_once_with_its_reason(world: World) -> None:
    world.ask()
    process = world.process()
    process.engine.script.append(raising(JobFailed("no such column")))
    process.settle()
    record = world.record()
    assert (record.state, record.detail) == (QueryState.FAILED, "no such column")
    assert record.ended_ms == world.now_ms
    assert len(process.engine.jobs) == 1


def test_mistake_of_ours_fails_this_query_only(world: World) -> None:
    world.ask()
    process = world.process()
    process.engine.script.append(raising(ZeroDivisionError("oops")))
    process.settle()
    assert "unexpected ZeroDivisionError: oops" in world.record().detail
    world.ask(QueryId("q-2"))
    process.settle()
    assert world.record(QueryId("q-2")).state is QueryState.DONE


def test_topic_or_output_that_is_gone_fails(world: World) -> None:
    world.ask(output_topic="nowhere")
    process = world.process()
    process.settle()
    assert "nowhere is gone" in world.record().detail
    world.broker.delete_topic(FLOWS)
    world.ask(QueryId("q-2"))
    process.settle()
    assert "no topic flows" in world.record(QueryId("q-2")).detail


def test_servers_that_are_away_are_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mapper.bulk.query_run.RETRY_S", 0.0)
    world.ask()
    process = world.process()
    process.engine.script.append(raising(Unavailable("spark", "no session")))
    process.rows.fail_next("write")
    process.rows.fail_next("write", before=False)
    process.settle()
    assert world.record().state is QueryState.DONE
    assert len(process.engine.jobs) == 2  # only what had failed is done again


def test_lost_answer_about_a_commit_doubles_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mapper.bulk.query_run.RETRY_S", 0.0)
    world.ask(output_topic=OUTPUT)
    process = world.process()
    process.rows.fail_next("write", before=False)
    process.settle()
    record = world.record()
    assert record.state is QueryState.DONE
    assert record.place is not None
    assert process.rows.read(ID, record.place) == list(ROWS)
    assert len(world.output()) == len(ROWS)


# ------------------------------------------------------------------------------- stopping


def test_query_that_takes_too_long_is_stopped_and_says_so(world: World) -> None:
    world.ask()
    process = world.process()
    process.engine.holds = True
    process.begin()
    world.now_ms += 5_000
    process.settle()
    assert world.record().state is QueryState.FAILED
    assert "time-out of 5 s" in world.record().detail


def test_query_that_waits_for_a_server_is_stopped_in_time_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mapper.bulk.query_run.RETRY_S", 0.01)
    world.ask()
    process = world.process()
    process.engine.script = [raising(Unavailable("spark", "no session"))] * 10_000
    process.begin()
    world.now_ms += 5_000
    process.settle()
    assert "time-out" in world.record().detail


def test_cancelled_query_is_stopped_and_leaves_nothing(world: World) -> None:
    world.ask(output_topic=OUTPUT)
    process = world.process()
    process.engine.holds = True
    process.begin()
    world.cancel()
    process.settle()
    assert world.record().state is QueryState.CANCELLED
    assert world.output() == []


def test_stopping_process_gives_its_queries_back(world: World) -> None:
    world.ask()
    process = world.process()
    process.engine.holds = True
    process.begin()
    process.work.close()
    record = world.record()
    assert (record.state, record.attempt, record.member) == (QueryState.WAITING, 0, None)
    other = world.process("bulk-2")
    other.settle()
    assert world.record().state is QueryState.DONE


def test_loop_runs_queries_as_they_are_asked_until_the_process_stops(world: World) -> None:
    process, life = world.process(), Life()
    thread = threading.Thread(target=process.work.run, args=(life,))
    thread.start()
    try:
        world.ask()
        eventually(lambda: world.record().state is QueryState.DONE)
    finally:
        life.stop()
        thread.join(10)
    assert not thread.is_alive()


# ---------------------------------------------------------------------------------- dying


def die(world: World, process: Process) -> None:
    """The process is gone; what it does from now on is a zombie's."""
    world.alive.discard(MemberId("bulk-1"))
    process.working = False


def test_query_of_a_dead_process_is_taken_again(world: World) -> None:
    world.ask()
    dead = world.process()
    dead.engine.holds = True
    dead.begin()
    other = world.process("bulk-2")
    other.settle()
    assert world.record().member == "bulk-1"  # it is alive as far as anybody knows
    die(world, dead)
    other.settle()
    record = world.record()
    assert (record.state, record.attempt, record.member) == (QueryState.DONE, 2, "bulk-2")


def test_process_that_comes_back_under_its_name_takes_its_query_again(world: World) -> None:
    world.ask()
    former = world.process()
    former.engine.holds = True
    former.begin()
    again = world.process()
    again.settle()
    assert (world.record().state, world.record().attempt) == (QueryState.DONE, 2)


def test_answer_that_a_dead_process_committed_is_found_and_not_computed_again(
    world: World,
) -> None:
    world.ask(output_topic=OUTPUT)
    dead = world.process()
    dead.engine.holds = True
    dead.begin()
    slot = world.record().slot
    assert slot is not None
    dead.rows.write(Answer(ID, ROWS, COUNTS), slot)
    die(world, dead)
    other = world.process("bulk-2")
    other.settle()
    record = world.record()
    assert (record.state, record.counts, other.engine.jobs) == (QueryState.DONE, COUNTS, [])
    assert record.place is not None
    assert other.rows.read(ID, record.place) == list(ROWS)


def test_zombie_changes_nothing_when_its_job_ends_late(world: World) -> None:
    world.ask(output_topic=OUTPUT)
    zombie = world.process()
    late = threading.Event()

    def much_later() -> QueryAnswer:
        assert late.wait(10)
        return FOUND

    zombie.engine.script.append(much_later)
    zombie.begin()
    die(world, zombie)
    world.process("bulk-2").settle()
    done = world.record()
    late.set()
    zombie.settle()
    assert world.record() == done
    assert len(world.output()) == len(ROWS)


def test_query_that_kills_its_process_each_time_is_given_up(world: World) -> None:
    world.ask()
    for number in range(3):
        process = world.process(f"bulk-{number}")
        process.engine.holds = True
        process.begin()
        world.alive.clear()
    world.process("bulk-9").settle()
    record = world.record()
    assert record.state is QueryState.FAILED
    assert "started 3 times" in record.detail


def test_registry_that_fails_leaves_the_query_for_later(world: World) -> None:
    world.ask()
    process = world.process()
    process.registry.fail_next("replace")
    with pytest.raises(Unavailable):
        process.work.step()
    process.settle()
    assert world.record().state is QueryState.DONE


def test_rows_of_an_answer_are_whole_json_texts(world: World) -> None:
    world.ask()
    process = world.process()
    rows = tuple(
        json.dumps({"window_start": 0, "n": n, "s": "x\n" * 500}).encode() for n in range(900)
    )
    process.engine.script.append(lambda: QueryAnswer(rows, COUNTS))
    world.cancel()
    world.ask(QueryId("q-2"), rows_max=1_000)
    process.settle()
    place = world.record(QueryId("q-2")).place
    assert place is not None
    assert place.next - place.first > 3  # several records
    assert process.rows.read(QueryId("q-2"), place) == list(rows)
