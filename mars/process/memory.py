"""How a process that handles millions of short-lived values a second keeps its memory tidy."""

from __future__ import annotations

import gc

OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""Messages and rows are freed by their reference counts and form no cycles. With the default of 700
new objects, looking for cycles took 13 % of the time of reading (see `docs/performance.md`)."""


def settle_garbage_collection() -> None:
    """Call it once everything is imported and wired: what is there now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
