"""Which versions of a task have come to their end, and which of those can be forgotten."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import dropwhile, pairwise

from mars.core.definitions import TaskDefinition, TaskVersion
from mars.core.types import Bucket
from mars.protocol.ports import Progress


def is_done(record: Progress, newer: TaskVersion) -> bool:
    """True if a bucket has emitted everything of a version, which ends where the `newer` begins."""
    ends = newer.starts or {}
    return (
        record.ledger.open == 0
        and not record.owed
        and all(record.merged.get(lane, 0) >= end for lane, end in ends.items())
    )


def done_versions(
    definition: TaskDefinition, records: Iterable[Progress], buckets: Collection[Bucket]
) -> frozenset[int]:
    """The versions that are done in all buckets, as their newest records say."""
    known = {(record.version, record.bucket): record for record in records}
    return frozenset(
        older.version
        for older, newer in pairwise(definition.versions)
        if newer.starts is not None
        and all(
            (record := known.get((older.version, bucket))) is not None and is_done(record, newer)
            for bucket in buckets
        )
    )


def needed_versions(definition: TaskDefinition, done: Collection[int]) -> tuple[TaskVersion, ...]:
    """The versions without the oldest ones, as far as those are done.

    One that lies between others stays, done or not: where it begins is where the one before it
    ends, whose rows would else be those of both once they are read again.
    """
    return tuple(dropwhile(lambda one: one.version in done, definition.versions))
