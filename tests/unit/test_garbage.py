"""What is done for each batch and each window leaves nothing that only the collector frees.

It comes by rarely (`mars.garbage`): a mapper grew by 0.8 MB a minute, of three objects a batch.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from mars.core.types import Entry, Lane, Range, Records, Sequence64
from mars.engine.codec.entry import encode_entry
from mars.engine.kernel import decode, map_batch
from mars.protocol.windows.folding import Folding
from tests.unit.machines.reducing_rows import (
    P0,
    STREAM,
    make_folding,
    make_frontier,
    make_plan,
    message,
    panes_of,
)

ROUNDS = 5
LANE = Lane("0")


@contextmanager
def uncollected() -> Iterator[list[int]]:
    """In the end, how many objects only the collector could free."""
    found: list[int] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        found.append(gc.collect())
    finally:
        gc.enable()


def one_round(folding: Folding, number: int) -> None:
    """A batch is mapped, merged and closed."""
    plan, first = folding.plan, 10 * number
    values = [message((10 * number + each, f"k{each % 3}")) for each in range(10)]
    records = Records(LANE, first, first + 10, values, range(first, first + 10), [-1] * 10)
    for partial in map_batch(plan, 1, decode(STREAM, plan.fields, records)).partials:
        ranges = (Range(LANE, first, first + 10),)
        encode_entry(plan.version, ranges, partial)
        folding.absorb(Entry(Sequence64(number + 1), plan.version, ranges, partial))
    watermark_ms = 10_000 * number
    folding.state.close(folding.state.due(watermark_ms))
    closed_ms = panes_of(folding).closed_by(watermark_ms)
    folding.committed(make_frontier({P0: first + 10}, closed_ms), folding.ledger(closed_ms))


def test_mapping_and_closing_leave_no_cycles() -> None:
    folding = make_folding(make_plan(), merged={})
    one_round(folding, 0)  # imports, caches
    with uncollected() as found:
        for number in range(1, ROUNDS + 1):
            one_round(folding, number)
    assert found == [0]
