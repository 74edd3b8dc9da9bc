"""Whether the tests notice small changes of the protocol: `python -m tests.mutants --help`."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.mutants.mutant import read_lists
from tests.mutants.verdicts import Job, jobs_of, judge, table
from tests.simulation.hashes import fix_hashes

SEEDS_OF_SAMPLES = 10_000


def main(arguments: Sequence[str]) -> int:
    """Exit 0 if each mutant is killed as its list says, or explained; 1 if not; 2 wrong call."""
    options = _parser().parse_args(arguments)
    jobs = jobs_of(read_lists())
    if options.only:
        jobs = _named(jobs, options.only)
    if options.sample:
        seed = random.randrange(SEEDS_OF_SAMPLES) if options.seed is None else options.seed
        _tell(f"{options.sample} of {len(jobs)} mutants, by seed {seed}")
        jobs = random.Random(seed).sample(jobs, min(options.sample, len(jobs)))
    begun_s = time.monotonic()
    verdicts = judge(jobs, options.workers, _tell)
    _tell("")
    _tell(table(verdicts, _guards()))
    bad = [verdict for verdict in verdicts if not verdict.is_good]
    for verdict in bad:
        _tell(f"LOOK INTO {verdict}")
    _tell(f"{len(verdicts) - len(bad)} passed, {len(bad)} failed, {_since(begun_s)}")
    return 1 if bad else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, metavar="N", help="so many, drawn by chance")
    parser.add_argument("--seed", type=int, help="of the sample: the same once more")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these; or a list's file name")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time (2)")
    return parser


def _named(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    found = [job for job in jobs if job.mutant.id in names or job.of.file in names]
    if not found:
        raise SystemExit(f"no mutant is called {', '.join(names)}; see tests/mutants/lists")
    return found


def _guards() -> int:
    from tests.simulation.test_guards import GUARDS

    return len(GUARDS)


def _since(begun_s: float) -> str:
    return f"{time.monotonic() - begun_s:.0f} s"


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    fix_hashes()
    raise SystemExit(main(sys.argv[1:]))
