"""Whether an Arrow IPC stream or file is all of a message, or something follows or lies between.

pyarrow reads the first stream of several and says nothing of the others. Of files that were put one
behind the other it takes the last one's footer, and looks up in the first one what that says.
Zeros are no rows: who pads a message may.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from mars.engine.decode.formats.arrow_size import MAGIC, file_blocks, footer_place

END_OF_STREAM = b"\xff\xff\xff\xff"
"""What stands behind the last batch, and four bytes of zeros; older writers leave it out."""

_SEAM = MAGIC * 2
"""Where one file ends and another one begins."""

SEVERAL = "more than one Arrow IPC stream or file: write one into each message"


def check_file(value: bytes) -> None:
    """Raises ValueError where a file is not the only one, or pa.ArrowException where it is none."""
    pa.ipc.open_file(value)  # which checks the footer
    try:
        footer = footer_place(value).start
        ends = [offset + length for offset, length in file_blocks(value)]
    except struct.error as error:
        raise ValueError(f"metadata that leads nowhere: {error}") from error
    rest = value[max(ends) : footer] if ends else b""
    if rest.removeprefix(END_OF_STREAM).strip(b"\0") or (not ends and _SEAM in value[:footer]):
        raise ValueError(SEVERAL)


def check_stream(value: bytes, read_to: int) -> None:
    """Raises ValueError where a stream was read to here, and more than zeros follows."""
    if value[read_to:].strip(b"\0"):
        raise ValueError(SEVERAL)
