"""The headers of result rows: who wrote a row, and which emission it belongs to."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mars.core.types import Bucket, Lane, Range, TaskName

TASK = "mars-task"
VERSION = "mars-version"
REVISION = "mars-revision"
COMPLETE = "mars-complete"
BUCKET = "mars-bucket"
EMIT = "mars-emit"
RANGES = "mars-ranges"
ROWS = "mars-rows"
FOLDED = "mars-folded"
"""Only on the row that stands for all groups over the task's `max_keys`."""
DELETED = "mars-deleted"
"""Only on revisions of groups that HAVING no longer lets pass."""


def result_headers(  # noqa: PLR0913 -- one for each header
    task: TaskName,
    version: int,
    bucket: Bucket,
    emit: int,
    *,
    complete: bool,
    ranges: Iterable[Range] = (),
    rows: int = 0,
    revision: int = 0,
    folded: bool = False,
    deleted: bool = False,
) -> tuple[tuple[str, bytes], ...]:
    """The headers of all rows of one window in one bucket.

    Numbers are decimal text, `complete` is 1 or 0, `ranges` (see `encode_ranges`) are where the
    source rows lie that the window counts in the bucket, `rows` how many these are. `folded` is the
    row that stands for all groups over the task's `max_keys`; `deleted` are rows of groups that are
    no longer among the results.
    """
    return (
        (TASK, task.encode()),
        (VERSION, number(version)),
        (REVISION, number(revision)),
        (COMPLETE, b"1" if complete else b"0"),
        (BUCKET, number(bucket)),
        (EMIT, number(emit)),
        (RANGES, encode_ranges(ranges)),
        (ROWS, number(rows)),
        *(((FOLDED, b"1"),) if folded else ()),
        *(((DELETED, b"1"),) if deleted else ()),
    )


def encode_ranges(ranges: Iterable[Range]) -> bytes:
    """Ranges as JSON, `{"0":[120,980],"3@b1":[0,55]}`: `[first, next)` by lane, one each."""
    return msgspec.json.encode({part.lane: (part.first, part.next) for part in ranges})


def decode_ranges(raw: bytes) -> tuple[Range, ...]:
    """What `encode_ranges` wrote, in order of lanes. Raises msgspec.MsgspecError."""
    spans = msgspec.json.decode(raw, type=dict[str, tuple[int, int]])
    return tuple(Range(Lane(lane), *spans[lane]) for lane in sorted(spans))


def number(value: int) -> bytes:
    """A number as it stands in a header."""
    return b"%d" % value
