"""What a run draws: the numbers that `random.Random` draws for the same seed, in half its time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from math import log
from typing import TypeVar

Item = TypeVar("Item")


class Chance(random.Random):
    """`random.Random` for the thousands of draws of a run, which are of few kinds.

    It does not look at what it is given: no kind of number but `int`, and nothing is empty.
    """

    def below(self, number: int) -> int:
        """One of the numbers from 0 on that are lower than this one."""
        bits, draw = number.bit_length(), self.getrandbits
        drawn = draw(bits)
        while drawn >= number:
            drawn = draw(bits)
        return drawn

    def randint(self, a: int, b: int) -> int:
        """Both ends included."""
        return a + self.below(b - a + 1)

    def choice(self, seq: Sequence[Item]) -> Item:  # type: ignore[override]
        """One of these."""
        return seq[self.below(len(seq))]

    def shuffled(self, items: Iterable[Item]) -> list[Item]:
        """The items in any order, as `sample` draws all of them."""
        pool = list(items)
        drawn = []
        for left in range(len(pool), 0, -1):
            at = self.below(left)
            drawn.append(pool[at])
            pool[at] = pool[left - 1]
        return drawn

    def pause(self, mean: float) -> float:
        """Some time, of this mean, as `expovariate` draws it."""
        return -log(1.0 - self.random()) / (1 / mean)
