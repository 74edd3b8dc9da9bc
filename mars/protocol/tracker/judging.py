"""Whether a root that is overdue was counted: its stored value against what was committed.

Notes get lost, so a value that is not 0 proves nothing. Each bucket's progress record says, in the
transaction that counted them, which entries of its log the bucket has seen. So a suspicion ends in
certainty: the XOR of the ids in those buckets that have seen the entry is the stored value, or a
bucket has read past the entry without finding it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from mars.core.types import Bucket, TaskName
from mars.protocol.ports import Head, Progress
from mars.protocol.ports.notes import Note, Root, check_of

NAMED_MAX = 2
"""Up to how many lost partials of one batch are told apart by their XOR; of more, only the buckets
that may be meant are known."""

RecordKey = tuple[TaskName, int, Bucket]


class Verdict(StrEnum):
    """What became of a root."""

    COUNTED = "counted"
    WAITING = "waiting"
    """Some bucket has not committed as far as this."""
    LOST = "lost"
    REWOUND = "rewound"
    """The store lives another life, in which the offsets are read again, or the task is gone."""
    UNKNOWN = "unknown"
    """The buckets no longer remember."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """`buckets` of a lost root: those whose partials are missing (`certain`), or may be."""

    verdict: Verdict
    buckets: tuple[Bucket, ...] = ()
    certain: bool = True


def judge(
    suspect: Note, buckets: int, records: Mapping[RecordKey, Progress], head: Head | None
) -> Judgement:
    """What became of the suspect's root.

    `records` are the newest progress records, read after the suspicion arose, `head` is the task's.
    """
    life, seq = suspect.root
    if head is None or head.epoch != life.epoch:
        return Judgement(Verdict.REWOUND)
    everything = [Bucket(number) for number in range(buckets)]
    present = {
        bucket: record
        for bucket in everything
        if (record := records.get((life.task, life.version, bucket))) is not None
    }
    if any(one.deleted or one.store_epoch > life.epoch for one in present.values()):
        return Judgement(Verdict.REWOUND)
    seen = {
        bucket: record.seen
        for bucket, record in present.items()
        if record.store_epoch == life.epoch and record.seen is not None
    }
    counted = [bucket for bucket, one in seen.items() if one.holds(seq)]
    missing = suspect.stored ^ check_of(suspect.root, counted)
    if not missing:
        return Judgement(Verdict.COUNTED)
    if any(bucket not in seen or seen[bucket].through < seq for bucket in everything):
        return Judgement(Verdict.WAITING)
    if not all(one.knows(seq) for one in seen.values()):
        return Judgement(Verdict.UNKNOWN)
    return _lost(suspect.root, missing, [one for one in everything if one not in counted])


def _lost(root: Root, missing: int, candidates: list[Bucket]) -> Judgement:
    found = _named(root, missing, candidates)
    return Judgement(Verdict.LOST, found or tuple(candidates), certain=bool(found))


def _named(root: Root, missing: int, candidates: Iterable[Bucket]) -> tuple[Bucket, ...]:
    """The few buckets whose ids make up what is missing; none if they are more."""
    ids = {bucket: check_of(root, [bucket]) for bucket in candidates}
    for bucket, own in ids.items():
        if own == missing:
            return (bucket,)
    for first, second in combinations(ids, NAMED_MAX):
        if ids[first] ^ ids[second] == missing:
            return (first, second)
    return ()
