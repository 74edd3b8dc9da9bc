"""What becomes of a suspicion once it is held against what was committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mars.core.types import AssignmentEpoch, Bucket, Sequence64, StoreEpoch
from mars.protocol.ports import Head, Ledger, Progress
from mars.protocol.ports.seen import KEPT, Seen, SeenWindow
from mars.protocol.tracker.judging import Judgement, RecordKey, Verdict, judge
from tests.unit.tracking.samples import LIFE, TASK, counted, stored

BUCKETS = 4
HEAD = Head(LIFE.epoch, 1, True, {}, {}, frozenset(), Sequence64(9), 0, 0)


def seen(*seqs: int, through: int = 9) -> Seen | None:
    seeing = SeenWindow(Seen(0, 0))
    for seq in seqs:
        seeing.take(seq)
    seeing.drained(through)
    return seeing.seen()


def record(bucket: int, known: Seen | None) -> Progress:
    return Progress(
        TASK, 1, Bucket(bucket), AssignmentEpoch(1), LIFE.epoch, 1, None, {}, {}, Ledger(),
        seen=known,
    )  # fmt: skip


def records(*known: Seen | None) -> dict[RecordKey, Progress]:
    return {(TASK, 1, Bucket(at)): record(at, one) for at, one in enumerate(known)}


def verdict(known: Mapping[RecordKey, Progress], *buckets: int) -> Judgement:
    return judge(stored(5, *buckets) + counted(5, 0), BUCKETS, known, HEAD)


def test_a_root_whose_notes_were_lost_is_counted() -> None:
    assert verdict(records(seen(5), seen(), seen(5), None), 0, 2).verdict is Verdict.COUNTED


def test_a_bucket_that_has_not_committed_so_far_is_waited_for() -> None:
    assert verdict(records(seen(5), seen(through=4), seen(), seen()), 0, 1).verdict is (
        Verdict.WAITING
    )
    assert verdict(records(seen(5), None, seen(), seen()), 0, 1).verdict is Verdict.WAITING
    assert verdict(records(seen(5)), 0, 1).verdict is Verdict.WAITING


@pytest.mark.parametrize(("buckets", "lost"), [((0, 1), (1,)), ((0, 1, 3), (1, 3))])
def test_a_partial_that_its_bucket_passed_over_is_lost_and_named(
    buckets: tuple[int, ...], lost: tuple[int, ...]
) -> None:
    known = records(seen(5), seen(4, 6), seen(), seen())
    assert verdict(known, *buckets) == Judgement(Verdict.LOST, lost)  # type: ignore[arg-type]


def test_of_three_lost_partials_the_buckets_that_may_be_meant_are_named() -> None:
    known = records(seen(), seen(), seen(5), seen())
    assert verdict(known, 0, 1, 3) == Judgement(
        Verdict.LOST, (Bucket(0), Bucket(1), Bucket(3)), certain=False
    )


def test_what_the_buckets_no_longer_remember_is_not_called_lost() -> None:
    far = seen(through=5 + KEPT)
    assert verdict(records(far, far, far, far), 0, 1).verdict is Verdict.UNKNOWN
    late = Seen(7, 9)
    assert verdict(records(seen(5), late, late, late), 0, 1).verdict is Verdict.UNKNOWN


def test_another_life_of_the_store_reads_everything_again() -> None:
    known = records(seen(), seen(), seen(), seen())
    suspect = stored(5, 0, 1)
    assert judge(suspect, BUCKETS, known, None).verdict is Verdict.REWOUND
    later = replace(HEAD, epoch=StoreEpoch(4))
    assert judge(suspect, BUCKETS, known, later).verdict is Verdict.REWOUND
    ahead = {key: replace(one, store_epoch=StoreEpoch(4)) for key, one in known.items()}
    assert judge(suspect, BUCKETS, ahead, HEAD).verdict is Verdict.REWOUND


def test_a_deleted_task_has_lost_nothing() -> None:
    known = {key: replace(one, deleted=True) for key, one in records(seen()).items()}
    assert verdict(known, 0, 1).verdict is Verdict.REWOUND


def test_records_of_an_earlier_life_say_nothing() -> None:
    known = records(*(seen(5) for _ in range(BUCKETS)))
    older = {key: replace(one, store_epoch=StoreEpoch(2)) for key, one in known.items()}
    assert verdict(older, 0, 1).verdict is Verdict.WAITING
