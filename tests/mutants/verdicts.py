"""What becomes of each mutant, and the table of all of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import ROOT, Mutant, MutantList, StaleMutant, applied, check
from tests.mutants.trials import TEST_MAX_S, Copy, Outcome


class Kind(StrEnum):
    """What became of a mutant; all but the first two are for somebody to look into."""

    KILLED = "killed"
    EXPLAINED = "explained"
    SURVIVED = "survived"
    KILLED_ELSEWHERE = "killed elsewhere"
    EXPLANATION_WRONG = "explanation wrong"
    STALE = "stale"
    UNTRIED = "untried"


GOOD = (Kind.KILLED, Kind.EXPLAINED)


@dataclass(frozen=True, slots=True)
class Job:
    """A mutant, and the list that it is from."""

    mutant: Mutant
    of: MutantList


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant, and by what."""

    job: Job
    kind: Kind
    detail: str

    @property
    def is_good(self) -> bool:
        """True if nobody has to look into it."""
        return self.kind in GOOD

    def __str__(self) -> str:
        return f"{self.job.mutant.id:<8} {self.kind:<17} {self.detail}"


def jobs_of(lists: Iterable[MutantList]) -> list[Job]:
    """All mutants of some lists."""
    return [Job(mutant, one) for one in lists for mutant in one.mutants]


def judge(
    jobs: Sequence[Job],
    workers: int,
    tell: Callable[[str], None],
    tree: Path = ROOT,
    test_max_s: int = TEST_MAX_S,
) -> list[Verdict]:
    """Try each mutant in a copy of the tree, so many at a time; tell of each when it is done.

    A test that takes longer than `test_max_s` has failed, if the mutant is one that never ends.
    Raises RuntimeError if the tests fail without any mutant.
    """
    with tempfile.TemporaryDirectory(prefix="mars-mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(workers):
            copies.put(Copy(tree, Path(folder) / str(number), test_max_s))
        _check_unchanged(jobs, copies)

        def judged(job: Job) -> Verdict:
            copy = copies.get()
            try:
                verdict = _judged(job, copy)
                tell(str(verdict))
                return verdict
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(judged, jobs))


def _check_unchanged(jobs: Iterable[Job], copies: SimpleQueue[Copy]) -> None:
    """A test that fails anyway kills nothing."""
    names = sorted({name for job in jobs for name in job.mutant.killed_by})
    copy = copies.get()
    outcome = copy.run_tests(names) if names else Outcome()
    copies.put(copy)
    if outcome.killer or outcome.wrong:
        raise RuntimeError(
            f"without any mutant: {outcome.wrong or outcome.killer} {outcome.problem}\n"
            f"{copy.last_output()}"
        )


def _judged(job: Job, copy: Copy) -> Verdict:
    path = copy.root / job.of.file
    try:
        check(job.mutant, path)
    except StaleMutant as problem:
        return Verdict(job, Kind.STALE, f"{job.of.file}: {problem}")
    if job.mutant.survives:
        return _explained(job, copy, path)
    named = _named(job, copy, path)
    if named.wrong:
        return Verdict(job, Kind.UNTRIED, named.wrong)
    if named.ran_out_of_time and not job.mutant.endless:
        return Verdict(job, Kind.UNTRIED, f"{named.killer} was not done in time: is it endless?")
    if named.killer:
        return Verdict(job, Kind.KILLED, f"{named.killer}: {named.problem}")
    wider = _wider(job, copy, path)
    if wider.wrong:
        return Verdict(job, Kind.UNTRIED, wider.wrong)
    if wider.killer:
        return Verdict(job, Kind.KILLED_ELSEWHERE, f"name {wider.killer} in its list")
    return Verdict(job, Kind.SURVIVED, f"{job.mutant.change}; breaks {job.mutant.breaks}")


def _explained(job: Job, copy: Copy, path: Path) -> Verdict:
    outcome = _wider(job, copy, path)
    if outcome.wrong:
        return Verdict(job, Kind.UNTRIED, outcome.wrong)
    if outcome.killer:
        return Verdict(job, Kind.EXPLANATION_WRONG, f"{outcome.killer} kills it")
    return Verdict(job, Kind.EXPLAINED, job.mutant.survives)


def _named(job: Job, copy: Copy, path: Path) -> Outcome:
    """By the tests that the list names: each for itself, as each is to kill it."""
    outcome = Outcome()
    with applied(job.mutant, path):
        for name in job.mutant.killed_by:
            outcome = copy.run_tests([name])
            if not outcome.killer:
                break
    return outcome


def _wider(job: Job, copy: Copy, path: Path) -> Outcome:
    """By all tests that look at the file."""
    with applied(job.mutant, path):
        return copy.run_tests(job.of.tests)


def table(verdicts: Sequence[Verdict], guards: int) -> str:
    """How many of each file's mutants there are of each kind."""
    kinds = [kind for kind in Kind if kind in GOOD or any(one.kind is kind for one in verdicts)]
    counts: dict[str, Counter[Kind]] = {}
    for one in verdicts:
        counts.setdefault(one.job.of.file, Counter())[one.kind] += 1
    total = sum(counts.values(), Counter())
    lines = [_line("file", "mutants", *kinds)]
    for file, found in [*counts.items(), ("all", total)]:
        lines.append(_line(file, found.total(), *(found[kind] for kind in kinds)))
    lines.append(f"Besides, {guards} guards are left out in tests/simulation/test_guards.py.")
    return "\n".join(lines)


def _line(first: str, *others: object) -> str:
    return f"{first:<40}" + "".join(f"{other!s:>19}" for other in others)
