"""One task in one bucket: tests feed it entries and take its commits as durable."""

from __future__ import annotations

from mars.core.types import Entry
from mars.protocol.ports import Head, Progress
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    SAVE_MS,
    counts_of,
    make_entry,
    make_head,
    make_plan,
    make_slice,
    make_task,
    make_version,
)


def begin(*records: Progress, **task: object) -> TaskInBucket:
    """A task of an owner who has read nothing yet."""
    made = make_task(**task)  # type: ignore[arg-type]
    by_version = {record.version: record for record in records}
    return TaskInBucket(made, OWNER, by_version, SAVE_MS)


def read(part: TaskInBucket, head: Head, *entries: Entry, base: Entry | None = None) -> None:
    """Take entries, then go forward to the head."""
    part.absorb(make_slice(*entries, base=base))
    part.drained(head)


def commit(part: TaskInBucket) -> list[Progress]:
    """Prepare and take it as durable."""
    records = list(part.prepare().progress)
    for record in records:
        part.committed(record)
    return records


def emitted(part: TaskInBucket) -> dict[tuple[int, str], int]:
    """What would be committed now."""
    return counts_of(value for batch in part.prepare().results for value in batch.values)


def two_versions() -> TaskInBucket:
    """Version 2 begins at offset 2; version 1 has rows in the window from 0."""
    part = TaskInBucket(make_task(make_version(1), make_version(2, {P0: 2})), OWNER, {}, SAVE_MS)
    new = make_plan(version=2)
    entries = (make_entry(1, 0, [(1, "x"), (2, "x")]), make_entry(2, 2, [(3, "x")], plan=new))
    read(part, make_head(2, {P0: 3}, mark_s=5), *entries)
    return part
