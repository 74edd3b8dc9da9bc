"""An explanation in one sentence for a person, and one more where rows were not counted."""

from __future__ import annotations

from mars.core.definitions import TaskState, resume_helps
from mars.core.plan import Plan, WatermarkScope
from mars.core.types import MemberId
from mars.core.windows import CountingByKey, moment, span
from mars.core.words import counted
from mars.inspect.evidence import Evidence, HoldReason
from mars.inspect.explaining import (
    Explanation,
    Holder,
    LaneView,
    OpenWindow,
    closed_through,
    holder_of,
    lane_views,
    waiting_rows,
    whole_task_reason,
)
from mars.inspect.explaining_counts import CountedWindow
from mars.inspect.explaining_rows import all_in_1970, not_counted
from mars.protocol.watermark import highest_of

UNHEARD_MS = 4_000
"""A mapper reports every second: one that has said nothing for so long does nothing, either."""

KEEPS_WAITING = frozenset({HoldReason.NO_OWNER, HoldReason.BACKPRESSURE, HoldReason.PAUSED})
"""Reasons for which rows wait longer than until their turn comes."""


def summarise(evidence: Evidence, explanation: Explanation) -> str:
    """Say in one sentence why the next result is not there yet, and what can be done."""
    stopped = _whole_task(evidence)
    if stopped is not None:
        return stopped
    if explanation.windows:
        said = _first_window(explanation.windows[0], evidence)
    else:
        said = _keys_wait(evidence) or _nothing_open(evidence)
    scope = _scope(explanation, evidence)
    return " ".join(filter(None, (said, scope, _left_out(evidence), all_in_1970(evidence))))


def _scope(explanation: Explanation, evidence: Evidence) -> str:
    """What the sentence before means where windows do not close for all groups at once."""
    versions = {window.version for window in explanation.windows}
    scopes = {evidence.plans[version].options.watermark for version in versions}
    if WatermarkScope.KEY in scopes:
        return (
            "That is for the last of its groups. Each group comes once rows of its own key have "
            "passed the window (watermark: key), and rows shown as open here may be of groups "
            "that have come already."
        )
    if WatermarkScope.BUCKET in scopes:
        return (
            "That is for the last of its buckets. Each closes the window once its own rows have "
            "passed it (watermark: bucket)."
        )
    return ""


def _left_out(evidence: Evidence) -> str:
    """Of the rows that some were counted of, those that were not."""
    rows, read = not_counted(evidence), evidence.ledger.read + evidence.pending.read
    if not rows or evidence.ledger.counted + evidence.pending.counted == 0:
        return ""
    return f"Of {counted(read, 'row')} read, some were not counted: {rows}."


def _whole_task(evidence: Evidence) -> str | None:
    if evidence.missing:
        return "Nothing can be said for certain: " + "; ".join(evidence.missing) + "."
    definition = evidence.definition
    if definition.state is TaskState.FAILED:
        why = definition.detail.removesuffix(".")
        until = " until it is resumed" if resume_helps(why) else " any more"
        return f"The task has failed, and takes no rows{until}: {why}."
    if definition.state is TaskState.PAUSED:
        return "The task is paused: resume it to go on where it stopped."
    if not evidence.ends:
        topic = definition.current.stream.topic
        return (
            f"Kafka has no topic {topic}, so no rows come: create it again, then delete the task "
            "and register it again."
        )
    reason = whole_task_reason(evidence)
    if reason is None:
        return None
    if evidence.reducers == 0:
        return "No reducer runs, so nobody can start the task or emit its windows: start one."
    if reason is HoldReason.RECOVERING:
        return "The store was lost and is being rebuilt from Kafka; it goes on by itself."
    return "The leader has not started the task in the store yet; it goes on by itself."


def _first_counted(window: OpenWindow, counted: CountedWindow, evidence: Evidence) -> str:
    name = f"Window {counted.number} of partition {counted.partition}"
    if counted.is_full:
        return f"{name} is full and waits: {_holder(window.held_by, evidence.mappers)}."
    there = f"{name} has {counted.rows} of its {counted.size} rows"
    if window.held_by.reason in {HoldReason.IDLE, HoldReason.SILENT}:
        return f"{there}; it comes once the others are there, whenever that is."
    return f"{there}; {_holder(window.held_by, evidence.mappers)}."


