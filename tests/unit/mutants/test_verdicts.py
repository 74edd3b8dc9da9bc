"""What the tool says of mutants, in a tree of one file and its tests."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.mutants.mutant import Mutant, MutantList
from tests.mutants.trials import Copy, Outcome
from tests.mutants.verdicts import Job, Kind, Verdict, judge, table

CODE = """
def larger(a, b):
    return a if a > b else b

def sign(a):
    return 1 if a > 0 else -1
"""

TESTS = """
import pytest
from mars.numbers import larger, sign

def test_larger():
    assert larger(1, 2) == 2

def test_larger_the_other_way_round():
    assert larger(2, 1) == 2

def test_sign():
    assert sign(2) == 1

@pytest.mark.skip(reason="nobody has a server")
def test_with_a_server():
    assert sign(-1) == -1
"""

LARGER = "tests/test_numbers.py::test_larger"

FILE = "mars/numbers.py"


def mutant(name: str, old: str, new: str, *killed_by: str, survives: str = "") -> Mutant:
    return Mutant(name, "it changes", "a rule", old, new, killed_by, survives=survives)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "project"
    for file, text in ((FILE, CODE), ("tests/test_numbers.py", TESTS)):
        (tree / file).parent.mkdir(parents=True)
        (tree / file).write_text(text, "utf-8")
    return tree


def judged(tree: Path, *mutants: Mutant, workers: int = 1) -> list[Verdict]:
    of = MutantList(FILE, ("tests/test_numbers.py", "-k", "not server"), mutants)
    return judge([Job(each, of) for each in mutants], workers, lambda _line: None, tree)


def test_each_mutant_gets_the_verdict_that_is_its_own(tree: Path) -> None:
    verdicts = judged(
        tree,
        mutant("caught", "a > b", "a < b", LARGER),
        mutant("late", "a if a > b else b", "b", LARGER),
        mutant("missed", "a > 0", "a > 1", LARGER),
        mutant("equal", "a > b", "a >= b", survives="of equal numbers either is the larger"),
        mutant("noticed", "a > 0", "a < 0", survives="nobody asks for the sign"),
        mutant("gone", "a > 2", "a > 3", LARGER),
        mutant("odd", "a > b", "a > c", LARGER),
    )

    kinds = {verdict.job.mutant.id: verdict.kind for verdict in verdicts}
    assert kinds == {
        "caught": Kind.KILLED,
        "late": Kind.KILLED_ELSEWHERE,
        "missed": Kind.SURVIVED,
        "equal": Kind.EXPLAINED,
        "noticed": Kind.EXPLANATION_WRONG,
        "gone": Kind.STALE,
        "odd": Kind.UNTRIED,
    }
    assert (tree / FILE).read_text("utf-8") == CODE
    good = [verdict.job.mutant.id for verdict in verdicts if verdict.is_good]
    assert good == ["caught", "equal"]


def test_every_test_that_a_mutant_names_must_kill_it(tree: Path) -> None:
    (verdict,) = judged(
        tree, mutant("X", "a > 0", "a < 0", "tests/test_numbers.py::test_sign", LARGER)
    )
    assert verdict.kind is Kind.KILLED_ELSEWHERE


def test_mutants_that_are_tried_side_by_side_do_not_meet(tree: Path) -> None:
    name = "tests/test_numbers.py::test_sign"
    verdicts = judged(
        tree,
        mutant("A", "a > b", "a < b", LARGER),
        mutant("B", "a > 0", "a < 0", name),
        mutant("C", "a > 0", "a > 0 ", survives="a space means nothing"),
        workers=2,
    )
    assert [verdict.kind for verdict in verdicts] == [Kind.KILLED, Kind.KILLED, Kind.EXPLAINED]


def test_a_test_that_is_skipped_kills_nothing_and_says_so(tree: Path) -> None:
    with pytest.raises(RuntimeError, match=r"not run: .*test_with_a_server"):
        judged(tree, mutant("X", "a > 0", "a < 0", "tests/test_numbers.py::test_with_a_server"))


def test_a_mutant_whose_process_ends_at_once_is_not_tried_and_says_how_that_ended(
    tree: Path,
) -> None:
    ends = mutant("X", "a > b", "__import__('os')._exit(3)", LARGER)
    dies = mutant("Y", "a > b", "__import__('os').abort()", LARGER)
    exits, aborts = judged(tree, ends, dies)
    assert (exits.kind, aborts.kind) == (Kind.UNTRIED, Kind.UNTRIED)
    assert "exit code 3" in exits.detail
    assert "exit code -6" in aborts.detail


@pytest.mark.parametrize(("endless", "kind"), [(True, Kind.KILLED), (False, Kind.UNTRIED)])
def test_a_test_that_is_not_done_in_time_kills_the_mutants_that_never_end(
    tree: Path, monkeypatch: pytest.MonkeyPatch, endless: bool, kind: Kind
) -> None:
    outcomes = [Outcome(), Outcome(LARGER, "Failed: Timeout (>60.0s) from pytest-timeout.")]
    monkeypatch.setattr(Copy, "run_tests", lambda _self, _names: outcomes.pop(0))
    tried = msgspec.structs.replace(mutant("X", "a > b", "a < b", LARGER), endless=endless)
    (verdict,) = judged(tree, tried)
    assert verdict.kind is kind


def test_tests_that_fail_without_any_mutant_end_the_run(tree: Path) -> None:
    (tree / FILE).write_text(CODE.replace("a > b", "a < b"), "utf-8")
    with pytest.raises(RuntimeError, match=r"without any mutant: .*test_larger"):
        judged(tree, mutant("X", "a > 0", "a < 0", LARGER))


def test_the_table_counts_by_file_and_kind() -> None:
    of = MutantList(FILE, (), ())
    verdicts = [
        Verdict(Job(mutant(str(number), "a", "b"), of), kind, "")
        for number, kind in enumerate([Kind.KILLED, Kind.KILLED, Kind.SURVIVED])
    ]
    lines = [line.split() for line in table(verdicts, 39).splitlines()]
    assert lines[0] == ["file", "mutants", "killed", "explained", "survived"]
    assert lines[1] == [FILE, "3", "2", "0", "1"]
    assert lines[2] == ["all", "3", "2", "0", "1"]
