"""What many tasks on one topic cost a mapper: `python -m bench.many_plans [--quick]`.

One core, JSON, 8 buckets. CPU time of mapping one decoded batch for 1, 10 and 100 plans, one after
the other and together; in turn, and the best of several runs of each, as in `bench.kernel`.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is imported

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice

from bench.kernel import BUCKETS, GROUPS, RATE_PER_S, START_MS, records_of
from mars.core.plan import Plan
from mars.core.types import TaskName
from mars.engine.kernel import Decoded, decode, map_batch, map_many
from mars.local.flows import Flows, stream
from mars.sql import compile_task

KEYS = (
    "sip",
    "dip",
    "type",
    "sport",
    "sip, type",
    "dip, type",
    "vlan",
    "sip, dport",
    "dc",
    "asn",
)
FILTERS = (
    "",
    "WHERE ok",
    "WHERE bytes > 500",
    "WHERE type = 't01'",
    "WHERE type IN ('t02', 't03')",
    "WHERE vlan % 7 = 3",
    "WHERE loss < 0.1",
    "WHERE dc = 4",
    "WHERE dport < 1024",
    "WHERE ttl BETWEEN 30 AND 90",
)
AGGREGATES = (
    "count(*)",
    "count(*), sum(bytes)",
    "avg(loss), max(rtt)",
    "count(*), min(bytes), max(bytes)",
)
SINGLE = (0, 124, 47, 233, 358, 91, 175, 266, 311, 9)
"""Plans that are measured alone: all keys and filters, and all aggregates."""

RUNS = {200: 60, 2_000: 40, 50_000: 8}


def plan_of(number: int) -> Plan:
    """Each of 100 plans in a row has another pair of keys and filter."""
    keys, where = KEYS[number % 10], FILTERS[number // 10 % 10]
    return compile_task(
        f"SELECT {keys}, {AGGREGATES[number // 100 % 4]} FROM S {where} "
        f"GROUP BY {keys}, timestamp WINDOWING 60 s",
        task=TaskName(f"task{number}"),
        version=1,
        stream_of=lambda _name: stream(),
        options={},
    )


def best_ms(ways: Sequence[Callable[[], object]], runs: int) -> list[float]:
    """The least CPU time of each way; whoever begins pays for what the collector did to caches."""
    best = [float("inf")] * len(ways)
    order = list(range(len(ways)))
    for begin in islice(cycle(order), runs):
        gc.collect()
        for at in order[begin:] + order[:begin]:
            started = time.process_time()
            ways[at]()
            best[at] = min(best[at], time.process_time() - started)
    return [each * 1e3 for each in best]


def sets_of(count: int) -> list[list[Plan]]:
    """Some sets of so many plans; the times are their mean."""
    starts = SINGLE if count == 1 else range(0, 400, 100)
    return [[plan_of(start + at) for at in range(count)] for start in starts]


def alone(plans: Sequence[Plan], decoded: Decoded) -> None:
    """Map the batch for one plan after the other."""
    for plan in plans:
        map_batch(plan, BUCKETS, decoded)


def line(rows: int, count: int, runs: int) -> str:
    """Measure one size of batches for one number of plans."""
    values = Flows(groups=GROUPS).messages(rows, START_MS, RATE_PER_S)
    decoded = decode(stream(), stream().fields, records_of(values))
    found = [
        best_ms([partial(alone, plans, decoded), partial(map_many, plans, BUCKETS, decoded)], runs)
        for plans in sets_of(count)
    ]
    one_by_one, together = (sum(each) / len(found) for each in zip(*found, strict=True))
    return f"{rows:>8}{count:>8}{one_by_one:>12.2f}{together:>12.2f}{together / count:>12.3f}"


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs of each")
    quick = parser.parse_args().quick
    print(f"{'rows':>8}{'plans':>8}{'alone ms':>12}{'together ms':>12}{'ms a plan':>12}")
    for rows, runs in RUNS.items():
        for count in (1, 10, 100):
            print(line(rows, count, max(2, runs // 4) if quick else runs), flush=True)


if __name__ == "__main__":
    main()
