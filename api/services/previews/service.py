"""Previews: a query tried before it is registered. Touches nothing, keeps nothing.

compile ─▶ rows of the request, or the last seconds of the topic ─▶ trial ─▶ answer
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from api.http.places import Places
from api.preview_schemas import PreviewRequest
from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, ClusterContext, Ports
from api.services.defining.making import described
from api.services.previews.answer import ReadRows, preview_view
from api.services.previews.reading import PreviewSource, TopicReading, to_read
from api.services.previews.trial import Trial
from mars.client.answers import Preview, PreviewProgress
from mars.core.plan import Format, Plan, Stream, reads_keys
from mars.core.types import Records, Topic, live_lane

PREVIEWS_MAX = 3
"""At once: each takes a core for a second or two, and its memory in a process of its own."""

PREVIEWS_OF_A_KEY = 2
"""Of them: one, and one that is begun before it has ended."""

NO_STAMP = -1
"""The Kafka timestamp of a record that has none."""

Steps = Generator[PreviewProgress | Preview, None, None]
Previewer = Callable[[PreviewRequest], Preview]
"""Makes previews of a topic elsewhere; what was asked for is known to be right."""


class PreviewService:
    """What the path /v1/tasks/preview does."""

    def __init__(
        self,
        ports: Ports,
        compiler: TaskCompiler,
        buckets: BucketCount,
        cluster: ClusterContext,
        previewer: Previewer | None = None,
    ) -> None:
        self._ports = ports
        self._previewer = previewer
        self._compiler = compiler
        self._buckets = buckets
        self._log_bytes_max = cluster.log_bytes_max
        self._places = Places(
            PREVIEWS_MAX,
            f"{PREVIEWS_MAX} previews are under way: try again in some seconds",
            PREVIEWS_OF_A_KEY,
        )

    def begin(self, request: PreviewRequest) -> Steps:
        """Steps of a preview: signs of life, and last the preview itself. Close it when done.

        What is wrong with the request is raised at once: SqlError, Rejected, TooMany. The
        steps raise Unavailable, TaskLimit.
        """
        give_back = self._places.take()  # first: to compile takes a core, too
        try:
            trial = Trial(self._plan(request), self._buckets())
            if request.rows is None:
                described(self._ports, Topic(trial.plan.stream.topic))
        except BaseException:
            give_back()
            raise
        steps = self._steps(request, trial, give_back)
        next(steps)  # from here on `close` gives the place back
        return steps

    def preview(self, request: PreviewRequest) -> Preview:
        """The preview at once. Raises what `begin` and its steps do."""
        steps = self.begin(request)
        try:
            *_progress, found = steps
        finally:
            steps.close()
        assert isinstance(found, Preview)  # noqa: S101 -- the last step
        return found

    def _plan(self, request: PreviewRequest) -> Plan:
        plan = self._compiler.compile(
            request.sql,
            request.options,
            task=None,
            version=1,
            begin_ms=self._begin_ms(request),
        )
        if request.rows is None:
            return plan
        # Rows of a request are JSON objects, whatever the messages are.
        return replace(plan, stream=replace(plan.stream, format=Format.JSON))

    def _begin_ms(self, request: PreviewRequest) -> int:
        """From when on rows are shown; of rows in a request all are."""
        if request.rows is not None:
            return 0
        return self._ports.now_ms() - round(request.seconds * 1_000)

    def _stamp_ms(self, stream: Stream) -> int:
        """The Kafka timestamp of rows in a request, which come now if that is their event time."""
        named = stream.field(stream.event_time)
        of_record = named is not None and named.origin is not None
        return self._ports.now_ms() if of_record else NO_STAMP

    def _steps(self, request: PreviewRequest, trial: Trial, give_back: Callable[[], None]) -> Steps:
        try:
            yield PreviewProgress(messages=0, messages_total=0)
            if request.rows is not None:
                read = _take_rows(request.rows, trial, self._stamp_ms(trial.plan.stream))
            elif self._previewer is not None:
                yield self._previewer(request)
                return
            else:
                read = yield from self._take_topic(request.seconds, trial)
            yield preview_view(trial, read, request.limit, self._log_bytes_max)
        finally:
            give_back()

    def _take_topic(
        self, seconds: float, trial: Trial
    ) -> Generator[PreviewProgress | Preview, None, ReadRows]:
        topic, now_ms = Topic(trial.plan.stream.topic), self._ports.now_ms()
        found = to_read(self._ports.admin, topic, now_ms - round(seconds * 1_000))
        total = sum(span.end - span.first for span in found.spans.values())
        reader = self._ports.open_reader()
        try:
            if reads_keys(trial.plan.fields):
                reader.want_keys((topic,))
            reading = TopicReading(reader, topic, found.spans)
            for records in reading.pieces():
                trial.add(records)
                yield PreviewProgress(messages=reading.messages, messages_total=total)
                if trial.full:
                    reading.stop()
                    break
        finally:
            reader.close()
        return ReadRows(
            found.source,
            seconds,
            reading.messages,
            reading.bytes,
            reading.truncated or trial.cut_short,
            reading.seconds(seconds, now_ms)
            if found.source is PreviewSource.LAST_SECONDS
            else None,
            found.silent,
        )


def _take_rows(rows: Sequence[object], trial: Trial, stamp_ms: int) -> ReadRows:
    values = [json.dumps(row).encode() for row in rows]
    count = len(values)
    stamps, keys = [stamp_ms] * count, [None] * count
    trial.add(Records(live_lane(0), 0, count, values, range(count), stamps, keys))
    return ReadRows(PreviewSource.ROWS, 0.0, count, sum(map(len, values)))
