"""Runs one seed and tells each step: `python -m tests.simulation.replay SEED [KEYS]`."""

from __future__ import annotations

import sys

from tests.simulation.hashes import fix_hashes
from tests.simulation.users import Keys
from tests.simulation.world import World


def main(arguments: list[str]) -> int:
    """Exit 0 if the run holds all invariants, 1 if not, 2 for a wrong call."""
    keys = Keys.at_the_end_of(arguments)
    if len(arguments) != 1 or not arguments[0].isdigit():
        sys.stderr.write("usage: python -m tests.simulation.replay SEED [KEYS]\n")
        return 2

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")

    try:
        World(int(arguments[0]), tell=tell, keys=keys).run()
    except AssertionError as problem:
        tell(f"FAILS {problem}")
        return 1
    tell(f"seed {arguments[0]} holds")
    return 0


if __name__ == "__main__":
    fix_hashes()
    raise SystemExit(main(sys.argv[1:]))
