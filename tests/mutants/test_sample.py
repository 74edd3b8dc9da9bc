"""Some mutants of the present code are killed as their lists say; `make mutants` tries all."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
import zlib
from pathlib import Path

from tests.mutants.mutant import ROOT, read_lists
from tests.mutants.verdicts import jobs_of, judge

SAMPLE = 8
"""Mutants, of those that take seconds."""

TEST_MAX_S = 300
"""Of one of their tests, a hundred times what it takes: it ends who has become endless."""


def turn(tree: Path) -> str:
    """What the sample is drawn by: the commit, the day where there is none. So the same run, once
    more, tries the same mutants, and in the course of time all are tried.
    """
    git = shutil.which("git")
    if git is not None and (tree / ".git").exists():
        asked = [git, "-C", str(tree), "rev-parse", "--verify", "--quiet", "HEAD"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return time.strftime("%Y-%m-%d", time.gmtime())


def test_a_sample_of_the_mutants_is_killed() -> None:
    quick = [job for job in jobs_of(read_lists()) if job.mutant.is_quick]
    drawn_by = turn(ROOT)
    jobs = random.Random(zlib.crc32(drawn_by.encode())).sample(quick, SAMPLE)

    verdicts = judge(jobs, 1, lambda _line: None, test_max_s=TEST_MAX_S)

    bad = [str(verdict) for verdict in verdicts if not verdict.is_good]
    assert bad == [], f"of the mutants that were drawn by {drawn_by}; see make mutants ONLY"
