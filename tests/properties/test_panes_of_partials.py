"""The states of a partial, taken apart by pane."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from mars.core.types import Bucket, PaneRows, Partial, RowCounts
from mars.engine.aggregates import PANE
from mars.engine.codec.states import encode_states
from mars.protocol.windows.panes import states_by_pane


@given(st.lists(st.tuples(st.integers(-3, 3), st.text(max_size=2)), min_size=1, max_size=20))
def test_each_pane_has_its_states_in_their_order(rows: list[tuple[int, str]]) -> None:
    frame = pl.DataFrame(rows, schema={PANE: pl.Int64, "k0": pl.String}, orient="row")
    panes = tuple(PaneRows(start, 1, {}) for start in sorted({pane for pane, _key in rows}))
    found = states_by_pane(Partial(Bucket(0), RowCounts(), panes, encode_states(frame)))
    assert {start: part.rows() for start, part in found.items()} == {
        pane.start_ms: [row for row in rows if row[0] == pane.start_ms] for pane in panes
    }
