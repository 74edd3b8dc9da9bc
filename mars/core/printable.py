"""Texts of others as a terminal, or a line of a log, may have them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable

OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of Unicode that a terminal obeys (ESC), that change in which order the others are read
(marks of direction) or are not seen at all, and that end a line."""

LINES = "\n\t"
"""What texts of several lines keep."""

_SUSPECT = re.compile(r"[^ -~\u00a1-\u00ac\u00ae-\u02ff]")
"""Most texts have none of these, and are looked at no further."""

_BYTE_MAX = 0xFF
_PLANE_MAX = 0xFFFF
_DELETE = 0x7F
"""Which JSON need not escape, and Python does not."""


def printable(text: str, kept: str = "") -> str:
    r"""The text, where what would be obeyed (but for `kept`) is written out: `\x1b`, `\u202e`."""

    return _replaced(text, kept, _escaped)


def printable_json(text: str) -> str:
    """JSON that means the same, without any of that: what its writer has not escaped is now."""
    return _replaced(text, LINES, _escaped_in_json)


def _replaced(text: str, kept: str, escaped: Callable[[int], str]) -> str:
    def shown(found: re.Match[str]) -> str:
        letter = found.group()
        if letter in kept or unicodedata.category(letter) not in OBEYED:
            return letter
        return escaped(ord(letter))

    return _SUSPECT.sub(shown, text)


def _escaped_in_json(code: int) -> str:
    return json.dumps(chr(code))[1:-1] if code != _DELETE else "\\u007f"


def _escaped(code: int) -> str:
    if code <= _BYTE_MAX:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _PLANE_MAX else f"\\U{code:08x}"
