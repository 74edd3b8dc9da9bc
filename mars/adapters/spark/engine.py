"""`BulkEngine` on Spark."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.source.slices import SliceReader
from mars.adapters.spark.errors import SPARK_ERRORS, driver_is_gone, translated
from mars.adapters.spark.file_reading import FileSource
from mars.adapters.spark.planning import Task, plan_of_map, plan_of_query, tasks_of
from mars.adapters.spark.reading import TopicSource
from mars.adapters.spark.session import close_session, forget_session, open_session
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
from mars.core.garbage import settle_garbage_collection
from mars.core.locations import FileRoots
from mars.core.plan import Plan
from mars.core.settings import Settings
from mars.core.types import Mapped, Range, Topic, lane_partition
from mars.protocol.ports import MapJob, QueryAnswer, QueryJob

SAMPLE_MESSAGES = 50
"""Read to learn how large the messages of a topic are: one of them may hold a thousand rows."""

MERGES_MAX = 64
"""Tasks of the second stage; each merges some buckets."""

QUERIES_POOL = "queries"
"""Queries share the cluster with the backfills, as one more of them."""

T = TypeVar("T")


class SparkEngine:
    """Runs jobs on one Spark session, which is made for the first of them; safe for threads.

    When the session's Java machine is lost, the jobs under way raise Unavailable, and the next one
    makes a new session.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Executors read Kafka, and nothing else: they are told nothing else.
        self._kafka = Settings(namespace=settings.namespace, kafka=settings.kafka)
        self._roots = FileRoots.of(settings.bulk.files, settings.bulk.files_never)
        self._session: SparkSession | None = None
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._groups: dict[str, str] = {}
        """The job group of each running job; a group is never used twice."""
        self._cancelled: set[str] = set()
        self._numbers = itertools.count(1)
        self._closed = False
        self._admin: KafkaTopicAdmin | None = None
        self._samples = SliceReader(self._kafka, f"{settings.member or 'mars'}-sample")

    # -------------------------------------------------------------------------------- the port

    def map(self, job: MapJob) -> Mapped:
        """One batch of all ranges: per bucket one partial, merged on the executors."""
        plan = plan_of_map(job)
        topic = None if job.files is not None else Topic(plan.stream.topic)
        with (
            self._running(job.id, pool=job.task) as run,
            self._same_topic(topic, job.version.topic_id),
        ):
            first = MapWork(plan, job.buckets, self._source(topic, job.files))
            tasks = self._tasks(plan, topic, job.files, job.ranges)
            return mapped_of(job.ranges, run(tasks, first, MergeWork(plan), job.buckets))

    def query(self, job: QueryJob) -> QueryAnswer:
        """The finished rows of a query."""
        plan = plan_of_query(job)
        topic = None if job.files is not None else Topic(plan.stream.topic)
        with self._running(job.id, pool=QUERIES_POOL) as run, self._same_topic(topic, None):
            first = MapWork(plan, job.buckets, self._source(topic, job.files))
            tasks = self._tasks(plan, topic, job.files, job.ranges)
            results = run(tasks, first, FinishWork(plan, job.rows_max), job.buckets)
            return answer_of(plan, job.rows_max, job.ranges, results)

    def cancel(self, job_id: str) -> None:
        """Stop a job; nothing happens where there is none of that id."""
        with self._lock:
            group, session = self._groups.get(job_id), self._session
            if group is None:
                return
            self._cancelled.add(group)
        if session is not None:
            _cancel(session.sparkContext, group)

    def close(self) -> None:
        """Stop the session and all jobs."""
        with self._lock:
            self._closed = True
            self._cancelled.update(self._groups.values())
        with self._opening:
            session, self._session = self._session, None
            if session is not None:
                close_session(session)
        self._samples.close()

    @property
    def running(self) -> frozenset[str]:
        """The ids of the jobs under way."""
        with self._lock:
            return frozenset(self._groups)

    # ------------------------------------------------------------------------------- a job's life

    @contextmanager
    def _running(self, job_id: str, pool: str) -> Iterator[Callable[..., list[Any]]]:
        """Gives a function that runs the two stages of the job; translates what is raised."""
        group = self._begin(job_id)
        context: SparkContext | None = None
        try:
            context = self._context(group)
            context.setJobGroup(group, job_id, interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", pool)
            self._check(group)
            running = context
            yield lambda *work: _two_stages(running, *work)
            self._check(group)
        except (*SPARK_ERRORS, MarsError) as error:
            raise self._reason(error, group, context) from error
        finally:
            with self._lock:
                self._groups.pop(job_id, None)
                self._cancelled.discard(group)

    def _begin(self, job_id: str) -> str:
        with self._lock:
            if job_id in self._groups:
                raise JobFailed(f"Job {job_id} runs already; wait for it or cancel it first.")
            group = f"mars-{next(self._numbers)}-{job_id}"
            self._groups[job_id] = group
            return group

    def _check(self, group: str) -> None:
        with self._lock:
            if self._closed or group in self._cancelled:
                raise JobCancelled("The job was cancelled.")

    def _reason(self, error: BaseException, group: str, context: SparkContext | None) -> MarsError:
        """What the caller is told; a session that cannot be used any more is let go."""
        with self._lock:
            stopped = self._closed or group in self._cancelled
        if not isinstance(error, MarsError) and driver_is_gone(error) and not self._closed:
            self._drop(context)
        if stopped:
            return JobCancelled("The job was cancelled.")
        reason = translated(error)
        return JobFailed(str(reason)) if isinstance(reason, TaskLimit) else reason

    # ------------------------------------------------------------------------------- the session

    def _context(self, group: str) -> SparkContext:
        with self._opening:
            self._check(group)
            if self._session is None:
                session = open_session(self._settings, self._settings.member or "bulk")
                with self._lock:
                    self._session = session
            return self._session.sparkContext

    def _drop(self, context: SparkContext | None) -> None:
        """Forget the session of this context, unless another thread has done so already."""
        with self._opening:
            if self._session is None or self._session.sparkContext is not context:
                return
            with self._lock:
                self._session = None
            forget_session()

    # ------------------------------------------------------------------------------- the topic

    @contextmanager
    def _same_topic(self, topic: Topic | None, topic_id: str | None) -> Iterator[None]:
        """Refuse rows of a topic that was deleted and made anew, before or while they are read."""
        if topic is None:
            yield
            return
        before = self._topic_id(topic)
        if topic_id is not None and before != topic_id:
            raise JobFailed(_made_anew(topic, topic_id))
        yield
        if self._topic_id(topic) != before:
            raise JobFailed(_made_anew(topic, topic_id))

    def _topic_id(self, topic: Topic) -> str:
        with self._lock:
            admin = self._admin = self._admin or KafkaTopicAdmin(self._kafka)
        found = admin.describe(topic)
        if found is None:
            raise Unavailable("kafka", f"there is no topic {topic}; create it again")
        return found.topic_id

    def _source(self, topic: Topic | None, files: FileHistory | None) -> WorkSource:
        if files is not None:
            source = FileSource(files, self._roots)
            source.check()
            return source
        return TopicSource(self._kafka, str(topic))

    def _tasks(
        self, plan: Plan, topic: Topic | None, files: FileHistory | None, ranges: Sequence[Range]
    ) -> list[Task]:
        bulk = self._settings.bulk
        if files is not None:
            by_rows = files.format == "parquet"
            return tasks_of(plan, ranges, bulk.task_rows if by_rows else bulk.task_bytes)
        messages = min(bulk.task_rows, self._messages_of(bulk.task_bytes, topic, ranges))
        return tasks_of(plan, ranges, messages)

    def _messages_of(self, size: int, topic: Topic | None, ranges: Sequence[Range]) -> int:
        """How many messages are about so many bytes, by the first ones of the first range."""
        part = next(iter(ranges), None)
        partition = lane_partition(part.lane) if part is not None else None
        if part is None or partition is None or topic is None:
            return size
        end = min(part.next, part.first + SAMPLE_MESSAGES)
        lengths = [
            len(message)
            for portion in self._samples.read(topic, partition, part.first, end)
            for message in portion
        ]
        return max(1, size * len(lengths) // max(1, sum(lengths))) if lengths else size


def _two_stages(
    context: SparkContext,
    tasks: Sequence[Task],
    first: MapWork,
    second: Callable[[Iterable[Sent]], Iterator[T]],
    buckets: int,
) -> list[T]:
    """Run the tasks, send what they give to the owners of the buckets, collect what those give."""
    if not tasks:
        return []
    merges = max(1, min(buckets, MERGES_MAX, len(tasks)))
    return list(
        context.parallelize(tasks, len(tasks))
        .mapPartitions(_OnExecutor(first))
        .partitionBy(merges, int)
        .mapPartitions(second)
        .collect()
    )


@dataclass(frozen=True, slots=True)
class _OnExecutor:
    """The first stage in a Python process of an executor, which then does more tasks."""

    work: MapWork

    def __call__(self, tasks: Iterable[Task]) -> Iterator[Sent]:
        settle_garbage_collection()
        return self.work(tasks)


def _cancel(context: SparkContext, group: str) -> None:
    """Stop what runs of a job group, and what is still to begin."""
    try:
        context._jsc.sc().cancelJobGroupAndFutureJobs(group)  # noqa: SLF001 -- not in pyspark
    except SPARK_ERRORS as error:
        raise translated(error) from error


def _made_anew(topic: str, topic_id: str | None) -> str:
    """What to do differs: a query (without a topic's id) has taken nothing yet."""
    what = "run the query again" if topic_id is None else REGISTER_AGAIN
    return f"Topic {topic} was deleted and made anew: {what}."
