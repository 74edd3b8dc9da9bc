"""The lists of mutants are of the code and the tests as they are."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.mutant import (
    LISTS,
    ROOT,
    Mutant,
    MutantList,
    StaleMutant,
    applied,
    check,
    mutated,
    read_lists,
)

ALL = read_lists()

MUTANTS = [(one, mutant) for one in ALL for mutant in one.mutants]


def mutant(old: str, new: str) -> Mutant:
    return Mutant("X1", "it does something else", "a rule", old, new, survives="nobody minds")


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.file)
def test_each_mutant_applies_to_the_present_code(one: MutantList) -> None:
    stale = []
    for each in one.mutants:
        try:
            check(each, ROOT / one.file)
        except StaleMutant as problem:
            stale.append(f"{each.id}: {problem}")
    assert not stale, (
        f"mutants of {one.file} in {LISTS.relative_to(ROOT)} are of code that has changed: write "
        f"them for the present one, or take out those that have no place any more: {stale}"
    )


def test_each_mutant_has_a_name_of_its_own() -> None:
    counts = Counter(each.id for _one, each in MUTANTS)
    assert [name for name, count in counts.items() if count > 1] == []


def test_each_mutant_is_killed_by_tests_or_explained_and_not_both() -> None:
    wrong = [each.id for _one, each in MUTANTS if bool(each.killed_by) is bool(each.survives)]
    assert wrong == []


def test_the_tests_that_a_list_names_are_there() -> None:
    texts: dict[str, str] = {}
    missing = []
    for _one, each in MUTANTS:
        for name in each.killed_by:
            file, _, rest = name.partition("::")
            path = ROOT / file
            text = texts.setdefault(file, path.read_text("utf-8") if path.exists() else "")
            function = rest.partition("[")[0]
            if not re.search(rf"^def {re.escape(function)}\(", text, re.MULTILINE):
                missing.append(f"{each.id}: {name}")
    assert missing == []


def test_the_files_that_a_list_runs_are_there() -> None:
    for one in ALL:
        files = [name for name in one.tests if name.endswith(".py")]
        assert files, one.file
        assert [name for name in files if not (ROOT / name).exists()] == [], one.file


@pytest.mark.parametrize("text", ["", "a = 1\n", "a = 2\na = 2\n"], ids=["none", "other", "two"])
def test_what_does_not_occur_once_is_stale(text: str) -> None:
    with pytest.raises(StaleMutant, match="not once"):
        mutated(text, mutant("a = 2", "a = 3"))


def test_a_mutant_that_is_no_python_is_stale(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text("a = 2\n", "utf-8")
    with pytest.raises(StaleMutant, match="no Python"):
        check(mutant("a = 2", "a = ("), path)


def test_a_change_is_taken_back_whatever_happens(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text("a = 2\n", "utf-8")

    def fail() -> None:
        with applied(mutant("2", "3"), path):
            assert path.read_text("utf-8") == "a = 3\n"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text("utf-8") == "a = 2\n"
