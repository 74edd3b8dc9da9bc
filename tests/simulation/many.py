"""Runs many seeds: `python -m tests.simulation.many COUNT [FIRST] [KEYS]`."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import time

from tests.simulation.hashes import fix_hashes
from tests.simulation.users import Keys
from tests.simulation.world import World

REPORT_EVERY = 100


def main(arguments: list[str]) -> int:
    """Exit 0 if all runs hold, 1 if one does not, 2 for a wrong call."""
    keys = Keys.at_the_end_of(arguments)
    if not 1 <= len(arguments) <= 2 or not all(each.isdigit() for each in arguments):
        sys.stderr.write("usage: python -m tests.simulation.many COUNT [FIRST] [KEYS]\n")
        return 2
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    seeds, begun_s, failed = range(first, first + count), time.monotonic(), 0
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        problems = pool.imap(functools.partial(problem_of, keys=keys), seeds)
        for done, problem in enumerate(problems, start=1):
            if problem:
                failed += 1
                sys.stdout.write(problem + "\n")
            if done % REPORT_EVERY == 0 or done == count:
                seconds = time.monotonic() - begun_s
                sys.stdout.write(f"{done} seeds, {failed} failed, {seconds:.0f} s\n")
                sys.stdout.flush()
    return 1 if failed else 0


def problem_of(seed: int, keys: Keys) -> str:
    """What is wrong with a run, in one line that names its seed; empty if it holds."""
    try:
        World(seed, keys=keys).run()
    except AssertionError as problem:
        return str(problem).splitlines()[0][:300]
    return ""


if __name__ == "__main__":
    fix_hashes()
    raise SystemExit(main(sys.argv[1:]))
