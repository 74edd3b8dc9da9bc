"""Which window a request means."""

from __future__ import annotations

from collections.abc import Iterable

from mars.core.errors import Rejected
from mars.core.plan import Plan
from mars.core.windows import Window
from mars.protocol.ports import WantedWindow


def name_of(plans: Iterable[Plan], window: Window) -> WantedWindow:
    """What names a window of a task with these plans: its start, unless a version of it has several
    that begin together.
    """
    together = any(plan.window.begin_together for plan in plans)
    return WantedWindow(window.start_ms, window.end_ms if together else None)


def named_window(plans: Iterable[Plan], start_ms: int, end_ms: int | None) -> WantedWindow:
    """The window of a task with these plans that `window_start` and `window_end` name.

    Raises Rejected for a start alone where several windows have it.
    """
    if end_ms is None and any(plan.window.begin_together for plan in plans):
        raise Rejected(
            f"window_start {start_ms} starts several windows of this task, which cumulate: give "
            "window_end, too"
        )
    return WantedWindow(start_ms, end_ms)


def wanted_window(
    plans: Iterable[Plan], start_ms: int | None, end_ms: int | None
) -> WantedWindow | None:
    """The same; None where neither is given. Raises Rejected for an end alone, too."""
    if start_ms is not None:
        return named_window(plans, start_ms, end_ms)
    if end_ms is not None:
        raise Rejected("window_end is given without window_start: give both")
    return None
