"""The weathers of the simulation in which mutants show."""

from __future__ import annotations

import re

from tests.mutants.mutant import Simulated
from tests.simulation.conditions import CHANGING_AND_LOSING, SAVING, USUAL, Conditions
from tests.simulation.users import Keys

WEATHERS = {
    "usual": USUAL,
    "saving": Conditions(SAVING),
    "changing and losing": Conditions(CHANGING_AND_LOSING),
    "own keys": Conditions(keys=Keys.OWN),
    "own keys, saving": Conditions(SAVING, keys=Keys.OWN),
    "split": Conditions(split=True),
}

INVARIANT = re.compile(r"""(\[["'])?(I\d|never)\b""")
"""How a message begins that says which invariant does not hold, as one or as the first of some."""


def broken(simulated: Simulated, seeds: int) -> tuple[int, str] | None:
    """The first of the seeds that breaks an invariant, and which. Raises ValueError where one
    fails by anything else.
    """
    conditions = WEATHERS[simulated.weather]
    for seed in range(simulated.first, simulated.first + seeds):
        problem = conditions.problem(seed)
        if problem is None:
            continue
        if not INVARIANT.match(problem):
            raise ValueError(f"seed {seed} breaks no invariant: {problem}")
        return seed, problem
    return None
