"""What people are told of windows and panes, whatever they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from mars.core.windows.counting import Counting, CountingByKey, partition_of
from mars.core.windows.moments import moment
from mars.core.windows.sessions import Session
from mars.core.windows.shapes import Shape, Window


def called(shape: Shape, window: Window) -> str:
    """Which window it is: "the window ..."."""
    if isinstance(shape, CountingByKey):
        return f"of a key of partition {partition_of(window.start_ms)}"
    if isinstance(shape, Counting):
        return f"number {shape.number(window)} of partition {partition_of(window.start_ms)}"
    if isinstance(shape, Session):
        return f"of a session that ended by {moment(window.end_ms)}"
    return f"that begins at {moment(window.start_ms)}"


def too_many_open(shape: Shape, panes: Sequence[int], most: int) -> str:
    """Why a task fails that has these panes open, the earliest first, and may have so many."""
    if isinstance(shape, Counting):
        partitions = {partition_of(pane) for pane in panes}
        return (
            f"its rows lie in {len(panes)} slices of {shape.pane_ms} rows of {len(partitions)} "
            f"partitions whose windows are not full yet, and {most} may be open at a "
            "time: delete the task and register it again with a longer slide, or shorter windows"
        )
    return (
        f"its rows lie in {len(panes)} slices of {shape.pane_ms} ms that are not "
        f"closed yet, from {moment(panes[0])} to {moment(panes[-1])}, and "
        f"{most} may be open at a time: see whether the event times are right; if "
        "so, delete the task and register it again with longer windows, a longer slide, a "
        "shorter delay or lateness"
    )
