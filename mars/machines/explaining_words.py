"""An explanation in one sentence for a person."""

from __future__ import annotations

from datetime import UTC, datetime

from mars.definitions import TaskState
from mars.machines.evidence import Evidence, HoldReason
from mars.machines.explaining import (
    Explanation,
    Holder,
    OpenWindow,
    closed_through,
    waiting_rows,
    whole_task_reason,
)
from mars.types import MemberId

YEAR_2001_MS = 978_307_200_000
"""Rows of today are later: an event time before it is seconds that were taken for milliseconds."""


def summarise(evidence: Evidence, explanation: Explanation) -> str:
    """Say in one sentence why the next result is not there yet, and what can be done."""
    stopped = _whole_task(evidence)
    if stopped is not None:
        return stopped
    if explanation.windows:
        return _first_window(explanation.windows[0], evidence.now_ms)
    return _nothing_open(evidence)


def _whole_task(evidence: Evidence) -> str | None:
    if evidence.missing:
        return "Nothing can be said for certain: " + "; ".join(evidence.missing) + "."
    definition = evidence.definition
    if definition.state is TaskState.FAILED:
        return f"The task has failed ({definition.detail}): mend the cause, then resume it."
    if definition.state is TaskState.PAUSED:
        return "The task is paused: resume it to go on where it stopped."
    reason = whole_task_reason(evidence)
    if reason is None:
        return None
    if evidence.reducers == 0:
        return "No reducer runs, so nobody can start the task or emit its windows: start one."
    if reason is HoldReason.RECOVERING:
        return "The store was lost and is being rebuilt from Kafka; it goes on by itself."
    return "The leader has not started the task in the store yet; it goes on by itself."


def _first_window(window: OpenWindow, now_ms: int) -> str:
    name = f"The window {moment(window.start_ms)} to {moment(window.end_ms)}"
    close_ms = window.expected_close_ms
    if window.held_by.reason is HoldReason.SILENT and now_ms < window.end_ms and close_ms:
        return f"{name} has not ended yet; it should close at about {moment(close_ms)}."
    held_by = window.held_by
    if _only_reads_on(held_by) and now_ms < window.end_ms:
        return f"{name} has not ended yet; {_holder(held_by)}."
    if held_by.percent is not None:
        return f"{name} waits for {_history(held_by, held_by.percent)}."
    return f"{name} waits: {_holder(held_by)}."


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


def _holder(holder: Holder) -> str:
    if holder.partition is not None:
        return _lane(holder)
    if holder.reason is HoldReason.NO_OWNER:
        return f"no reducer owns bucket {holder.bucket}; start one"
    if holder.reason is HoldReason.RECOVERING:
        return f"{holder.member} is taking over bucket {holder.bucket}"
    return f"the watermark has passed it, and {holder.member} is about to commit it"


def _lane(holder: Holder) -> str:
    name = f"partition {holder.partition}"
    if holder.to_catch_up:
        rest = f"{holder.to_catch_up} messages to go ({_worker(holder.member)})"
        return f"{name} is far behind and is caught up by Spark, {rest}"
    match holder.reason:
        case HoldReason.NO_OWNER:
            return f"no mapper reads {name}; start one"
        case HoldReason.BEHIND:
            return f"{holder.member} has {holder.lag} rows of {name} still to read"
        case HoldReason.BACKPRESSURE:
            return f"{holder.member} holds {name} back until the reducers have caught up"
        case HoldReason.PAUSED:
            return f"{holder.member} has paused {name}"
        case HoldReason.IDLE:
            return "all partitions are idle, so it closes by the clock"
        case HoldReason.SILENT:
            return f"{name} is read to its end and has no row past the window's end yet"
        case _:
            return f"{name} is being started"


# ------------------------------------------------------------------------------ nothing open


def _nothing_open(evidence: Evidence) -> str:
    history = evidence.history
    if history is not None and not history.finished:
        worker = _worker(evidence.bulk)
        return f"No window is open yet: the backfill is at {history.percent:g} % ({worker})."
    ledger, pending = evidence.ledger, evidence.pending
    read = ledger.read + pending.read
    waiting = waiting_rows(evidence)
    if read == 0 or (waiting and ledger.counted + pending.counted == 0):
        return _nothing_read(evidence, waiting)
    if ledger.counted + pending.counted == 0:
        return _nothing_counted(evidence, read)
    closed = closed_through(evidence)
    until = f" up to {moment(closed)}" if closed is not None else ""
    tail = f"; {waiting} rows wait to be read" if waiting else "; no newer row has come"
    left_out = _not_counted(evidence)
    tail += f" (not counted: {left_out})" if left_out else ""
    text = f"No window is open: all windows with rows are closed{until}{tail}."
    return text + _doubtful_unit(evidence)


def _nothing_read(evidence: Evidence, waiting: int) -> str:
    topic = evidence.definition.current.stream.topic
    if evidence.mappers == 0:
        return f"No mapper runs, and {waiting} rows of topic {topic} wait: start one."
    if waiting:
        return f"No window is open yet: {waiting} rows of topic {topic} wait to be read."
    return f"No row has come to topic {topic} since the task's start offsets."


def _nothing_counted(evidence: Evidence, read: int) -> str:
    filtered = evidence.ledger.filtered + evidence.pending.filtered
    some = [f"{filtered} filtered out by WHERE"] if filtered else []
    some += [left_out] if (left_out := _not_counted(evidence)) else []
    text = f"No window is open: of {read} rows read, " + ", ".join(some)
    samples = evidence.dead[:1]
    for letter in samples:
        because = f", {letter.detail}" if letter.detail else ""
        text += f" (for example {letter.reason}{because}: partition {letter.partition}, offset "
        text += f"{letter.first})"
    return text + "."


def _not_counted(evidence: Evidence) -> str:
    """Rows that a task should have counted but could not, by their fates; empty if none."""
    ledger, pending = evidence.ledger, evidence.pending
    fates = {
        "bad": ledger.bad + pending.bad,
        "too far in the future": ledger.future + pending.future,
        "late": ledger.late,
    }
    return ", ".join(f"{rows} {fate}" for fate, rows in fates.items() if rows)


def _doubtful_unit(evidence: Evidence) -> str:
    """A further sentence where all event times are so long ago that their unit must be wrong."""
    marks = evidence.head.marks_ms.values() if evidence.head is not None else ()
    newest_ms = max(marks, default=evidence.now_ms)
    if not newest_ms < YEAR_2001_MS < evidence.now_ms:
        return ""
    stream = evidence.definition.current.stream
    declared = stream.field(stream.event_time)
    unit = declared.type.value if declared is not None else ""
    return (
        f" The newest {stream.event_time} of all rows is {moment(newest_ms)}: does it really count "
        f"what the stream declares ({unit})?"
    )


def moment(time_ms: int) -> str:
    """A time for people, in UTC; milliseconds since the epoch where no calendar has it."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{time_ms} ms"
