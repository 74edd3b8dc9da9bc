"""What the leader does for one task: where it begins, its versions, its lanes.

a new life of the store   ──task_start──▶  offsets = lowest L, cuts = all M and S, ends of
                                           backfills, how far event time had come
a life that goes on       ──tend_task───▶  pause, resume, new version, new partitions
a version that begins     ──begin_version▶ its starts, and which windows of both are whole
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion, made_anew
from mars.core.errors import Rejected
from mars.core.plan import Options, WatermarkScope
from mars.core.types import NOT_KNOWN, Bucket, Lane, Mark, Topic, live_lane
from mars.protocol.leader.view import (
    AddLanes,
    BeginVersion,
    Decision,
    EndCatchUp,
    FailTask,
    SetActive,
    View,
)
from mars.protocol.outlived import is_done
from mars.protocol.ports import Begun, Head, Progress, TaskStart
from mars.sql import parse_options


def of_former_task(definition: TaskDefinition, head: Head | None) -> bool:
    """True if what the store holds is of a deleted task that bore the name before."""
    return head is not None and head.version < definition.first_version


def last_of_former(definition: TaskDefinition) -> int:
    """The last version of the deleted task that bears this name, or bore it before."""
    if definition.state is TaskState.DELETED:
        return definition.current.version
    return definition.first_version - 1


def tend_task(view: View, definition: TaskDefinition, head: Head) -> list[Decision]:
    """Make the store agree with the definition of one task."""
    name, epoch = definition.name, head.epoch
    if definition.state is TaskState.RUNNING and _topic_made_again(view, definition):
        detail = made_anew(definition.current.stream.topic)
        return [FailTask(name, definition.run, detail)]
    decisions: list[Decision] = []
    if definition.catch_up and not view.bulk_alive:
        decisions.append(EndCatchUp(name, definition.run))
    if definition.current.starts is None:
        return [*decisions, *_towards_new_version(view, definition, head)]
    wanted = definition.state is TaskState.RUNNING
    if head.active is not wanted:
        decisions.append(SetActive(name, epoch, active=wanted))
    known = view.partitions.get(Topic(definition.current.stream.topic), 0)
    lanes = {live_lane(number): 0 for number in range(known)}
    missing = {lane: 0 for lane in lanes if lane not in head.offsets}
    if missing:
        decisions.append(AddLanes(name, epoch, missing))
    return decisions


def _topic_made_again(view: View, definition: TaskDefinition) -> bool:
    """True if offsets of the task's topic do not mean what they meant any more."""
    version = definition.current
    found = view.topic_ids.get(Topic(version.stream.topic), version.topic_id)
    return found != version.topic_id


def _towards_new_version(view: View, definition: TaskDefinition, head: Head) -> list[Decision]:
    """Let the version before come to where it has been, then let the new one begin.

    After a loss of the store a task goes on from L. The rows between L and M are accounted to the
    version before, which builds its open panes from them again: they must not become rows of the
    new one. Where the new one has begun in the store, but not in the definition, it begins there
    once more, which answers the same.
    """
    name, epoch = definition.name, head.epoch
    before, new = definition.begun[-1].version, definition.current.version
    wanted = definition.state is TaskState.RUNNING
    if head.version != new and not _caught_up(view, definition, head):
        return [SetActive(name, epoch, active=wanted)] if head.active is not wanted else []
    behind_ms = _behind_ms(definition)
    newest_ms = _newest_accounted(view, definition)
    return [BeginVersion(name, epoch, head.run_id, new, before, behind_ms, newest_ms)]


def _behind_ms(definition: TaskDefinition) -> int:
    """How far rows of the version before may lag behind the mark of their lane: by the delay, and
    as keys may. As far as one likes where this release refuses its options: nobody here runs it.
    """
    options = _options_of(definition, definition.begun[-1])
    return -_LONG_AGO_MS if options is None else options.delay_ms + options.key_lag_ms


def _caught_up(view: View, definition: TaskDefinition, head: Head) -> bool:
    """True if the store's offsets have reached what every bucket has accounted, and the last start.

    A version never begins before the one before it does.
    """
    reached = [version.starts or {} for version in definition.begun]
    reached += [record.merged for record in _records(view, definition)]
    return all(
        head.offsets.get(lane, 0) >= offset for each in reached for lane, offset in each.items()
    )


def _newest_accounted(view: View, definition: TaskDefinition) -> int | None:
    """The newest event time below M, as the records tell.

    After a loss of the store its marks do not know of rows that a snapshot holds, or that were
    filtered: those are not read again.
    """
    known = [record.newest_ms for record in _records(view, definition)]
    return max((one for one in known if one is not None), default=None)


