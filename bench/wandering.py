"""Rows of telephone numbers as likely as asked for, and numbers that wander: evenly distributed at
first, then normally.

The mean steps from 2000 to 8000, then the deviation from 100 to 25 (Zhang et al., SPSPS, figure 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec
import numpy as np
import numpy.typing as npt

KEYS = 10_000
SEED = 2015

MEANS = tuple(range(2_000, 8_001, 1_000))
DEVIATIONS = (100, 75, 50, 25)
MIDDLE = 5_000


class Stage(msgspec.Struct, frozen=True):
    """From which second on the keys are distributed so; `sigma` 0: evenly."""

    second: int
    mu: float
    sigma: float


def stages(seconds: int) -> list[Stage]:
    """First evenly, then the mean moves, then the deviation shrinks; each lasts `seconds`."""
    kinds = [(0.0, 0.0), *((mu, 100.0) for mu in MEANS), *((MIDDLE, s) for s in DEVIATIONS)]
    return [Stage(number * seconds, mu, sigma) for number, (mu, sigma) in enumerate(kinds)]


def shares_of_keys(stage: Stage) -> npt.NDArray[np.float64]:
    """How likely each key is."""
    keys = np.arange(KEYS, dtype=float)
    density = np.exp(-(((keys - stage.mu) / stage.sigma) ** 2) / 2) if stage.sigma else keys * 0 + 1
    shares: npt.NDArray[np.float64] = density / density.sum()
    return shares


def names_of_keys(keys: int = KEYS) -> list[str]:
    """So many telephone numbers."""
    return [f"1380000{key:04}" for key in range(keys)]


class Keys(msgspec.Struct, frozen=True):
    """How likely each key is, from which second on."""

    second: int
    shares: list[float]


def keys_of(stage: Stage) -> Keys:
    """Those that are sent in a stage."""
    return Keys(stage.second, shares_of_keys(stage).tolist())


class Keyed:
    """Makes rows of `bench.flows`' names: a time stamp, a key as `sip`, and a `seq` of its own.

    The seconds begin with the first call.
    """

    def __init__(self, keys: Sequence[Keys]) -> None:
        self._begins = [each.second for each in keys]
        self._random = np.random.default_rng(SEED)
        self._cumulated = [np.cumsum(each.shares) for each in keys]
        names = names_of_keys(len(keys[0].shares))
        self._keys = [b'"sip":"%b","type":"t","seq":' % name.encode() for name in names]
        self._numbers = count()
        self._begun_ms: int | None = None

    def messages(self, count: int, start_ms: int, rate_per_s: float) -> list[bytes]:
        """`count` rows of JSON, evenly over time from `start_ms` on."""
        if self._begun_ms is None:
            self._begun_ms = start_ms
        second = (start_ms - self._begun_ms) / 1000
        stage = sum(second >= begin for begin in self._begins) - 1
        chosen = np.searchsorted(self._cumulated[stage], self._random.random(count)).tolist()
        ticks = (np.arange(count) * 1000 // rate_per_s).astype(np.int64).tolist()
        heads = [b'{"timestamp":%d,' % (start_ms + tick) for tick in range(ticks[-1] + 1)]
        keys, last = self._keys, len(self._keys) - 1
        return [
            b"%b%b%d}" % (heads[tick], keys[min(key, last)], number)
            for tick, key, number in zip(ticks, chosen, self._numbers, strict=False)
        ]
