"""How deep JSON may nest.

The parser gives up where the interpreter's stack ends, at a depth that depends on who called it.
A row must have the same fate in every process, so a lower limit decides, by looking at the bytes
alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

NESTING_MAX = 500
"""Levels of a row; about half of what the interpreter's stack (1,000 frames) leaves the parser."""

SHALLOW_BYTES_MAX = 2 * NESTING_MAX
"""A row this short cannot close more than NESTING_MAX levels, so it need not be looked at."""

_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)

_BRACKETS = np.zeros(256, dtype=np.int8)
_BRACKETS[list(b"{[")] = 1
_BRACKETS[list(b"}]")] = -1
_QUOTE, _COMMA = ord('"'), ord(",")


def may_be_deep(rows: Sequence[bytes]) -> bool:
    """False if none of the rows can nest deeper than NESTING_MAX; a cheap look at all of them.

    A row deeper than that has more than NESTING_MAX opening brackets, every other row at least
    one: few brackets in all mean that there is no such row.
    """
    text = b"".join(rows)
    opening = len(text) - len(text.translate(None, b"{["))
    return opening - len(rows) >= NESTING_MAX


def commas_of_array(text: bytes) -> np.typing.NDArray[np.int64]:
    """Where the commas between the elements of an array are, which must be no deeper than that."""
    # Pairs first: of the backslashes before a quote, only an odd one makes it part of a text.
    plain = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    letters = np.frombuffer(plain, dtype=np.uint8)
    in_text = np.bitwise_and(np.cumsum(letters == _QUOTE, dtype=np.uint8), 1).astype(bool)
    steps = _BRACKETS[letters]
    steps[in_text] = 0
    depths = np.cumsum(steps, dtype=np.int16)
    return np.flatnonzero((letters == _COMMA) & ~in_text & (depths == 1))


def is_too_deep(row: bytes) -> bool:
    """True if a row nests deeper than NESTING_MAX, brackets within texts aside."""
    if len(row) <= SHALLOW_BYTES_MAX or row.count(b"{") + row.count(b"[") <= NESTING_MAX:
        return False
    if b"\\" in row:
        row = _QUOTED.sub(b"", row)
    letters = np.frombuffer(row, dtype=np.uint8)
    steps = _BRACKETS[letters]
    # Without backslashes each quote begins a text or ends it.
    steps[np.bitwise_and(np.cumsum(letters == _QUOTE, dtype=np.uint8), 1).astype(bool)] = 0
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0)) > NESTING_MAX
