"""`python -m bench.key_marks`: what an entry costs a bucket whose windows close key by key.

Each key has one open group, in one of four windows, and one key has gone past all of them. Then
entries come, each with rows of some keys: in their own windows, so that nothing is due, or in a
later one, so that their groups are. Measured is CPU time from taking an entry until it is known
whether groups are due, which is asked after each entry.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median

from bench.errors import BenchError
from bench.scopes import SQL, STREAM, WINDOW_MS
from mars.core.plan import Plan
from mars.core.types import Bucket, Entry, Lane, Records, Sequence64, TaskName
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import Frontier
from mars.protocol.windows.folding import Folding
from mars.sql import compile_task

KEYS = (1_000, 10_000, 100_000, 1_000_000)
TOUCHED = 500
"""Keys of an entry: a batch of 5,000 rows, shared out to some buckets."""
ENTRIES = 20
OPEN_WINDOWS = 4
DELAY_MS = 1_000
SEED = 25
LANE = Lane("0")
NAME = TaskName("key_marks")

Row = tuple[int, int]
"""Event time in ms, and the number of the key."""


class Bench:
    """One folding, and the entries that come to it."""

    def __init__(self, keys: int) -> None:
        options = {"delay": "1s", "watermark": "key", "key_lag": "1h"}
        self._plan: Plan = compile_task(
            SQL, task=NAME, version=1, stream_of=lambda _name: STREAM, options=options
        )
        self._folding = Folding(self._plan, Bucket(0), {})
        self._closer = self._folding.state.closer
        self._chance = random.Random(SEED)
        self._keys = keys
        self._next = 0
        self._seq = 0
        self._folding.absorb(self._entry(list(self._open_rows())))
        self._closer.has_ahead()
        self.commit_ms()

    def _open_rows(self) -> Iterator[Row]:
        yield (OPEN_WINDOWS + 1) * WINDOW_MS, self._keys
        for key in range(self._keys):
            yield key % OPEN_WINDOWS * WINDOW_MS, key

    def _entry(self, rows: Sequence[Row]) -> Entry:
        values = [json.dumps({"ts": at, "k": f"{key:012}"}).encode() for at, key in rows]
        offsets = range(self._next, self._next + len(rows))
        self._next, self._seq = offsets.stop, self._seq + 1
        records = Records(LANE, offsets.start, offsets.stop, values, offsets, [-1] * len(rows))
        mapped = map_batch(self._plan, 1, decode(STREAM, self._plan.fields, records))
        return Entry(Sequence64(self._seq), 1, mapped.ranges, mapped.partials[0])

    def entry_ms(self, *, due: bool) -> float:
        """The CPU time of an entry, ms."""
        later_ms = OPEN_WINDOWS * WINDOW_MS + DELAY_MS
        keys = self._chance.sample(range(self._keys), TOUCHED)
        entry = self._entry(
            [(later_ms if due else key % OPEN_WINDOWS * WINDOW_MS, key) for key in keys]
        )
        begun_s = time.process_time()
        self._folding.absorb(entry)
        if self._closer.has_ahead() is not due:
            raise BenchError("What is due is not what the rows have made due.")
        return (time.process_time() - begun_s) * 1_000

    def commit_ms(self) -> float:
        """The CPU time of a commit that closes all that is due, ms."""
        begun_s = time.process_time()
        ahead = self._closer.close_ahead(None)
        ledger = self._folding.ledger(None, ahead.rows)
        self._folding.committed(Frontier({LANE: self._next}, ahead_ms=ahead.upto_ms), ledger)
        return (time.process_time() - begun_s) * 1_000


def main() -> int:
    """Print a table."""
    sys.stdout.write(
        "| keys | nothing is due, ms an entry | the longest | groups become due, the first "
        "| the others | commit, ms |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    for keys in KEYS:
        bench = Bench(keys)
        quiet = [bench.entry_ms(due=False) for _ in range(ENTRIES)]
        first, *others = [bench.entry_ms(due=True) for _ in range(ENTRIES)]
        cells = [median(quiet), max(quiet), first, median(others), bench.commit_ms()]
        figures = " | ".join(f"{cell:.1f}" for cell in cells)
        sys.stdout.write(f"| {keys:,} | {figures} |\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
