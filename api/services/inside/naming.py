"""Which window a request means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypedDict

from mars.core.errors import Rejected
from mars.core.plan import Plan
from mars.core.windows import Counting, CountingByKey, Session, Shape, Window
from mars.core.windows.counting import WindowNumber, number_of_window, partition_of
from mars.protocol.ports import (
    CommittedRow,
    WantedKeyNumber,
    WantedNumber,
    WantedSessions,
    WantedWindow,
)


class AskedWindow(NamedTuple):
    """How a request names a window: by its times or, where it counts rows, by its number."""

    start_ms: int | None = None
    end_ms: int | None = None
    partition: int | None = None
    number: int | None = None

    @property
    def names_one(self) -> bool:
        """False where nothing is given."""
        return any(value is not None for value in self)


class SaidName(TypedDict):
    """How an answer names a window: the members of all that are of one."""

    window_start: int | None
    window_end: int | None
    partition: int | None
    window_number: int | None


def said_name(start_ms: int, end_ms: int, counted: WindowNumber | None) -> SaidName:
    """The name of a window: its number where it counts rows, else its times."""
    if counted is None:
        return SaidName(
            window_start=start_ms, window_end=end_ms, partition=None, window_number=None
        )
    return SaidName(
        window_start=None,
        window_end=None,
        partition=counted.partition,
        window_number=counted.number,
    )


def said_of(shape: Shape, window: Window) -> SaidName:
    """The name of a window of a shape; of the rows of each key all of a partition are one."""
    if isinstance(shape, CountingByKey):
        partition = partition_of(window.start_ms)
        return SaidName(window_start=None, window_end=None, partition=partition, window_number=None)
    counted = number_of_window(shape, window) if isinstance(shape, Counting) else None
    return said_name(window.start_ms, window.end_ms, counted)


def wanted_of(
    plans: Mapping[int, Plan], version: int, asked: AskedWindow, *, anywhere: bool = False
) -> WantedWindow | WantedNumber | None:
    """The window that is meant, of a task with these plans whose current version is that one; where
    windows are sessions, all that begin then.

    None where none is named. Raises Rejected for a name that is none of its windows', and where
    they come in no order, unless it is looked for `anywhere` among the newest messages.
    """
    plan = plans.get(version)
    shape = None if plan is None else plan.window
    if isinstance(shape, CountingByKey) and asked.names_one and not anywhere:
        raise Rejected(
            "windows that count the rows of each key come in no order by which one of them could "
            "be found: name none, and look among the newest results, each of which is a whole one"
        )
    by_time = AskedWindow(asked.start_ms, asked.end_ms)
    if asked.partition is None and asked.number is None:
        if isinstance(shape, Counting) and by_time.names_one:
            raise Rejected(
                "the windows of this task count rows, and no time tells one from another: give "
                "partition and window_number"
            )
        if isinstance(shape, Session) and asked.start_ms is not None:
            soonest_ms = shape.shortest_end(asked.start_ms)
            return WantedSessions(asked.start_ms, asked.end_ms, soonest_ms)
        return wanted_window(plans.values(), asked.start_ms, asked.end_ms)
    if asked.partition is None or asked.number is None:
        raise Rejected("partition and window_number name a window together: give both")
    if by_time.names_one:
        raise Rejected(
            "a window is named by its times or by its number: give window_start, or partition and "
            "window_number"
        )
    if not isinstance(shape, Counting):
        raise Rejected(
            "partition and window_number name windows that count rows, and those of this task go "
            "by time: give window_start"
        )
    name = WindowNumber(asked.number, asked.partition)
    of_key = isinstance(shape, CountingByKey)
    return (WantedKeyNumber if of_key else WantedNumber)(version, name, shape.window_numbered(name))


def number_of_row(plans: Mapping[int, Plan], row: CommittedRow) -> WantedNumber | None:
    """What names the window of a row; None where it is of no plan here that counts rows."""
    plan, name = plans.get(row.version), row.numbered
    if plan is None or name is None or not isinstance(plan.window, Counting):
        return None
    return WantedNumber(row.version, name, plan.window.window_numbered(name))


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
