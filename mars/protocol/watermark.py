"""How far event time has come in one look at a task."""

from __future__ import annotations

from mars.core.plan import Plan
from mars.core.types import Mark
from mars.core.windows import find_watermark, highest_mark
from mars.protocol.ports import Head


def level_of(head: Head, plan: Plan) -> int | None:
    """The watermark of a task version, in epoch milliseconds; None: some lane, or all, have none.

    Where it is of buckets or keys, this is what closes the windows of those that say nothing.
    """
    options = plan.options
    level_ms = find_watermark(
        lanes=head.offsets.keys(),
        marks_ms=head.marks_ms,
        taken_ms=head.taken_ms,
        idle=head.idle,
        delay_ms=options.delay_ms,
        idle_after_ms=options.idle_after_ms,
        now_ms=head.now_ms,
        finished=head.finished,
        restored=head.restored,
    ).time_ms
    return None if level_ms is None else level_ms - options.key_lag_ms


def highest_of(head: Head) -> Mark | None:
    """The mark from which event time goes on where all lanes are idle; None: no row has come."""
    return highest_mark(head.offsets.keys(), head.marks_ms, head.taken_ms, head.restored)
