"""Runs many seeds: `python -m tests.simulation.many COUNT [FIRST] [KEYS]`."""

from __future__ import annotations

import sys
import time

from tests.simulation.hashes import fix_hashes
from tests.simulation.users import Keys
from tests.simulation.world import World

REPORT_EVERY = 100


def main(arguments: list[str]) -> int:
    """Exit 0 if all runs hold, 1 if one does not, 2 for a wrong call."""
    keys = Keys(arguments.pop()) if arguments and arguments[-1] in list(Keys) else Keys.ANY
    if not 1 <= len(arguments) <= 2 or not all(each.isdigit() for each in arguments):
        sys.stderr.write("usage: python -m tests.simulation.many COUNT [FIRST] [KEYS]\n")
        return 2
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    failed: list[int] = []
    for seed in range(first, first + count):
        try:
            World(seed, keys=keys).run()
        except AssertionError as problem:
            failed.append(seed)
            sys.stdout.write(str(problem).splitlines()[0][:300] + "\n")
        done = seed + 1 - first
        if done % REPORT_EVERY == 0 or done == count:
            seconds = time.process_time()
            sys.stdout.write(f"{done} seeds, {len(failed)} failed, {seconds:.0f} CPU seconds\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    fix_hashes()
    raise SystemExit(main(sys.argv[1:]))
