"""What all answers have in common."""

from __future__ import annotations

from typing import Any

import msgspec

Row = dict[str, Any]
"""A result row by column."""


class Answer(msgspec.Struct, frozen=True):
    """What comes back; unknown members are ignored."""
