"""The headers of result rows: who wrote a row, and which emission it belongs to."""

from __future__ import annotations

from mars.types import Bucket, TaskName

TASK = "mars-task"
VERSION = "mars-version"
REVISION = "mars-revision"
COMPLETE = "mars-complete"
BUCKET = "mars-bucket"
EMIT = "mars-emit"
FOLDED = "mars-folded"
"""Only on the row that stands for all groups over the task's `max_keys`."""


def result_headers(
    task: TaskName,
    version: int,
    bucket: Bucket,
    emit: int,
    *,
    complete: bool,
    revision: int = 0,
    folded: bool = False,
) -> tuple[tuple[str, bytes], ...]:
    """The headers of all rows of one emission; numbers as decimal text, `complete` as 1 or 0."""
    return (
        (TASK, task.encode()),
        (VERSION, number(version)),
        (REVISION, number(revision)),
        (COMPLETE, b"1" if complete else b"0"),
        (BUCKET, number(bucket)),
        (EMIT, number(emit)),
        *(((FOLDED, b"1"),) if folded else ()),
    )


def number(value: int) -> bytes:
    """A number as it stands in a header."""
    return b"%d" % value
