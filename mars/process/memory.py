"""How a process that handles millions of short-lived values a second keeps its memory tidy."""

from __future__ import annotations

import ctypes
import os

from mars.core.garbage import collect_rarely

JEMALLOC = "narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0"
"""polars' allocator: pages that nothing used for half a second go back to the system, and do so at
once, not when somebody else needs them: until then they are ours in every account of memory."""

POLARS_OWN = "dirty_decay_ms:500,muzzy_decay_ms:1000"
"""What polars puts before it, into the environment that children of its process inherit."""

ARENAS_MAX = 2
"""Heaps of the C library in a process; with one for each thread, as it likes, what one thread has
freed serves no other."""

MAPPED_BYTES_MIN = 1_048_576
"""An allocation of this size is pages of its own, which go back when it is freed. Left alone, the C
library raises the limit to 32 MB with each large one that is freed."""

TRIMMED_BYTES_MIN = 4_194_304
"""Free memory at the end of a heap that goes back to the system."""

_ALLOCATOR = "_RJEM_MALLOC_CONF"

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of glibc's `mallopt(3)`."""


def keep_small() -> None:
    """Call it first of all in a process, before polars is imported and threads are started.

    What the environment says of polars and numpy stays; its `MALLOC_*` does not. Where the C
    library is not glibc, its part is left out.
    """
    collect_rarely()
    # A process is one of many on a machine: threads of its own only wait for each other, and those
    # of numpy's algebra, which nothing here uses, take a tenth of a second to start.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    asked = os.environ.get(_ALLOCATOR, "").removeprefix(POLARS_OWN).lstrip(",")
    os.environ[_ALLOCATOR] = asked or JEMALLOC
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, TRIMMED_BYTES_MIN)
