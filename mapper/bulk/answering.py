"""One ad-hoc query, from the offsets it reads to the answer that is committed.

query ──▶ ranges as of now ──engine──▶ rows, keys, counts ──one transaction──▶ mars.queries
                                                                         └──▶ its output topic
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mars.core.errors import JobFailed
from mars.core.plan import Plan, RecordTime
from mars.core.types import Lane, Range, TaskName, Topic, file_lane, live_lane
from mars.core.windows import Counting, CountingByKey, Session, Window, WindowShape
from mars.core.windows.counting import number_of
from mars.engine.codec import result_headers
from mars.engine.codec.canonical import bucket_of_task
from mars.process.compiling import compile_request
from mars.protocol.ports import (
    Answer,
    BulkEngine,
    OutputRow,
    OutputRows,
    Query,
    QueryAnswer,
    QueryJob,
    TopicAdmin,
    number_in_row,
    window_of_row,
)
from mars.protocol.ports.queries import ANSWER_BYTES_MAX
from mars.sql import only, pinned

FILES = "q"
"""What the lane of a query's files is called after."""

FIRST_VERSION = 1


@dataclass(frozen=True, slots=True)
class QueryAnswerer:
    """What queries need: Spark, and the topics."""

    engine: BulkEngine
    admin: TopicAdmin
    buckets: int
    namespace: str

    def plan(self, query: Query) -> Plan:
        """The query compiled, over the stream as it was declared when it was asked."""
        return compile_request(
            query.sql,
            query.options,
            task=TaskName(query.id),
            version=FIRST_VERSION,
            stream_of=only(query.stream),
            namespace=self.namespace,
            zone_of=pinned(query.zone),
            begin_ms=None,
        )

    def ranges(self, query: Query, plan: Plan) -> tuple[Range, ...]:
        """What is to be read: everything there is now that may hold a row of the range of time.

        Raises JobFailed if the topic is gone.
        """
        if query.files is not None:
            return (Range(file_lane(FILES), 0, query.files.files[-1].next),)
        topic = Topic(query.stream.topic)
        if self.admin.describe(topic) is None:
            raise JobFailed(f"Kafka has no topic {topic} any more")
        starts, ends = self._starts(topic, query, plan), self.admin.ends(topic)
        return tuple(
            Range(live_lane(partition), first, ends[partition])
            for partition, first in sorted(starts.items())
            if first < ends.get(partition, 0)
        )

    def _starts(self, topic: Topic, query: Query, plan: Plan) -> dict[int, int]:
        """A row is never usable whose event time is further ahead of Kafka's than the limit, unless
        the stream goes by no time of Kafka's.
        """
        if query.from_ms is not None and query.stream.record_time is RecordTime.CHECK:
            earliest_ms = query.from_ms - plan.options.future_limit_ms
            if earliest_ms > 0:  # Kafka gives times below 0 a meaning of their own
                return self.admin.offsets_at(topic, earliest_ms)
        return self.admin.starts(topic)

    def answer(self, query: Query, plan: Plan, ranges: tuple[Range, ...]) -> Answer:
        """Run the query. Raises JobFailed for more rows or bytes than there may be."""
        found = self._run(query, ranges)
        size = sum(map(len, found.rows))
        if len(found.rows) > query.rows_max:
            raise JobFailed(
                f"the query has more than {query.rows_max:,} result rows: ask for a shorter time "
                "or fewer groups, or raise rows_max"
            )
        if size > ANSWER_BYTES_MAX:
            raise JobFailed(
                f"the result rows have {size:,} bytes, more than {ANSWER_BYTES_MAX:,}: ask for "
                "fewer rows or columns"
            )
        return Answer(query.id, found.rows, found.counts, self._output(query, plan, found))

    def _run(self, query: Query, ranges: tuple[Range, ...]) -> QueryAnswer:
        if not ranges:
            return QueryAnswer(())
        return self.engine.query(
            QueryJob(
                id=query.id,
                sql=query.sql,
                options=query.options,
                stream=query.stream,
                buckets=self.buckets,
                ranges=ranges,
                from_ms=query.from_ms,
                until_ms=query.until_ms,
                rows_max=query.rows_max,
                files=query.files,
                zone=query.zone,
            )
        )

    def _output(self, query: Query, plan: Plan, found: QueryAnswer) -> OutputRows | None:
        """The rows as result rows, all in one partition, so that they stay in order."""
        if query.output_topic is None:
            return None
        info = self.admin.describe(query.output_topic)
        if info is None:
            raise JobFailed(f"the output topic {query.output_topic} is gone: create it again")
        return OutputRows(
            query.output_topic,
            bucket_of_task(plan.task, info.partitions),
            tuple(output_rows(query, plan.window, found)),
        )


def output_rows(query: Query, shape: WindowShape, found: QueryAnswer) -> Iterable[OutputRow]:
    """Result rows with their headers.

    They name no bucket and no emission: what a reducer looks for when it audits its own.
    """
    common = (
        (result_headers.TASK, query.id.encode()),
        (result_headers.VERSION, result_headers.number(FIRST_VERSION)),
        (result_headers.REVISION, result_headers.number(0)),
    )
    for key, value in zip(found.keys, found.rows, strict=True):
        if isinstance(shape, CountingByKey):
            complete = key not in found.unfilled
        elif isinstance(shape, Counting):
            complete = _is_full(shape, value, found.counted)
        else:
            window = window_of_row(key, value)
            complete = _within(query, shape.reach(window) if isinstance(shape, Session) else window)
        flag = (result_headers.COMPLETE, b"1" if complete else b"0")
        yield OutputRow(key, value, (*common, flag))


def _is_full(shape: Counting, value: bytes, counted: Mapping[Lane, int]) -> bool:
    """Whether the window of a row has as many rows as it counts, of so many of each lane."""
    name = number_in_row(value)
    if name is None:
        return False
    end = number_of(shape.window_numbered(name).end_ms)
    return end <= counted.get(live_lane(name.partition), 0)


def _within(query: Query, window: Window) -> bool:
    """Whether the range of time holds the whole window."""
    after_from = query.from_ms is None or query.from_ms <= window.start_ms
    return after_from and (query.until_ms is None or window.end_ms <= query.until_ms)
