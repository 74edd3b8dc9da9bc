"""Why a window has not come: what the whole service looks like, turned into one reason per window.

    definition, head, ends, members, owners, progress, panes in the log
        │ explain
        ▼
    per open window: who holds it, since which level, when it should close
    nothing open:    why not (`mars.inspect.explaining_words`)

A window waits for the first of: the task to run, the store to be of the current epoch, each of its
buckets to have a reducer, the watermark (that is, one lane), the bucket's reducer to commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mars.core.definitions import TaskState
from mars.core.plan import Plan
from mars.core.types import Bucket, Lane, MemberId, lane_partition, live_lane
from mars.core.windows import Window
from mars.inspect.evidence import Evidence, HoldReason, LoggedRows, Reading
from mars.inspect.explaining_counts import CountedWindow, counted_window, open_counted
from mars.inspect.history import HistoryLane
from mars.protocol.watermark import highest_of, level_of

OPEN_WINDOWS_MAX = 100
"""Open windows explained in one answer, those that close first: more help nobody."""

SETTLED_BUCKET_STATES = frozenset({"owning", "committing"})
"""What a reducer says of a bucket in which it emits; in all other states it takes the bucket over.
"""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One partition, or the unfinished history of one, as a window sees it.

    `watermark_ms` is its mark less the task's delay. `lag`: rows between the task's next offset and
    the lane's end (None: not known). `reason` is why it does not go forward faster. `percent`: how
    much of a history is mapped, None for what comes live. History in files has no partition.
    `to_catch_up`: messages of a lane far behind that a bulk process still has to map.
    `unheard_ms`: how long its mapper has said nothing. `lacks`: the servers that do not answer it.
    """

    lane: Lane
    partition: int | None
    watermark_ms: int | None
    lag: int | None
    idle: bool
    reason: HoldReason
    member: MemberId | None
    percent: float | None = None
    to_catch_up: int = 0
    unheard_ms: int = 0
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps a window open: a lane, or a bucket, or (neither named) the whole task."""

    reason: HoldReason
    lane: Lane | None = None
    partition: int | None = None
    bucket: Bucket | None = None
    member: MemberId | None = None
    watermark_ms: int | None = None
    lag: int | None = None
    percent: float | None = None
    to_catch_up: int = 0
    unheard_ms: int = 0
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """One window with rows that is not closed; `expected_close_ms` None: nobody can say.

    Of one that counts rows `counted` says which it is, and its times are none.
    """

    version: int
    start_ms: int
    end_ms: int
    rows: int
    watermark_ms: int | None
    expected_close_ms: int | None
    held_by: Holder
    partitions: tuple[LaneView, ...]
    counted: CountedWindow | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """All open windows (at most `OPEN_WINDOWS_MAX`, `more` were left out), soonest end first."""

    windows: tuple[OpenWindow, ...]
    more: int


def explain(evidence: Evidence) -> Explanation:
    """Say of every open window who holds it and when it should close."""
    found = sorted(
        (window.end_ms, version, window)
        for version, plan in evidence.plans.items()
        for window in {one for opened in _opened(evidence, version, plan) for one in opened}
    )
    windows = tuple(
        _explain_window(evidence, version, window)
        for _end, version, window in found[:OPEN_WINDOWS_MAX]
    )
    return Explanation(windows, max(0, len(found) - OPEN_WINDOWS_MAX))


def anything_open(evidence: Evidence) -> bool:
    """Whether there is any window with rows that is not closed."""
    return any(
        True
        for version, plan in evidence.plans.items()
        for opened in _opened(evidence, version, plan)
        for _window in opened
    )


def _opened(evidence: Evidence, version: int, plan: Plan) -> Iterator[Iterator[Window]]:
    """The open windows of each bucket."""
    if plan.counts_by_key:
        return  # what is open its keys know
    if plan.counts_rows:
        yield (window for window, _bucket, _rows in open_counted(evidence, version, plan))
        return
    for logged, closed_ms in _logged(evidence, version):
        yield plan.window.windows_of(logged.panes, after_ms=closed_ms)


def _logged(evidence: Evidence, version: int) -> Iterator[tuple[LoggedRows, int | None]]:
    """What each bucket's log holds of a version, and up to where the bucket has closed windows."""
    closed = {
        record.bucket: record.closed_ms for record in evidence.progress if record.version == version
    }
    for logged in evidence.logged:
        if logged.version == version:
            yield logged, closed.get(logged.bucket)


def _rows_by_bucket(evidence: Evidence, version: int, window: Window) -> dict[Bucket, int]:
    """The rows of a window by bucket; a bucket that has closed it is left out."""
    rows: dict[Bucket, int] = {}
    for logged, closed_ms in _logged(evidence, version):
        own = [pane for pane in logged.panes if window.start_ms <= pane < window.end_ms]
        if own and (closed_ms is None or window.end_ms > closed_ms):
            rows[logged.bucket] = sum(logged.panes[pane] for pane in own)
    return rows


