"""What is wrong with the rows of a task, in words: those not counted, and times that look wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mars.core.plan import FieldType, LatePolicy, RecordTime, Stream, WatermarkScope
from mars.core.types import Reason, lane_partition
from mars.core.windows import moment, span
from mars.engine.decode.usable import OLD_RECORD_TIME, OUTSIDE_CALENDAR, YEAR_2001_MS
from mars.inspect.evidence import Evidence
from mars.protocol.ports import DeadLetter

AHEAD_MS = 5_000
"""So much may a row's time be ahead of the store's clock before it is worth a word."""

AHEAD_HINTS: Mapping[FieldType, str] = {
    FieldType.TIMESTAMP_S: "if {name} counts milliseconds, declare it timestamp_ms in the stream",
    FieldType.TIMESTAMP_MS: "if {name} counts microseconds, declare it timestamp_us in the stream",
    FieldType.TIMESTAMP_US: (
        "if {name} counts nanoseconds, have the producer divide it by 1,000: no type counts those"
    ),
}
"""What to do about times that lie too far ahead, by how the event time is declared."""

OLD_HINTS: Mapping[FieldType, str] = {
    FieldType.TIMESTAMP_MS: "if {name} counts seconds, declare it timestamp_s in the stream",
    FieldType.TIMESTAMP_US: "if {name} counts milliseconds, declare it timestamp_ms in the stream",
}
"""The same for times that lie in 1970."""

OLD_RECORD_HINT = (
    "have the producer write Kafka's record time in milliseconds, or declare the stream with "
    "record_time: ignore"
)
"""What to do about records whose own times lie in 1970."""

UNGUARDED = "nothing leaves out rows that are far ahead"
"""Said where one such row has closed windows, or may."""

Fate = tuple[str, int, Callable[[DeadLetter], bool]]
"""What became of rows, how many they are, and which references are of them."""


def unit_hint(stream: Stream, hints: Mapping[FieldType, str]) -> str:
    """What to do if the event time has another unit; empty where no other one comes to mind."""
    field = stream.field(stream.event_time)
    if field is None:
        return ""
    if field.origin is not None:
        return "have the producer write Kafka's record time in milliseconds"
    return hints.get(field.type, "").format(name=field.name)


def not_counted(evidence: Evidence) -> str:
    """How many rows were not counted, each time with a reason; empty if none were left out."""
    ledger, pending = evidence.ledger, evidence.pending
    apart = {Reason.FUTURE, Reason.LATE, Reason.GONE}
    fates: tuple[Fate, ...] = (
        (
            "bad",
            ledger.bad + pending.bad,
            lambda letter: letter.rows > 0 and letter.reason not in apart,
        ),
        (
            "too far in the future",
            ledger.future + pending.future,
            lambda letter: letter.reason == Reason.FUTURE,
        ),
    )
    said = [_with_example(evidence, fate) for fate in fates if fate[1]]
    if ledger.late:
        said.append(f"{ledger.late} late ({_why_late(evidence)})")
    return ", ".join(said) + _about_unit(evidence)


def _with_example(evidence: Evidence, fate: Fate) -> str:
    name, rows, fits = fate
    letters = [letter for letter in evidence.dead if fits(letter)]
    # Somebody may mean harm by these; the others are of a program that is to be mended.
    letters.sort(key=lambda letter: letter.reason != Reason.UNDECODABLE)
    letter = letters[0] if letters else None
    if letter is None:
        return f"{rows} {name}"
    place = f"offset {letter.first}"
    if letter.partition is not None:
        place = f"partition {letter.partition}, {place}"
    return f"{rows} {name} (for example {letter.detail or letter.reason}: {place})"


def _why_late(evidence: Evidence) -> str:
    """A row that is far ahead closes windows for all others, and is itself none of the late."""
    newest = _newest(evidence)
    if newest is not None and newest[1] > evidence.now_ms + AHEAD_MS:
        partition, time_ms = newest
        return (
            f"windows had closed before them, because a row of partition {partition} is of "
            f"{moment(time_ms)}, {span(time_ms - evidence.now_ms)} ahead of now: "
            f"{_guard(evidence.definition.current.stream)}"
        )
    plan = evidence.plans.get(evidence.definition.current.version)
    if plan is not None and plan.options.late is LatePolicy.REVISE:
        return (
            "their windows had closed too long before to be revised: a longer lateness than "
            f"{span(plan.options.lateness_ms)} takes such rows"
        )
    delay = "" if plan is None else f" than {span(plan.options.delay_ms)}"
    if plan is not None and plan.options.watermark is not WatermarkScope.PARTITION:
        lag = span(plan.options.key_lag_ms)
        return (
            f"their windows had closed: a longer delay{delay} keeps windows open for rows that are "
            f"behind others of their {plan.options.watermark.value}, and a longer key_lag than "
            f"{lag} for those that are far behind their partition"
        )
    return f"their windows had closed: a longer delay{delay} keeps windows open for such rows"


def _guard(stream: Stream) -> str:
    """What keeps such rows out."""
    field = stream.field(stream.event_time)
    if stream.record_time is RecordTime.IGNORE:
        why = "the stream says record_time: ignore"
    elif field is not None and field.origin is not None:
        why = "the event time is that of the record"
    else:
        return "a smaller future_limit leaves such rows out"
    return f"{why}, so {UNGUARDED}; mend the producer, then register the task again"


def _newest(evidence: Evidence) -> tuple[int, int] | None:
    """The partition with the newest row and its event time."""
    marks = {} if evidence.head is None else evidence.head.marks_ms
    found = [
        (mark, partition)
        for lane, mark in marks.items()
        if (partition := lane_partition(lane)) is not None
    ]
    return max(found)[::-1] if found else None


def _about_unit(evidence: Evidence) -> str:
    if any(OLD_RECORD_TIME in letter.detail for letter in evidence.dead):
        return f"; {OLD_RECORD_HINT}"
    if not any(OUTSIDE_CALENDAR in letter.detail for letter in evidence.dead):
        return ""
    hint = unit_hint(evidence.definition.current.stream, AHEAD_HINTS)
    return f"; {hint}" if hint else ""


def all_in_1970(evidence: Evidence) -> str:
    """A sentence if all times are so old that their unit must be another one; else empty."""
    newest = _newest(evidence)
    hint = unit_hint(evidence.definition.current.stream, OLD_HINTS)
    if newest is None or newest[1] >= YEAR_2001_MS or evidence.now_ms < YEAR_2001_MS or not hint:
        return ""
    return f"All event times lie before 2001, the newest at {moment(newest[1])}: {hint}."