def _records(view: View, definition: TaskDefinition) -> Iterator[Progress]:
    """Those of each bucket of each version that has begun."""
    for version in definition.begun:
        for bucket in range(view.buckets):
            record = view.progress.records.get((definition.name, version.version, Bucket(bucket)))
            if record is not None:
                yield record


def begin_version(
    definition: TaskDefinition, begun: Begun, behind_ms: int, newest_ms: int | None
) -> TaskDefinition:
    """The newest version has begun where the store says.

    Rows below these offsets belong to the version before. A window of the new version may lack rows
    that went to the old one if it begins at or before the newest of them, the one that the marks
    know or that the records do (`newest_ms`). A window of the old one may lack rows if it ends
    after what every lane has passed by `behind_ms`.
    """
    old, new = definition.versions[-2], definition.versions[-1]
    old = replace(old, complete_until_ms=_passed(definition, begun, behind_ms))
    known = [old.complete_from_ms] if old.complete_from_ms is not None else []
    known += [newest_ms + 1] if newest_ms is not None else []
    began = max([*known, *_newest(definition, begun)], default=None)
    new = replace(
        new,
        starts=dict(begun.starts),
        complete_from_ms=began,
        unread_ms=old.unread_ms,
        rows_before=dict(begun.rows),
    )
    return replace(definition, versions=(*definition.versions[:-2], old, new))


def _passed(definition: TaskDefinition, begun: Begun, behind_ms: int) -> int:
    """Up to when no lane that still goes on has rows to come, by its mark."""
    ends = definition.ends
    going_on = {lane for lane, at in begun.starts.items() if lane not in ends or at < ends[lane]}
    if not going_on or not going_on <= begun.marks_ms.keys():
        return _LONG_AGO_MS
    return min(begun.marks_ms[lane] for lane in going_on) - behind_ms


def _newest(definition: TaskDefinition, begun: Begun) -> list[int]:
    """Behind the newest rows that were taken: after each mark, and after files that were begun.

    The mark of a lane of files says what is still to come of them, not what has come; they hold
    nothing from after their own bound, or else after they were handed in.
    """
    newest = [max(begun.marks_ms.values()) + 1] if begun.marks_ms else []
    for backfill in definition.backfills:
        lanes = backfill.lanes.items()
        read = any(begun.starts.get(lane, 0) > span.first for lane, span in lanes)
        if backfill.files is not None and read:
            until_ms = backfill.files.until_ms
            newest.append(backfill.created_ms if until_ms is None else until_ms)
    return newest


_LONG_AGO_MS = -(2**62)
"""Before every window: a version that ends before any mark has no complete window."""


def task_start(definition: TaskDefinition, view: View) -> TaskStart:
    """Where a task goes on in a new life of the store: offsets = lowest L, cuts = all M and S.

    Rows on one side of a cut are counted, or come back with a snapshot, those on the other are not.
    L of sessions is a cut, too: rows below it may have been late.
    """
    lanes = _lanes(definition, view)
    low: dict[Lane, int] = {}
    cuts: dict[Lane, set[int]] = {lane: set() for lane in lanes}
    numbers = _numbers(definition, view)
    counting = {record.version for record in _records(view, definition) if record.rows is not None}
    versions = definition.begun
    for position, version in enumerate(versions):
        newer = versions[position + 1] if position + 1 < len(versions) else None
        for bucket in range(view.buckets):
            record = view.progress.records.get((definition.name, version.version, Bucket(bucket)))
            if record is not None and newer is not None and is_done(record, newer):
                continue
            needed, merged = _positions(record, version, lanes)
            saved = record.snapshot.merged if record is not None and record.snapshot else {}
            for lane in lanes:
                low[lane] = min(needed[lane], low.get(lane, needed[lane]))
                cuts[lane] |= {merged[lane], (version.starts or {}).get(lane, 0)}
                cuts[lane] |= {saved[lane]} if lane in saved else set()
                cuts[lane] |= {needed[lane]} if record is not None and record.anchored else set()
    return TaskStart(
        version=versions[-1].version,
        active=definition.state is TaskState.RUNNING and definition.current.starts is not None,
        offsets=low,
        bounds={version.version: version.starts or {} for version in versions},
        cuts={lane: tuple(sorted(c for c in cuts[lane] if c > low[lane])) for lane in lanes},
        ends=definition.ends,
        leader=view.leader_epoch,
        restored=_reached(definition, view),
        numbers={
            lane: _known_at(numbers[lane], low[lane], cuts[lane], _anew(definition, counting, lane))
            for lane in numbers
        },
    )


