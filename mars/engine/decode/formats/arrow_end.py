"""Whether an Arrow IPC stream or file is all of a message, or something follows or lies between.

pyarrow reads the first stream of several and says nothing of the others. Of files that were put one
behind the other it takes the last one's footer, and looks up in the first one what that says.
Zeros are no rows: who pads a message may.
"""

from __future__ import annotations

MAGIC = b"ARROW1"
"""How a file begins and ends."""

END_OF_STREAM = b"\xff\xff\xff\xff"
"""What stands behind the last batch, and four bytes of zeros; older writers leave it out."""

_SEAM = MAGIC * 2
"""Where one file ends and another one begins."""

SEVERAL = "more than one Arrow IPC stream or file: write one into each message"


def check_alone(value: bytes, footer: int, end: int | None) -> None:
    """Raises ValueError where a file is not the only one. Its last batch ends at `end`, if there is
    any.
    """
    rest = b"" if end is None else value[end:footer]
    seam = end is None and _SEAM in value[:footer]
    if seam or rest.removeprefix(END_OF_STREAM).strip(b"\0"):
        raise ValueError(SEVERAL)


def check_stream(value: bytes, read_to: int) -> None:
    """Raises ValueError where a stream was read to here, and more than zeros follows."""
    if value[read_to:].strip(b"\0"):
        raise ValueError(SEVERAL)
