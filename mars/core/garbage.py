"""The search for reference cycles in processes that handle millions of values a second."""

from __future__ import annotations

import functools
import gc

OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""Messages and rows are freed by their reference counts and form no cycles. With the default of 700
new objects, looking for cycles took 13 % of a mapper's time of reading, and with what Spark looks
for after each task 37 % of an executor's (see `docs/reports/2026-11-performance.md`)."""


def collect_rarely() -> None:
    """Call it first of all: imports make no garbage, and to look for some takes a tenth of them."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 10, 10)


@functools.cache
def settle_garbage_collection() -> None:
    """Call it once everything is imported and wired: what is there now is never looked at again.

    Another call in the same process does nothing.
    """
    gc.collect()
    gc.freeze()
    collect_rarely()
