"""How a loop carries out what its machine asks for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

Event = TypeVar("Event")
Instruction = TypeVar("Instruction")


def feed(
    handle: Callable[[Event], Sequence[Instruction]],
    act: Callable[[Instruction], Event | None],
    event: Event,
) -> None:
    """Give an event to a machine and carry out all that follows from it, outcomes included."""
    waiting = deque(handle(event))
    while waiting:
        outcome = act(waiting.popleft())
        if outcome is not None:
            waiting.extend(handle(outcome))