def _anew(
    definition: TaskDefinition, counting: Collection[int], lane: Lane
) -> Callable[[int], bool]:
    """Whether no row below an offset of a lane is counted: a version begins there, or that to which
    it belongs counts none.
    """
    starts = {(version.starts or {}).get(lane, 0) for version in definition.begun}

    def anew(offset: int) -> bool:
        version, _boundary = definition.version_at(lane, offset)
        return offset in starts or version not in counting

    return anew


def _numbers(definition: TaskDefinition, view: View) -> dict[Lane, dict[int, int]]:
    """How many rows are counted below the offsets that records name, if their windows count rows.

    Where a version ends rows are counted anew: what its records say of there is of no use.
    """
    found: dict[Lane, dict[int, int]] = {}
    ends = {before.version: after.starts or {} for before, after in pairwise(definition.begun)}
    for record in _records(view, definition):
        if record.rows is None:
            continue
        for lane, below in record.rows.below.items():
            known = found.setdefault(lane, {})
            known |= {
                offset: number
                for offset, number in below.items()
                if record.version not in ends or offset < ends[record.version].get(lane, 0)
            }
    return found


def _known_at(
    numbers: Mapping[int, int], first: int, cuts: Iterable[int], anew: Callable[[int], bool]
) -> dict[int, int]:
    """What is known of the first offset of a lane, and of its cuts: elsewhere batches are cut by
    chance. A bucket may have accounted rows that were gone up to where nobody knew how many.
    """
    known = {at: numbers[at] for at in (first, *cuts) if at >= first and at in numbers}
    if anew(first):
        return known | {first: 0}
    return {first: NOT_KNOWN} | known if known else known


def _reached(definition: TaskDefinition, view: View) -> Mark | None:
    """How far event time had come, as the records tell; of those that say the same, the newest.

    Rows below L do not come again, and so neither do their marks: without this one, the windows of
    a snapshot would wait for rows that may never come.
    """
    known, marks = view.progress, []
    for version in definition.begun:
        behind_ms = _behind_watermark_ms(definition, version)
        for bucket in range(view.buckets):
            key = definition.name, version.version, Bucket(bucket)
            level_ms, written_ms = _level(known.records.get(key)), known.written_ms.get(key)
            if level_ms is not None and behind_ms is not None and written_ms is not None:
                marks.append((level_ms + behind_ms, written_ms))
    return Mark(*max(marks)) if marks else None


def _level(record: Progress | None) -> int | None:
    """The highest watermark that a record shows: C is one that was, and it does not go back."""
    if record is None or record.deleted:
        return None
    known = [at for at in (record.watermark_ms, record.closed_ms) if at is not None]
    return max(known, default=None)


def _behind_watermark_ms(definition: TaskDefinition, version: TaskVersion) -> int | None:
    """How far at least the watermarks of a version lie behind the marks; None: it cannot be told.

    The keys' lag is not waited for where a bucket's own rows close its windows.
    """
    options = _options_of(definition, version)
    if options is None:
        return None
    lag_ms = 0 if options.watermark is WatermarkScope.BUCKET else options.key_lag_ms
    return options.delay_ms + lag_ms


def _options_of(definition: TaskDefinition, version: TaskVersion) -> Options | None:
    """None where this release refuses what another one took: the version does not run then. Whether
    it can compile the query makes no difference to a leader.
    """
    try:
        return parse_options(version.options, definition.name, version.stream)
    except Rejected:
        return None


def _lanes(definition: TaskDefinition, view: View) -> set[Lane]:
    """All lanes of a task; those of a deleted one that bore its name are not among them."""
    lanes = {lane for version in definition.begun for lane in version.starts or {}}
    lanes |= {lane for record in _records(view, definition) for lane in record.merged}
    count = view.partitions.get(Topic(definition.current.stream.topic), 0)
    return lanes | {live_lane(number) for number in range(count)}


def _positions(
    record: Progress | None, version: TaskVersion, lanes: set[Lane]
) -> tuple[dict[Lane, int], dict[Lane, int]]:
    starts = {lane: (version.starts or {}).get(lane, 0) for lane in lanes}
    if record is None:
        return starts, starts
    needed = {lane: record.needed.get(lane, starts[lane]) for lane in lanes}
    merged = {lane: record.merged.get(lane, starts[lane]) for lane in lanes}
    return needed, merged
