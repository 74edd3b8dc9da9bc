"""Tests on a copy of the tree, each trial in a process of its own.

A fork server has imported what the tests import besides Mars, which takes longer than most of them
do, and this tool itself; whatever it forks imports Mars from the copy. So the checkout may change
meanwhile: a process that imported the tool from it anew would die of a file that is half written.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutant import ROOT

CODE = ("mars", "mapper", "reducer", "api", "bench")
"""Packages that are imported from the copy and nowhere else; so are the tests, but for this one."""

PRELOADED = (
    "__main__",
    "tests.mutants.trials",
    "pytest",
    "confluent_kafka.admin",
    "hypothesis",
    "kazoo.client",
    "msgspec",
    "pandas",
    "polars",
    "pyarrow",
    "redis",
    "rich.progress",
    "sqlglot",
)

TEST_MAX_S = 60
"""Of one test: who waits for ever is a killed mutant, who waits for a busy machine is not."""

TRIAL_MAX_S = 1_800

NOT_WHAT_WAS_MEANT = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError")
"""Errors of a change that was written wrongly, which any test would notice."""


@dataclass(slots=True)
class Outcome:
    """What became of a trial: the test that failed first, if any, and by what.

    `wrong`: why it shows nothing, such as tests that were not run.
    """

    killer: str = ""
    problem: str = ""
    wrong: str = ""

    @property
    def ran_out_of_time(self) -> bool:
        """True if the test did not fail, but was not done in time either."""
        return self.problem.startswith("Failed: Timeout")


@dataclass(slots=True, eq=False)
class _Recorder:
    """A plugin of pytest that remembers the first failure, and what was not run."""

    passed: int = 0
    skipped: list[str] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.outcome.wrong = f"{report.nodeid} cannot be imported"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped.append(report.nodeid)
        elif report.failed and not self.outcome.killer:
            self._failed(report)
        self.passed += report.passed and report.when == "call"

    def _failed(self, report: pytest.TestReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        told = str(report.longrepr if crash is None else crash.message)
        problem = told.partition("\n")[0]
        if problem.startswith(NOT_WHAT_WAS_MEANT):
            self.outcome.wrong = f"{report.nodeid}: {problem}"
        else:
            self.outcome = Outcome(report.nodeid, problem)

    def done(self, code: int) -> Outcome:
        """What the run was, given the exit code of pytest."""
        outcome = self.outcome
        if not outcome.killer and not outcome.wrong:
            if code != pytest.ExitCode.OK:
                outcome.wrong = f"pytest ended with {pytest.ExitCode(code).name}"
            elif self.skipped or not self.passed:
                outcome.wrong = f"not run: {', '.join(self.skipped) or 'any test'}"
        return outcome


class Copy:
    """A copy of the tree in which files may be changed; one trial at a time runs in it."""

    def __init__(self, tree: Path, folder: Path, test_max_s: int = TEST_MAX_S) -> None:
        self.root = folder / "tree"
        self._log = folder / "output.log"
        self._test_max_s = test_max_s
        ignored = shutil.ignore_patterns(".*", "build", "dist")  # compiled files come along
        shutil.copytree(tree, self.root, ignore=ignored)

    def run_tests(self, names: Sequence[str]) -> Outcome:
        """Run tests until the first one fails."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        answers, answer = context.Pipe(duplex=False)
        options = [f"--timeout={self._test_max_s}", *names]
        arguments = (str(self.root), str(self._log), options, answer)
        process = context.Process(target=_within, args=arguments)
        process.start()
        answer.close()
        try:
            if not answers.poll(TRIAL_MAX_S):
                return Outcome(wrong=f"it was not done after {TRIAL_MAX_S} s")
            found: Outcome = answers.recv()
            return found
        except EOFError:
            process.join()
            return Outcome(wrong=f"its process ended with exit code {process.exitcode}")
        finally:
            process.join(1)
            process.kill()
            process.join()

    def last_output(self) -> str:
        """What the last trial wrote."""
        return self._log.read_text("utf-8", errors="replace")


def _within(root: str, log: str, options: Sequence[str], answer: Any) -> None:
    """Runs in the forked process: what it imports and starts comes from the copy."""
    os.chdir(root)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["PYTHONPATH"] = root
    for name in [name for name in sys.modules if name.split(".")[0] in CODE]:
        del sys.modules[name]
    sys.path[:] = [root, *(entry for entry in sys.path if Path(entry).resolve() != ROOT)]
    answer.send(_run_pytest(options))


def _run_pytest(options: Sequence[str]) -> Outcome:
    recorder = _Recorder()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take longer than most of the tests
    usual = ["-q", "-x", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    code = pytest.main([*usual, *options], plugins=[recorder])
    return recorder.done(code)