def _explain_window(evidence: Evidence, version: int, window: Window) -> OpenWindow:
    plan, end_ms = evidence.plans[version], window.end_ms
    counted = counted_window(evidence, plan, window)
    if counted is not None:
        return _explain_counted(evidence, version, window, counted)
    buckets = _rows_by_bucket(evidence, version, window)
    lanes = tuple(lane_views(evidence, plan))
    held_by = _holder(evidence, plan, end_ms, lanes, tuple(buckets))
    return OpenWindow(
        version=version,
        start_ms=window.start_ms,
        end_ms=end_ms,
        rows=sum(buckets.values()),
        watermark_ms=level_of(evidence.head, plan) if evidence.head else None,
        expected_close_ms=_expected_close(evidence, plan, end_ms, held_by),
        held_by=held_by,
        partitions=lanes,
    )


def _explain_counted(
    evidence: Evidence, version: int, window: Window, counted: CountedWindow
) -> OpenWindow:
    plan = evidence.plans[version]
    found = open_counted(evidence, version, plan)
    buckets = {bucket: rows for one, bucket, rows in found if one == window}
    lanes = tuple(lane_views(evidence, plan))
    own = next((lane for lane in lanes if lane.lane == counted.lane), None)
    held_by = _stopped(evidence, tuple(buckets))
    if held_by is None:
        waits = own is not None and not counted.is_full
        held_by = holder_of(own) if waits and own else _bucket_holder(evidence, tuple(buckets))
    return OpenWindow(
        version=version,
        start_ms=window.start_ms,
        end_ms=window.end_ms,
        rows=sum(buckets.values()),
        watermark_ms=None,
        expected_close_ms=None,
        held_by=held_by,
        partitions=lanes,
        counted=counted,
    )


# --------------------------------------------------------------------------------- the lanes


def lane_views(evidence: Evidence, plan: Plan) -> Iterator[LaneView]:
    """Every partition that the task or Kafka knows, in order; then the history still to map."""
    head = evidence.head
    known = set(evidence.ends) | {
        partition
        for lane in (head.offsets if head else {})
        if (partition := lane_partition(lane)) is not None
    }
    for partition in sorted(known):
        yield _lane_view(evidence, plan, partition)
    history = evidence.history
    for lane in history.lanes if history is not None else ():
        if not lane.finished:
            yield _history_view(evidence, plan, lane)


def _history_view(evidence: Evidence, plan: Plan, lane: HistoryLane) -> LaneView:
    mark = evidence.head.marks_ms.get(lane.lane) if evidence.head else None
    if evidence.head is None:
        reason = HoldReason.STARTING
    else:
        reason = HoldReason.NO_OWNER if evidence.bulk is None else HoldReason.BEHIND
    return LaneView(
        lane=lane.lane,
        partition=lane_partition(lane.lane),
        watermark_ms=None if mark is None else mark - plan.options.delay_ms,
        lag=lane.end - lane.next,
        idle=False,
        reason=reason,
        member=evidence.bulk,
        percent=lane.percent,
    )


def _lane_view(evidence: Evidence, plan: Plan, partition: int) -> LaneView:
    head, lane = evidence.head, live_lane(partition)
    mark = head.marks_ms.get(lane) if head else None
    offset = head.offsets.get(lane) if head else None
    end = evidence.ends.get(partition)
    lag = max(0, end - offset) if end is not None and offset is not None else None
    idle = head is not None and lane in head.idle and not lag
    reading = evidence.readings.get(partition)
    view = LaneView(
        lane=lane,
        partition=partition,
        watermark_ms=None if mark is None else mark - plan.options.delay_ms,
        lag=lag,
        idle=idle,
        reason=_lane_reason(reading, offset=offset, lag=lag, idle=idle),
        member=reading.member if reading else None,
        unheard_ms=reading.unheard_ms if reading else 0,
        lacks=reading.lacks if reading else (),
    )
    fence = evidence.definition.catch_up.get(lane)
    if fence is None or offset is None or offset >= fence:
        return view
    reason = HoldReason.NO_OWNER if evidence.bulk is None else HoldReason.BEHIND
    rest = fence - offset
    waits = replace(view, reason=reason, member=evidence.bulk, to_catch_up=rest)
    return replace(waits, unheard_ms=0, lacks=())


def _lane_reason(
    reading: Reading | None, *, offset: int | None, lag: int | None, idle: bool
) -> HoldReason:
    if offset is None:
        return HoldReason.STARTING
    if reading is None:
        return HoldReason.NO_OWNER
    match reading.state:
        case "backpressure":
            return HoldReason.BACKPRESSURE
        case "paused":
            return HoldReason.PAUSED
        case "starting" if lag != 0:
            return HoldReason.STARTING
        case _:
            pass
    if lag:
        return HoldReason.BEHIND
    return HoldReason.IDLE if idle else HoldReason.SILENT


# ---------------------------------------------------------------------------------- holders


def _holder(
    evidence: Evidence,
    plan: Plan,
    end_ms: int,
    lanes: tuple[LaneView, ...],
    buckets: tuple[Bucket, ...],
) -> Holder:
    stopped = _stopped(evidence, buckets)
    if stopped is not None:
        return stopped
    level = level_of(evidence.head, plan) if evidence.head else None
    slowest = slowest_lane(lanes)
    if (level is None or level < end_ms) and slowest is not None:
        return holder_of(slowest)
    return _bucket_holder(evidence, buckets)


