"""Rows of tasks, read again to check a result: from Kafka, or from the files of a history."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer

from mars.adapters.kafka.config import lone_reader_properties
from mars.adapters.kafka.errors import configured
from mars.adapters.spark.planning import over_files
from mars.adapters.spark.reading import read_range
from mars.core.definitions import FileHistory
from mars.core.locations import FileRoots
from mars.core.plan import Plan, reads_keys
from mars.core.settings import Settings
from mars.core.types import Mapped, Range
from mars.engine.decode.parts import decode_slices
from mars.engine.kernel import map_batch
from mars.sql.bounds import until

READER = "verifier"
"""What the consumer is called in the broker's log."""


class RowsAgain:
    """`SourceRows` over Kafka and files; safe for threads, each call has a consumer of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read(
        self,
        plan: Plan,
        buckets: int,
        part: Range,
        files: FileHistory | None = None,
        number: int | None = None,
    ) -> Iterator[Mapped | Range]:
        """What a range adds to a task. Raises Unavailable, JobFailed, TaskLimit."""
        if files is None:
            return self._of_topic(plan, buckets, part, number)
        bulk = self._settings.bulk
        roots = FileRoots.of(bulk.files, bulk.files_never)
        return _of_files(plan, buckets, part, files, roots)

    def _of_topic(
        self, plan: Plan, buckets: int, part: Range, number: int | None
    ) -> Iterator[Mapped | Range]:
        with configured():
            consumer = Consumer(lone_reader_properties(self._settings, READER))
        try:
            keys = reads_keys(plan.fields)
            for batch in read_range(consumer, plan.stream.topic, part, keys=keys):
                if isinstance(batch, Range):
                    yield batch
                    continue
                for decoded in decode_slices(plan.stream, plan.fields, batch):
                    mapped = map_batch(plan, buckets, decoded, number)
                    if number is not None:
                        number = mapped.numbered[part.lane].next
                    yield mapped
        finally:
            consumer.close()


def _of_files(
    plan: Plan, buckets: int, part: Range, files: FileHistory, roots: FileRoots
) -> Iterator[Mapped | Range]:
    # pyarrow takes 25 MB in each process that imports it, and only some tasks have files.
    from mars.adapters.spark.file_reading import FileSource  # noqa: PLC0415

    narrowed = until(over_files(plan, files), files.until_ms)
    for batch in FileSource(files, roots).batches(narrowed, part):
        yield batch if isinstance(batch, Range) else map_batch(narrowed, buckets, batch)
