"""Frames of states <-> bytes: an Arrow IPC stream, uncompressed.

INTEGER columns are Polars' 128-bit integers, which other Arrow readers may not know; nothing else
reads these bytes.
"""

from __future__ import annotations

import polars as pl

from mars.codec.entry import CorruptEntry
from mars.errors import TaskLimit

STATES_BYTES_MAX = 256 * 1024 * 1024
"""Longest states of one partial. Redis takes 512 MiB as one value; a longer one would cut its
writer's connection each time it was tried."""


def encode_states(frame: pl.DataFrame) -> bytes:
    """The bytes of a frame; equal frames give equal bytes. Raises TaskLimit for too many."""
    states = frame.write_ipc_stream(None).getvalue()
    if len(states) > STATES_BYTES_MAX:
        raise TaskLimit(
            f"{frame.height} groups of one bucket have states of {len(states)} bytes, and "
            f"{STATES_BYTES_MAX} fit into the store at once: delete the task and register it again "
            "with fewer groups, or with fewer or shorter texts in min, max, any_value and "
            "count(DISTINCT)"
        )
    return states


def decode_states(states: bytes) -> pl.DataFrame:
    """The frame; one without columns for empty bytes. Raises CorruptEntry."""
    if not states:
        return pl.DataFrame()
    try:
        return pl.read_ipc_stream(states)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise CorruptEntry(f"states of {len(states)} bytes cannot be read: {error}") from error
