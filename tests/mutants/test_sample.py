"""Some mutants of the present code are killed as their lists say; `make mutants` tries all."""

from __future__ import annotations

import random
import zlib

from tests.mutants.mutant import ROOT, MutantList, read_lists
from tests.mutants.verdicts import jobs_of, judge

SAMPLE = 8
"""Mutants, of those that take seconds."""


def seed_of(lists: list[MutantList]) -> int:
    """Another one each time a file of the lists changes: so a run fails because of a change."""
    return zlib.crc32(b"".join((ROOT / one.file).read_bytes() for one in lists))


def test_a_sample_of_the_mutants_is_killed() -> None:
    lists = read_lists()
    quick = [job for job in jobs_of(lists) if job.mutant.is_quick and not job.mutant.survives]
    jobs = random.Random(seed_of(lists)).sample(quick, SAMPLE)

    verdicts = judge(jobs, 1, lambda _line: None)

    assert [str(verdict) for verdict in verdicts if not verdict.is_good] == []
