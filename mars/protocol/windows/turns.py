"""How much closing one commit does: tasks take turns of about 100 ms, and others wait for it."""

from __future__ import annotations

from dataclasses import replace

from mars.protocol.windows.open_panes import Size

WINDOWS_AT_ONCE = 100
"""Windows that one commit closes: each takes about a millisecond to finish. As long as it lasts all
other tasks of the process wait, so this and the next two are about 100 ms each."""

PANES_AT_ONCE = 8_000
"""Panes of which these windows are made, unless a single one has more: each costs some 12 us."""

ROWS_AT_ONCE = 100_000
"""States in these windows, unless a single one has more: each costs some 0.8 us."""

LONG_TURNS = 0.25
"""So much of a turn of about 100 ms is long."""


def turns(size: Size) -> float:
    """How many turns of about 100 ms closing takes."""
    return max(size.windows / WINDOWS_AT_ONCE, size.panes / PANES_AT_ONCE, size.rows / ROWS_AT_ONCE)


def takes_long(size: Size) -> bool:
    """True if closing takes a good part of a turn, so that others should not wait for it.

    Rows alone do not: they are finished quickly, and drafted before.
    """
    return turns(replace(size, rows=0)) > LONG_TURNS
