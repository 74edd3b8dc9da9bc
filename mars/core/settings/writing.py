"""Settings as TOML, for processes that get a file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from mars.core.settings.sections import Settings


def to_toml(settings: Settings) -> str:
    """TOML that `load` turns into equal settings: only what differs from the defaults.

    It holds passwords, if there are any: write it readable for its owner only.
    """
    return "\n".join(_toml_lines(settings, Settings(), prefix="")) + "\n"


def _toml_lines(value: Any, default: Any, prefix: str) -> Iterator[str]:
    """Plain values first: in TOML they must stand before the tables of the same object."""
    tables: list[tuple[str, Any, Any]] = []
    for item in fields(value):
        own, other = getattr(value, item.name), getattr(default, item.name)
        if own == other:
            continue
        if is_dataclass(own):
            tables.append((item.name, own, other))
        elif isinstance(own, dict):
            tables.append((item.name, own, None))
        else:
            yield f"{item.name} = {_toml_value(own)}"
    for name, own, other in tables:
        yield f"\n[{prefix}{name}]"
        if other is None:
            yield from (f"{_toml_value(key)} = {_toml_value(own[key])}" for key in sorted(own))
        else:
            yield from _toml_lines(own, other, f"{prefix}{name}.")


def _toml_value(value: str | float | bool | tuple[str, ...]) -> str:
    """JSON's notation of these is TOML's too, but for DEL, which TOML wants escaped."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
