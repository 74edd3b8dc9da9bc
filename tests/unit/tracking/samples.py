"""Batches and their notes."""

from __future__ import annotations

from hypothesis import settings

from mars.core.types import (
    Bucket,
    Lane,
    Mapped,
    Partial,
    Range,
    RowCounts,
    Sequence64,
    StoreEpoch,
    TaskName,
)
from mars.protocol.ports.notes import LogLife, Note, Root, counted_note, stored_note

UNHURRIED = settings(deadline=None)
"""Properties take as long as the machine makes them take."""

TASK = TaskName("flows")
LIFE = LogLife(TASK, StoreEpoch(3), 1)


def root(seq: int, life: LogLife = LIFE) -> Root:
    return Root(life, Sequence64(seq))


def ranges(seq: int) -> tuple[Range, ...]:
    return (Range(Lane("0"), 10 * seq, 10 * seq + 10),)


def stored(seq: int, *buckets: int, parts: tuple[Range, ...] = ()) -> Note:
    partials = tuple(Partial(Bucket(one), RowCounts(1), (), b"") for one in buckets)
    return stored_note(root(seq), Mapped(parts or ranges(seq), {}, partials))


def counted(seq: int, bucket: int) -> Note:
    return counted_note(root(seq), Bucket(bucket))
