"""The states of aggregates: made of rows (lift), merged, finished; and the laws they obey.

A frame of states has one row per (pane, key): the columns `pane` (Int64, ms), `k0`, `k1` ... and
the state columns of each aggregate (`state_schema`). See `base` for the laws.

    base      what an aggregate is
    counts    count(*) count(x) count_if
    sums      sum avg
    extremes  min max any_value bool_and bool_or
    moments   var_samp var_pop stddev_samp stddev_pop
    distinct  count(DISTINCT x)

    runs      few rows group by group, found once for all filters and aggregates
    others    the groups of a window beyond `max_keys`
    scoped    what tells when a key's windows close
    placed    where the rows lie of windows that count them, and of sessions
    keyed     which rows of a key make a window
    sessions  which groups of panes make a session
"""

from __future__ import annotations

from mars.engine.aggregates.distinct import DISTINCT_VALUES_MAX
from mars.engine.aggregates.keyed import KeyWindows, key_windows, quiet, split
from mars.engine.aggregates.others import limited, limited_window
from mars.engine.aggregates.placed import (
    FIRST_OFFSET,
    LAST_OFFSET,
    SEEN,
    key_place_aggregates,
    place_aggregates,
    session_aggregates,
)
from mars.engine.aggregates.scoped import COUNTED, LAST_TIME, MARK, scope_aggregates
from mars.engine.aggregates.sessions import Sessions, sessions_of
from mars.engine.aggregates.states import (
    OTHERS,
    PANE,
    ROWS,
    aggregators,
    columns,
    constant,
    finish,
    in_pane,
    in_panes,
    key_names,
    lift,
    merge,
    merge_panes,
    merges_exactly,
    panes_of_window,
    stacked,
    state_schema,
)

__all__ = [
    "COUNTED",
    "DISTINCT_VALUES_MAX",
    "FIRST_OFFSET",
    "LAST_OFFSET",
    "LAST_TIME",
    "MARK",
    "OTHERS",
    "PANE",
    "ROWS",
    "SEEN",
    "KeyWindows",
    "Sessions",
    "aggregators",
    "columns",
    "constant",
    "finish",
    "in_pane",
    "in_panes",
    "key_names",
    "key_place_aggregates",
    "key_windows",
    "lift",
    "limited",
    "limited_window",
    "merge",
    "merge_panes",
    "merges_exactly",
    "panes_of_window",
    "place_aggregates",
    "quiet",
    "scope_aggregates",
    "session_aggregates",
    "sessions_of",
    "split",
    "stacked",
    "state_schema",
]
