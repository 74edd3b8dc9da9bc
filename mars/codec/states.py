"""Frames of states <-> bytes: an Arrow IPC stream, uncompressed.

INTEGER columns are Polars' 128-bit integers, which other Arrow readers may not know; nothing else
reads these bytes.
"""

from __future__ import annotations

import polars as pl

from mars.codec.entry import CorruptEntry


def encode_states(frame: pl.DataFrame) -> bytes:
    """The bytes of a frame; equal frames give equal bytes."""
    return frame.write_ipc_stream(None).getvalue()


def decode_states(states: bytes) -> pl.DataFrame:
    """The frame; one without columns for empty bytes. Raises CorruptEntry."""
    if not states:
        return pl.DataFrame()
    try:
        return pl.read_ipc_stream(states)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise CorruptEntry(f"states of {len(states)} bytes cannot be read: {error}") from error
