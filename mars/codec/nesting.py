"""How deep JSON may nest.

The parser gives up where the interpreter's stack ends, at a depth that depends on who called it.
A row must have the same fate in every process, so a lower limit decides, by looking at the bytes
alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NESTING_MAX = 500
"""Levels of a row; about half of what the interpreter's stack (1,000 frames) leaves the parser."""

SHALLOW_BYTES_MAX = 2 * NESTING_MAX
"""A row this short cannot close more than NESTING_MAX levels, so it need not be looked at."""

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def may_be_deep(rows: Sequence[bytes]) -> bool:
    """False if none of the rows can nest deeper than NESTING_MAX; a cheap look at all of them.

    A row deeper than that has more than NESTING_MAX opening brackets, every other row at least
    one: few brackets in all mean that there is no such row.
    """
    text = b"".join(rows)
    opening = len(text) - len(text.translate(None, b"{["))
    return opening - len(rows) >= NESTING_MAX


def is_too_deep(row: bytes) -> bool:
    """True if a row nests deeper than NESTING_MAX, brackets within texts aside."""
    if len(row) <= SHALLOW_BYTES_MAX or row.count(b"{") + row.count(b"[") <= NESTING_MAX:
        return False
    depth = 0
    for token in _TOKENS.finditer(row):
        if token[0] in {b"{", b"["}:
            depth += 1
        elif token[0] in {b"}", b"]"}:
            depth -= 1
        if depth > NESTING_MAX:
            return True
    return False
