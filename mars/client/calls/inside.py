"""What goes on in a task."""

from __future__ import annotations

from mars.client.answers import (
    DeadRows,
    FigureList,
    FigurePoint,
    Ledger,
    OpenWindows,
    Verification,
    Why,
    WindowLedger,
)
from mars.client.calls.base import Calls, task_path, window_query
from mars.core.errors import Rejected

VERIFY_TIMEOUT_S = 300.0
"""For a window that is computed again, whatever the client's own limit: one of 5 million offsets
takes about half a minute, and others may be before it.
"""


class InsideCalls(Calls):
    """Look into a task: its open windows, and what became of its rows."""

    def windows(
        self,
        name: str,
        *,
        key: str | None = None,
        limit: int | None = None,
        order: str | None = None,
        partition: int | None = None,
    ) -> OpenWindows:
        """Open windows with their values as of now; those of a `partition`, where they count its
        rows.
        """
        query = {"key": key, "limit": limit, "order": order, "partition": partition}
        return self._call("GET", f"{task_path(name)}/windows", OpenWindows, query=query)

    def why(self, name: str) -> Why:
        """Why no result is coming."""
        return self._call("GET", f"{task_path(name)}/why", Why)

    def ledger(self, name: str) -> Ledger:
        """Where the task's rows went."""
        return self._call("GET", f"{task_path(name)}/ledger", Ledger)

    def window_ledger(
        self,
        name: str,
        window_start: int | None = None,
        window_end: int | None = None,
        *,
        partition: int | None = None,
        window_number: int | None = None,
    ) -> WindowLedger:
        """What became of the rows of one window; `window_end` is needed where windows cumulate.

        `partition` and `window_number` name one that counts rows, of the task's current version.
        """
        if window_start is None and partition is None and window_number is None:
            raise Rejected("no window is named: give window_start, or partition and window_number")
        query = window_query(window_start, window_end, partition, window_number)
        return self._call("GET", f"{task_path(name)}/ledger", WindowLedger, query=query)

    def verify(
        self,
        name: str,
        window_start: int | None = None,
        window_end: int | None = None,
        *,
        partition: int | None = None,
        window_number: int | None = None,
    ) -> Verification:
        """A finished window (the last one) computed again; takes as long as its rows need.

        `window_end` is needed beside `window_start` where windows cumulate; `partition` and
        `window_number` name one that counts rows, of the task's current version.
        """
        query = window_query(window_start, window_end, partition, window_number)
        longest_s = max(self._timeout_s, VERIFY_TIMEOUT_S)
        path = f"{task_path(name)}/verify"
        return self._call("GET", path, Verification, query=query, timeout_s=longest_s)

    def dead(
        self,
        name: str,
        *,
        reason: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> DeadRows:
        """A page of rows that were not counted."""
        query = {"reason": reason, "after": after, "limit": limit}
        return self._call("GET", f"{task_path(name)}/dead", DeadRows, query=query)

    def figures(self, name: str) -> list[FigurePoint]:
        """Rate, lag, watermark and close latency over the last minutes, the oldest first."""
        return self._call("GET", f"{task_path(name)}/figures", FigureList).points
