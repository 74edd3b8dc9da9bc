"""What a commit of one version emits: a batch of rows for each window, and what it withholds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from mars.core.plan import Plan
from mars.core.types import Bucket, Lane, Range, Topic
from mars.core.windows.telling import called
from mars.engine.codec.checksum import checksum
from mars.engine.codec.dead import dead_result
from mars.engine.codec.result_headers import result_headers
from mars.protocol.ports import Emission, ResultBatch
from mars.protocol.windows.closing import ClosedWindow, WithheldResult


@dataclass(frozen=True, slots=True)
class Numbered:
    """Which commit of which bucket emits.

    `partition` is that of the output topic. All rows of the version below the offsets `through` are
    counted or named by then.
    """

    bucket: Bucket
    partition: int
    emit: int
    through: Mapping[Lane, int]


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a commit emits of some windows; the sink fills in the offsets of the `emission`."""

    batches: tuple[ResultBatch, ...]
    emission: Emission | None
    withheld: tuple[WithheldResult, ...]


def emitted(plan: Plan, commit: Numbered, closed: Sequence[ClosedWindow]) -> Emitted:
    """All rows of these windows; their rows count as emitted, sent or not."""
    batches = tuple(_batches(plan, commit, closed))
    return Emitted(batches, _emission(batches, commit.emit), tuple(_withheld(plan, commit, closed)))


def _batches(plan: Plan, commit: Numbered, closed: Sequence[ClosedWindow]) -> Iterator[ResultBatch]:
    """One batch a window: what its rows were counted from stands in their headers."""
    topic = Topic(plan.options.output_topic)
    for window, folded in product(closed, (False, True)):
        part = window.finished.part(others=folded)
        if not part.keys:
            continue
        headers = result_headers(
            plan.task,
            plan.version,
            commit.bucket,
            commit.emit,
            complete=window.complete,
            ranges=_ranges(window, commit.through),
            rows=window.rows,
            revision=window.revision,
            folded=folded,
            deleted=window.deleted,
        )
        yield ResultBatch(
            plan.task, plan.version, topic, commit.partition, part.keys, part.values, headers
        )


def _emission(batches: Sequence[ResultBatch], emit: int) -> Emission | None:
    if not batches:
        return None
    return Emission(
        topic=batches[0].topic,
        partition=batches[0].partition,
        emit=emit,
        first=-1,
        last=-1,
        count=sum(len(batch.values) for batch in batches),
        checksum=checksum(value for batch in batches for value in batch.values),
    )


def _withheld(
    plan: Plan, commit: Numbered, closed: Sequence[ClosedWindow]
) -> Iterator[WithheldResult]:
    for each in closed:
        for one in each.finished.withheld:
            ranges = _ranges(each, commit.through)
            dead = dead_result(plan, ranges, each.window, one.shown_key, one.detail)
            name = called(plan.window, each.window)
            yield WithheldResult(each.window, name, one.detail, tuple(dead))


def told(withheld: Sequence[WithheldResult]) -> str:
    """How many results are withheld, and one of them; empty where none is."""
    if not withheld:
        return ""
    first = withheld[0]
    count = f"{len(withheld)} results are" if len(withheld) > 1 else "1 result is"
    return f"{count} withheld, for example of the window {first.name}: {first.detail}"


def _ranges(window: ClosedWindow, through: Mapping[Lane, int]) -> list[Range]:
    """The offsets of which every row of the window was counted; later ones come too late."""
    return [
        Range(lane, first, through.get(lane, first))
        for lane, first in sorted(window.firsts.items())
    ]