def _keys_wait(evidence: Evidence) -> str:
    """Where the rows of each key are counted: what waits; empty where nothing does."""
    plan = evidence.plans.get(evidence.definition.current.version)
    waiting = evidence.ledger.open + evidence.pending.counted
    if plan is None or not isinstance(plan.window, CountingByKey) or not waiting:
        return ""
    shape, wait = plan.window, "waits" if waiting == 1 else "wait"
    return (
        f"No window is full: {counted(waiting, 'row')} {wait} until the key has {shape.size}. What "
        f"a key has comes as it is, once the event time of its partition has gone on by more than "
        f"{span(shape.expire_ms)} since its last row."
    )


def _first_window(window: OpenWindow, evidence: Evidence) -> str:
    if window.counted is not None:
        return _first_counted(window, window.counted, evidence)
    name = f"The window {moment(window.start_ms)} to {moment(window.end_ms)}"
    close_ms = window.expected_close_ms
    held_by, well = window.held_by, not _is_ill(window.held_by)
    silent = held_by.reason is HoldReason.SILENT and well
    if silent and evidence.now_ms < window.end_ms and close_ms:
        return f"{name} has not ended yet; it should close at about {moment(close_ms)}."
    if silent:
        return f"{name} waits: {_silent(window, evidence)}."
    if held_by.reason is HoldReason.IDLE and well:
        return f"{name} waits: {_idle(window, evidence)}."
    if well and _only_reads_on(held_by) and evidence.now_ms < window.end_ms:
        return f"{name} has not ended yet; {_holder(held_by, evidence.mappers)}."
    if held_by.percent is not None:
        return f"{name} waits for {_history(held_by, held_by.percent)}."
    return f"{name} waits: {_holder(held_by, evidence.mappers)}."


def _is_ill(holder: Holder | LaneView) -> bool:
    """Whether its process cannot do its work."""
    return holder.unheard_ms >= UNHEARD_MS or bool(holder.lacks)


def _lacks(holder: Holder) -> str:
    servers = " and ".join(holder.lacks)
    other = "reducer" if holder.partition is None else "mapper"
    return f"gets no answer from {servers}; another {other} that does takes over within a minute"


def _silent(window: OpenWindow, evidence: Evidence) -> str:
    """A partition that is read to its end, and whose mapper lives."""
    holder, plan = window.held_by, evidence.plans[window.version]
    close_ms, idle_after_ms = window.expected_close_ms, plan.options.idle_after_ms
    said = _waited_for(holder, plan, evidence)
    if close_ms is None or close_ms <= evidence.now_ms + idle_after_ms:
        return said
    return f"{said}; if no row comes, it should close at about {moment(close_ms)}"


def _idle(window: OpenWindow, evidence: Evidence) -> str:
    """All partitions are read to their ends, and no row has come for a while."""
    highest = None if evidence.head is None else highest_of(evidence.head)
    if highest is None or window.expected_close_ms is None:
        return "all partitions are idle, and event time goes on when the next row comes"
    return (
        "all partitions are idle, so event time goes on at the pace of the clock from "
        f"{moment(highest.time_ms)}, the newest that was seen; it should close at about "
        f"{moment(window.expected_close_ms)}"
    )


def _waited_for(holder: Holder, plan: Plan, evidence: Evidence) -> str:
    name = f"partition {holder.partition}"
    if holder.watermark_ms is None:
        lost = evidence.head is not None and evidence.head.restored is not None
        newest = f"{name} has had no row " + ("since Redis lost what it held" if lost else "yet")
    else:
        newest = f"the newest row of {name} is of "
        newest += moment(holder.watermark_ms + plan.options.delay_ms)
    after = span(plan.options.idle_after_ms)
    return (
        f"{newest}; it no longer holds windows back once it has been idle for {after} (idle_after)"
    )


def _only_reads_on(holder: Holder) -> bool:
    """Whether a partition is read, and there are rows to read: so it is with any live stream."""
    waits_for_others = holder.percent is not None or holder.to_catch_up
    is_behind = holder.reason is HoldReason.BEHIND and holder.partition is not None
    return is_behind and not waits_for_others


def _history(holder: Holder, percent: float) -> str:
    what = "files" if holder.partition is None else f"partition {holder.partition}"
    return f"the backfill of {what}, which is at {percent:g} % ({_worker(holder.member)})"


def _worker(bulk: MemberId | None) -> str:
    return "no bulk process runs; start one" if bulk is None else f"{bulk} works on it"