def _stopped(evidence: Evidence, buckets: tuple[Bucket, ...]) -> Holder | None:
    """What holds a window whatever its partitions do; None: nothing."""
    reason = whole_task_reason(evidence)
    if reason is not None:
        return Holder(reason)
    ownerless = next((bucket for bucket in buckets if bucket not in evidence.owners), None)
    return None if ownerless is None else Holder(HoldReason.NO_OWNER, bucket=ownerless)


def holder_of(lane: LaneView) -> Holder:
    """A lane as what keeps windows open."""
    return Holder(
        lane.reason,
        lane=lane.lane,
        partition=lane.partition,
        member=lane.member,
        watermark_ms=lane.watermark_ms,
        lag=lane.lag,
        percent=lane.percent,
        to_catch_up=lane.to_catch_up,
        unheard_ms=lane.unheard_ms,
        lacks=lane.lacks,
    )


def whole_task_reason(evidence: Evidence) -> HoldReason | None:
    """What stops the task as a whole, whatever its partitions do; None: nothing."""
    if evidence.definition.state is not TaskState.RUNNING:
        return HoldReason.PAUSED
    head = evidence.head
    if head is None:
        lost = evidence.progress or evidence.missing
        return HoldReason.RECOVERING if lost else HoldReason.STARTING
    if evidence.store_epoch is not None and head.epoch != evidence.store_epoch:
        return HoldReason.RECOVERING
    return None if head.active else HoldReason.STARTING


def slowest_lane(lanes: tuple[LaneView, ...]) -> LaneView | None:
    """The lane that holds the watermark: none yet, else the lowest; an idle one if all are."""
    awake = [lane for lane in lanes if not lane.idle] or list(lanes)
    return min(awake, key=_slowness, default=None)


def _slowness(lane: LaneView) -> tuple[bool, int, bool]:
    """Of lanes that are equally slow, history comes first: live rows wait for it anyway."""
    return lane.watermark_ms is not None, lane.watermark_ms or 0, lane.percent is None


def _bucket_holder(evidence: Evidence, buckets: tuple[Bucket, ...]) -> Holder:
    """The watermark has passed: what is left to do is the reducers'."""
    owned = [(bucket, evidence.owners[bucket]) for bucket in sorted(buckets)]
    for bucket, owner in owned:
        if owner.state not in SETTLED_BUCKET_STATES:
            member, lacks = owner.member, owner.lacks
            return Holder(HoldReason.RECOVERING, bucket=bucket, member=member, lacks=lacks)
    bucket, owner = next((each for each in owned if each[1].lacks), owned[0])
    return Holder(HoldReason.BEHIND, bucket=bucket, member=owner.member, lacks=owner.lacks)


def _expected_close(evidence: Evidence, plan: Plan, end_ms: int, held_by: Holder) -> int | None:
    """When the window should close if nothing changes, by the store's clock."""
    now_ms, options = evidence.now_ms, plan.options
    due_ms = end_ms + options.delay_ms + options.key_lag_ms
    match held_by.reason:
        case HoldReason.IDLE:
            paced_ms = _paced(evidence, due_ms + options.idle_after_ms)
            return None if paced_ms is None else max(now_ms, paced_ms)
        case HoldReason.SILENT:
            return _expected_of_silent(evidence, held_by, due_ms, options.idle_after_ms)
        case HoldReason.BEHIND if held_by.bucket is not None:
            return now_ms
        case _:
            return None


def _expected_of_silent(
    evidence: Evidence, held_by: Holder, due_ms: int, idle_after_ms: int
) -> int | None:
    """A lane that is read to its end goes on as it did, or else becomes idle."""
    now_ms = evidence.now_ms
    if held_by.watermark_ms is not None and now_ms - held_by.watermark_ms <= idle_after_ms:
        return max(now_ms, due_ms)
    paced_ms = _paced(evidence, due_ms + idle_after_ms)
    return None if paced_ms is None else max(max(now_ms, due_ms) + idle_after_ms, paced_ms)


def _paced(evidence: Evidence, time_ms: int) -> int | None:
    """When event time comes to a time if no row does: from the highest mark as the clock goes on.

    None where there is no mark: it does not go on at all.
    """
    highest = None if evidence.head is None else highest_of(evidence.head)
    if highest is None:
        return None
    behind_ms = 0 if highest.taken_ms is None else highest.taken_ms - highest.time_ms
    return time_ms + max(0, behind_ms)


def closed_through(evidence: Evidence) -> int | None:
    """The highest end of a window that some bucket has closed, in epoch milliseconds."""
    return max(
        (record.closed_ms for record in evidence.progress if record.closed_ms is not None),
        default=None,
    )


def waiting_rows(evidence: Evidence) -> int:
    """Rows in Kafka that the task has not taken yet, as far as is known."""
    head = evidence.head
    if head is None:
        return 0
    return sum(
        max(0, end - head.offsets.get(live_lane(partition), end))
        for partition, end in evidence.ends.items()
    )
