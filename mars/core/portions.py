"""Many things in portions that are not too large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def portions(
    items: Iterable[Item], *limits: tuple[Callable[[Item], int], int]
) -> Iterator[list[Item]]:
    """The items in order, as many at a time as go: each limit weighs one, and says how much a
    portion may weigh. What is too heavy by itself is a portion of its own.
    """
    portion: list[Item] = []
    weights = [0] * len(limits)
    for item in items:
        added = [weigh(item) for weigh, _most in limits]
        weights = [weight + more for weight, more in zip(weights, added, strict=True)]
        if portion and any(
            weight > most for weight, (_weigh, most) in zip(weights, limits, strict=True)
        ):
            yield portion
            portion, weights = [], added
        portion.append(item)
    if portion:
        yield portion
