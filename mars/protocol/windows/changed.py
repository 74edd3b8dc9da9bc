"""Of windows that begin together, those groups alone that got rows since the last one was emitted.

    C ──── rows of the next step ──────── its end       in their own pane: known whoever reads it
      ──── rows that have missed theirs ─               in the pane that all have in common

Whose rows have missed their step is known in memory only. So a commit that moves M over such rows
without a window that shows their groups says in its record that it owes them: a successor does not
know which they are, and emits all groups with the next window.
"""

from __future__ import annotations

import polars as pl

from mars.core.plan import Plan
from mars.engine.aggregates import key_names

FRAMES_MAX = 64
"""Of groups that wait, until each of them is kept once: a task may get late rows for long before a
window shows them."""


class ChangedGroups:
    """The groups that rows came to which have missed their step; `owed`: of some it is not known
    which they are.
    """

    def __init__(self, plan: Plan, *, owed: bool) -> None:
        self._plan = plan
        self._late: list[pl.DataFrame] | None = None if owed else []

    @property
    def pending(self) -> bool:
        """True if there are any that no window shows yet."""
        return self._late is None or bool(self._late)

    def touch(self, states: pl.DataFrame) -> None:
        """Rows of these groups have missed their step."""
        if self._late is not None:
            names = key_names(self._plan)
            self._late.append(states.select(names))
            if len(self._late) >= FRAMES_MAX:
                self._late = [pl.concat(self._late).unique() if names else self._late[0]]

    def chosen(
        self, states: pl.DataFrame, own: pl.DataFrame | None, *, is_next: bool
    ) -> pl.DataFrame:
        """Of a window's states those to be emitted: the groups of its `own` step, and, if it is the
        next window, those whose rows have missed theirs.
        """
        names, late = key_names(self._plan), self._late if is_next else []
        if late is None:
            return states
        parts = [*late, *([] if own is None else [own.select(names)])]
        if not parts:
            return states.clear()
        if not names:
            return states
        return states.join(pl.concat(parts).unique(), on=names, how="semi", nulls_equal=True)

    def committed(self, *, owed: bool) -> None:
        """A record is durable; unless they are `owed`, the windows that it emitted show them."""
        if not owed:
            self._late = []
