"""Runs one seed again and tells what happens: `python -m tests.simulation.replay SEED`."""

from __future__ import annotations

import sys

from tests.simulation.world import World


def main(arguments: list[str]) -> int:
    """Exit 0 if the run holds all invariants, 1 if not, 2 for a wrong call."""
    if len(arguments) != 1 or not arguments[0].isdigit():
        print("usage: python -m tests.simulation.replay SEED", file=sys.stderr)
        return 2
    try:
        World(int(arguments[0]), tell=print).run()
    except AssertionError as problem:
        print(f"seed {arguments[0]} fails: {problem}")
        return 1
    print(f"seed {arguments[0]} holds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
