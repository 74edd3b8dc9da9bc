"""How long it takes to close sliding windows of many panes: `python -m bench.closing`.

Windows of WINDOWING 1000 s SLIDE 100 ms, each of 10,000 panes with rows, are closed one after the
other, as event time goes on, in one bucket.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from bench.kernel import mars_query
from mars.core.plan import Column, Key, Plan, ValueType
from mars.core.types import Bucket, Entry, Lane, PaneRows, Partial, Range, RowCounts, Sequence64
from mars.core.windows import Sliding
from mars.engine.aggregates import state_schema
from mars.engine.codec.states import encode_states
from mars.local.flows import stream
from mars.protocol.ports import Frontier, Ledger
from mars.protocol.windows.folding import Folding

SHAPE = Sliding(1_000_000, 100)

PANES = 10_000

AT_ONCE = 500
"""Panes of one entry."""


def plan_of() -> Plan:
    """SELECT sip, timestamp, count(*) ... GROUP BY sip, timestamp WINDOWING 1000 s SLIDE 100 ms."""
    plan = mars_query(stream())
    key = Key("k0", Column("sip", ValueType.STRING))
    return replace(plan, window=SHAPE, keys=(key,), outputs=plan.outputs[:1] + plan.outputs[2:])


def entries(plan: Plan, groups: int, first: int, count: int) -> Iterator[Entry]:
    """Rows of so many panes: one of each group in each pane."""
    names = np.array([f"10.0.{number // 256}.{number % 256}" for number in range(groups)])
    for low in range(first, first + count, AT_ONCE):
        numbers = np.arange(low, min(low + AT_ONCE, first + count))
        frame = pl.DataFrame(
            [
                np.repeat(numbers * 100, groups),
                np.tile(names, len(numbers)),
                np.ones(groups * len(numbers), np.int64),
            ],
            schema=state_schema(plan),
        )
        panes = tuple(PaneRows(int(at) * 100, groups, {Lane("0"): int(at)}) for at in numbers)
        counts = RowCounts(counted=groups * len(numbers))
        partial = Partial(Bucket(0), counts, panes, encode_states(frame))
        ranges = (Range(Lane("0"), int(numbers[0]), int(numbers[-1]) + 1),)
        yield Entry(Sequence64(low + 1), plan.version, ranges, partial)


def commit(folding: Folding, merged: int, closed_ms: int, ledger: Ledger) -> None:
    """What a durable record does."""
    folding.committed(Frontier({Lane("0"): merged}, closed_ms, closed_ms), ledger)


def measure(groups: int, windows: int) -> list[float]:
    """CPU milliseconds to close each of some windows that follow each other."""
    plan = plan_of()
    folding = Folding(plan, Bucket(0), {})
    for entry in entries(plan, groups, 0, PANES):
        folding.absorb(entry)
    commit(folding, PANES, PANES * 100 - 100, folding.ledger(None))
    taken_ms = []
    for number in range(PANES, PANES + windows):
        begun_s = time.process_time()
        closed = folding.state.close(folding.state.due(number * 100))
        taken_ms.append((time.process_time() - begun_s) * 1000)
        assert [one.rows for one in closed] == [groups * PANES]
        commit(folding, number + 1, number * 100, folding.ledger(number * 100))
        for entry in entries(plan, groups, number, 1):
            folding.absorb(entry)
    return taken_ms


def main() -> None:
    """Print the first, the median and the longest time for few and for many groups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--groups", type=int, nargs="*", default=[5, 500])
    given = parser.parse_args()
    for groups in given.groups:
        taken = measure(groups, given.windows)
        later = sorted(taken[1:])
        print(
            f"{groups} groups: the first window {taken[0]:.0f} ms, "
            f"then {later[len(later) // 2]:.1f} ms, at most {later[-1]:.1f} ms"
        )


if __name__ == "__main__":
    main()
