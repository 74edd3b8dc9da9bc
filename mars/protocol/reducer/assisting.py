"""What an assistant does for the owner of a bucket that needs more than a processor.

Assistants replace segments of the bucket's log by single entries. The owner clears its log for them
above the SEQ to which it goes itself: each of its looks moves that on, so that it never waits, and
what nobody has merged by then it reads as it is.

    log   ──────────────┬──── 16 ────┬──── 16 ────┬──── 16 ────┬─────▶ SEQ
          read, or being   assistant 1  assistant 0  assistant 1  not whole
          read, by owner   of 2         of 2         of 2         yet
                        ▲
                        cleared above this

Nobody else has read what lies in a segment, and no offset that a progress record names lies inside
one: an owner's records end where it has looked, and no segment crosses that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mars.core.plan import Plan
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    MemberId,
    Partial,
    Reason,
    Rejections,
    RowCounts,
    Sequence64,
    StoreEpoch,
)
from mars.engine.codec.states import states_bytes
from mars.engine.combining import join_numbers, join_panes, join_ranges, join_states
from mars.protocol.ports import Assignment

SEGMENT_SEQS = 16
"""SEQs of a segment: about a second of batches under load. A longer one is cut off by the owner's
next look before it is whole, a shorter one shrinks less."""

SEGMENTS_AT_ONCE = 4
"""Segments between two looks at how far the owner has come."""

SHRINK_MAX = 0.75
"""Of the bytes of a segment: what merging leaves more of is not worth the owner's while."""

SHRINKAGE_KEPT = 0.9
"""Of the weight of former runs, at each further one."""

SHRINKAGE_RUNS_MIN = 8
"""Runs after which it counts how much remained of them: the first ones may be short."""

_HEADER_BYTES = 256
"""About that of an entry with one range and one pane, with what the store keeps besides."""


@dataclass(frozen=True, slots=True)
class Assist:
    """One bucket that a reducer assists, as assistant number `place` of `count`, for its owner of
    `owner_epoch`.
    """

    bucket: Bucket
    owner_epoch: AssignmentEpoch
    store_epoch: StoreEpoch
    place: int
    count: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The entries `after < seq <= upto` of a log."""

    after: Sequence64
    upto: Sequence64


def assists_of(member: MemberId, assignment: Assignment | None) -> tuple[Assist, ...]:
    """What the assignment asks of a reducer."""
    named: Mapping[Bucket, tuple[MemberId, ...]] = assignment.assistants if assignment else {}
    return tuple(
        Assist(bucket, owner.epoch, assignment.store_epoch, members.index(member), len(members))
        for bucket, members in sorted(named.items())
        if assignment is not None
        and member in members
        and (owner := assignment.owners.get(bucket)) is not None
        and owner.member != member
    )


def segments(assist: Assist, cleared: Sequence64, head: Sequence64) -> Iterator[Segment]:
    """The segments of an assistant above `cleared`, as far as the log has them whole, in order."""
    for number in range(cleared // SEGMENT_SEQS, head // SEGMENT_SEQS):
        if number % assist.count == assist.place:
            after = max(cleared, number * SEGMENT_SEQS)
            yield Segment(Sequence64(after), Sequence64((number + 1) * SEGMENT_SEQS))


@dataclass(frozen=True, slots=True)
class Merged:
    """An entry that may replace others, and the bytes of both."""

    entry: Entry
    before_bytes: int
    after_bytes: int

    @property
    def worth_it(self) -> bool:
        """Whether the owner has less to do with it."""
        return self.after_bytes <= SHRINK_MAX * self.before_bytes


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """How much of what was merged remained, a mean of about the last ten runs."""

    runs: int = 0
    before_bytes: float = 0.0
    after_bytes: float = 0.0

    def and_then(self, merged: Merged) -> Shrinkage:
        """With one more."""
        return Shrinkage(
            self.runs + 1,
            SHRINKAGE_KEPT * self.before_bytes + merged.before_bytes,
            SHRINKAGE_KEPT * self.after_bytes + merged.after_bytes,
        )

    @property
    def remaining(self) -> float | None:
        """The part of the bytes; None while too little was merged."""
        return self.after_bytes / self.before_bytes if self.runs >= SHRINKAGE_RUNS_MIN else None


def merged_entries(plan: Plan, entries: Sequence[Entry]) -> Iterator[Merged]:
    """What may replace entries of a segment: one for each run that can be merged.

    Raises TaskLimit where a state outgrows its limit, ValueError where offsets overlap.
    """
    for run in _runs(plan.version, entries):
        if len(run) > 1:
            merged = _merged(plan, run)
            yield Merged(merged, sum(map(_size, run)), _size(merged))


def _runs(version: int, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Entries of one version that follow each other.

    One that is merged already stays; so does one with rows that are gone, because what comes after
    it in its lane matters.
    """
    run: list[Entry] = []
    for entry in entries:
        gone = any(one.reason is Reason.GONE for one in entry.partial.rejections.ranges)
        if entry.version == version and not entry.merged and not gone:
            run.append(entry)
            continue
        yield run
        run = []
    yield run


def _merged(plan: Plan, run: Sequence[Entry]) -> Entry:
    """All that R9 keeps of the entries, in the order of their SEQs, and every rejected row."""
    partials = [entry.partial for entry in run]
    return Entry(
        seq=run[-1].seq,
        version=plan.version,
        ranges=join_ranges(part for entry in run for part in entry.ranges),
        partial=Partial(
            bucket=partials[0].bucket,
            counts=sum((partial.counts for partial in partials), RowCounts()),
            panes=join_panes(pane for partial in partials for pane in partial.panes),
            states=join_states(plan, [partial.states for partial in partials if partial.states]),
            rejections=Rejections(
                tuple(row for partial in partials for row in partial.rejections.rows),
                tuple(one for partial in partials for one in partial.rejections.ranges),
            ),
            numbers=join_numbers(partial.numbers for partial in partials),
        ),
        merged=tuple(entry.seq for entry in run),
    )


def _size(entry: Entry) -> int:
    """Bytes of its states, and a little for its header: entries without rows are worth merging."""
    return states_bytes(entry.partial.states) + _HEADER_BYTES
