"""Spark in memory: the same work on rows of the memory broker, in the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mars.adapters.memory.broker import MemoryBroker, UnknownTopic
from mars.adapters.memory.faults import Faults, fallible
from mars.adapters.spark.file_reading import FileSource
from mars.adapters.spark.planning import plan_of_map, plan_of_query, tasks_of
from mars.adapters.spark.work import (
    FinishWork,
    MapWork,
    MergeWork,
    Sent,
    WorkSource,
    answer_of,
    mapped_of,
)
from mars.core.definitions import REGISTER_AGAIN, FileHistory
from mars.core.errors import JobCancelled, JobFailed, MarsError, TaskLimit, Unavailable
from mars.core.locations import FileRoots
from mars.core.plan import Plan
from mars.core.types import Mapped, Range, Records, Topic, lane_partition
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.messages import decode
from mars.protocol.ports import MapJob, QueryAnswer, QueryJob

T = TypeVar("T")

TASK_OFFSETS = 1_000
"""Offsets of one task: little, so that small tests have several."""


@dataclass(frozen=True, slots=True)
class MemoryBulkSource:
    """`WorkSource` of a topic of the memory broker."""

    broker: MemoryBroker
    topic: Topic

    def batches(self, plan: Plan, part: Range) -> Iterator[Decoded | Range]:
        """The committed rows of a range, after what retention has taken of it."""
        log = self.broker.partition(self.topic, lane_partition(part.lane) or 0)
        first = min(max(part.first, log.start), part.next)
        if part.first < first:
            yield Range(part.lane, part.first, first)
        if first == part.next:
            return
        if part.next > log.end:
            raise JobFailed(f"Topic {self.topic} ends at offset {log.end}, before {part.next}.")
        found = log.committed(first, part.next)
        records = Records(
            lane=part.lane,
            first=first,
            next=part.next,
            values=[record.value for record in found],
            offsets=[record.offset for record in found],
            timestamps_ms=[record.timestamp_ms for record in found],
            keys=[record.key for record in found],
        )
        yield decode(plan.stream, plan.fields, records)


class MemoryBulkEngine:
    """`BulkEngine` in memory: a call runs its job to the end.

    What comes from other threads in reality comes here from a function that is called while a job
    is under way (`meanwhile`).
    """

    def __init__(self, broker: MemoryBroker, roots: FileRoots | None = None) -> None:
        self.faults = Faults("spark")
        self.jobs: list[MapJob | QueryJob] = []
        """All that were begun, for tests to look at."""
        self._broker = broker
        self._roots = roots or FileRoots()
        self._errors: list[MarsError] = []
        self._meanwhile: list[Callable[[], None]] = []
        self._running: set[str] = set()
        self._cancelled: set[str] = set()
        self._closed = False

    # ------------------------------------------------------------------- what tests do to it

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its work."""
        self.faults.plan(method, before=before)

    def raise_next(self, error: MarsError) -> None:
        """Let the next job raise this (JobFailed, JobCancelled, Unavailable)."""
        self._errors.append(error)

    def meanwhile(self, action: Callable[[], None]) -> None:
        """Call this once, when the next job has read its rows and has not yet answered."""
        self._meanwhile.append(action)

    # -------------------------------------------------------------------------------- the port

    @fallible
    def map(self, job: MapJob) -> Mapped:
        """One batch of all ranges, with one partial per bucket."""
        plan = plan_of_map(job)
        source = self._source(plan, job.files)
        if job.files is None and self._topic_id(plan.stream.topic) != job.version.topic_id:
            raise JobFailed(
                f"Topic {plan.stream.topic} was deleted and made anew: {REGISTER_AGAIN}."
            )
        results = self._run(job, MapWork(plan, job.buckets, source), MergeWork(plan))
        return mapped_of(job.ranges, results)

    @fallible
    def query(self, job: QueryJob) -> QueryAnswer:
        """The finished rows of a query."""
        plan = plan_of_query(job)
        source = self._source(plan, job.files)
        first = MapWork(plan, job.buckets, source)
        results = self._run(job, first, FinishWork(plan, job.rows_max))
        return answer_of(plan, job.rows_max, job.ranges, results)

    def cancel(self, job_id: str) -> None:
        """Stop a job that is under way."""
        if job_id in self._running:
            self._cancelled.add(job_id)

    def close(self) -> None:
        """Stop what is under way; nothing can be run any more."""
        self._closed = True

    # ------------------------------------------------------------------------------- the work

    def _source(self, plan: Plan, files: FileHistory | None) -> WorkSource:
        if files is not None:
            source = FileSource(files, self._roots)
            source.check()
            return source
        topic = Topic(plan.stream.topic)
        self._topic_id(topic)
        return MemoryBulkSource(self._broker, topic)

    def _topic_id(self, topic: str) -> str:
        found = self._broker.topics.get(Topic(topic))
        if found is None:
            raise Unavailable("kafka", f"there is no topic {topic}; create it again")
        return found.topic_id

    def _run(
        self,
        job: MapJob | QueryJob,
        first: MapWork,
        second: Callable[[Iterable[Sent]], Iterator[T]],
    ) -> Sequence[T]:
        self._check(job.id)
        if self._errors:
            raise self._errors.pop(0)
        self.jobs.append(job)
        self._running.add(job.id)
        try:
            sent = list(first(tasks_of(first.plan, job.ranges, TASK_OFFSETS)))
            if self._meanwhile:
                self._meanwhile.pop(0)()
            self._check(job.id)
            return list(second(sent))
        except TaskLimit as error:
            raise JobFailed(str(error)) from error
        except UnknownTopic as error:
            raise Unavailable("kafka", f"there is no partition {error}") from error
        finally:
            self._running.discard(job.id)
            self._cancelled.discard(job.id)

    def _check(self, job_id: str) -> None:
        if self._closed or job_id in self._cancelled:
            raise JobCancelled("The job was cancelled.")