def _holder(holder: Holder, mappers: int) -> str:
    if holder.partition is not None:
        return _lane(holder, mappers)
    if holder.reason is HoldReason.NO_OWNER:
        return f"no reducer owns bucket {holder.bucket}; start one"
    if holder.lacks:
        return f"{holder.member}, which owns bucket {holder.bucket}, {_lacks(holder)}"
    if holder.reason is HoldReason.RECOVERING:
        return f"{holder.member} is taking over bucket {holder.bucket}"
    return f"the watermark has passed it, and {holder.member} is about to commit it"


def _lane(holder: Holder, mappers: int) -> str:
    name = f"partition {holder.partition}"
    if holder.to_catch_up:
        rest = f"{holder.to_catch_up} messages to go ({_worker(holder.member)})"
        return f"{name} is far behind and is caught up by Spark, {rest}"
    if holder.unheard_ms >= UNHEARD_MS:
        return (
            f"{holder.member}, which reads {name}, has said nothing for "
            f"{span(holder.unheard_ms)}; it is stopped, cut off or overloaded"
        )
    if holder.lacks:
        return f"{holder.member}, which reads {name}, {_lacks(holder)}"
    if holder.reason is HoldReason.NO_OWNER:
        soon = "yet; one of those that run takes it within seconds"
        return f"no mapper reads {name} {soon}" if mappers else f"no mapper reads {name}; start one"
    return _mapper(holder, name)


def _mapper(holder: Holder, name: str) -> str:
    """What its mapper does with a partition."""
    match holder.reason:
        case HoldReason.BEHIND:
            return f"{holder.member} has {counted(holder.lag or 0, 'row')} of {name} still to read"
        case HoldReason.BACKPRESSURE:
            return f"{holder.member} holds {name} back until the reducers have caught up"
        case HoldReason.PAUSED:
            return f"{holder.member} has paused {name}"
        case _:
            return f"{name} is being started"


# ------------------------------------------------------------------------------ nothing open


def _nothing_open(evidence: Evidence) -> str:
    history = evidence.history
    if history is not None and not history.finished:
        worker = _worker(evidence.bulk)
        return f"No window is open yet: the backfill is at {history.percent:g} % ({worker})."
    if not evidence.settled:
        return _SETTLING
    ledger, pending = evidence.ledger, evidence.pending
    read = ledger.read + pending.read
    waiting = waiting_rows(evidence)
    if read == 0 or (waiting and ledger.counted + pending.counted == 0):
        return _nothing_read(evidence, waiting)
    if ledger.counted + pending.counted == 0:
        return _nothing_counted(evidence, read)
    closed = closed_through(evidence)
    until = f" up to {moment(closed)}" if closed is not None else ""
    tail = _waiting(evidence, waiting) if waiting else "no newer row has come"
    return f"No window is open: all windows with rows are closed{until}; {tail}."


_SETTLING = (
    "What was read last is not known yet: a reducer has committed something that Kafka does not "
    "show yet. Ask again in a moment."
)


def _nothing_read(evidence: Evidence, waiting: int) -> str:
    topic = evidence.definition.current.stream.topic
    if evidence.mappers == 0:
        rows = counted(waiting, "row")
        return f"No mapper runs, so nobody reads topic {topic} ({rows} wait): start one."
    if waiting:
        return f"No window is open yet: {_waiting(evidence, waiting)}."
    return f"No row has come to topic {topic} since the task's start offsets."


def _waiting(evidence: Evidence, rows: int) -> str:
    """That rows wait to be read, and who keeps them waiting, if it is not just their turn."""
    topic = evidence.definition.current.stream.topic
    said = f"{counted(rows, 'row')} of topic {topic} {'waits' if rows == 1 else 'wait'} to be read"
    plan = evidence.plans.get(evidence.definition.current.version)
    for lane in () if plan is None else lane_views(evidence, plan):
        stuck = _is_ill(lane) or lane.reason in KEEPS_WAITING
        if lane.lag and stuck:
            return f"{said}, but {_lane(holder_of(lane), evidence.mappers)}"
    return said


def _nothing_counted(evidence: Evidence, read: int) -> str:
    filtered = evidence.ledger.filtered + evidence.pending.filtered
    some = [f"{filtered} filtered out by WHERE"] if filtered else []
    fates = ", ".join(filter(None, (*some, not_counted(evidence))))
    return f"No window is open: of {counted(read, 'row')} read, {fates}."
