"""What a name in a query names: one rule for streams, qualifiers, fields and items alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from mars.core.plan import Stream

StreamOf = Callable[[str], Stream | Iterable[str] | None]
"""Finds a declared stream by its name; else it may tell names that could be meant instead."""


def find_name(name: str, known: Collection[str]) -> str | None:
    """The known name that is meant: the exact one, else the only one that differs in case alone."""
    if name in known:
        return name
    near = [one for one in known if one.lower() == name.lower()]
    return near[0] if len(near) == 1 else None


def only(stream: Stream) -> Callable[[str], Stream | None]:
    """Finds this stream and no other."""
    return lambda name: stream if find_name(name, (stream.name,)) else None
