"""What a run draws is what `random.Random` draws: the seeds of before mean the same runs."""

import random

from tests.simulation.chance import Chance


def test_equal_seeds_give_equal_draws() -> None:
    """Of each kind, and they leave the same state behind."""
    chance, usual = Chance(7), random.Random(7)
    for number in range(1, 2_000):
        items = range(number % 40)
        assert chance.below(number) == usual.randrange(number)
        assert chance.randint(-number, number) == usual.randint(-number, number)
        assert chance.choice(range(number)) == usual.choice(range(number))
        assert chance.shuffled(items) == usual.sample(items, len(items))
        assert chance.pause(number / 7) == usual.expovariate(1 / (number / 7))
    assert chance.getstate() == usual.getstate()
