"""A campaign goes on whatever becomes of a seed."""

from __future__ import annotations

import os

import pytest

from tests.simulation import many


def run(seed: int) -> str:
    if seed == 3:
        os._exit(7)
    if seed == 5:
        raise ValueError("a fault of the simulation itself")
    return f"seed {seed}: no" if seed % 4 == 0 else ""


def test_campaign_names_every_seed_that_fails_or_ends_its_process() -> None:
    problems = dict(many.results_of(range(1, 10), run, processes=2))
    assert sorted(problems) == list(range(1, 10))
    assert {seed: problem for seed, problem in problems.items() if problem} == {
        3: "seed 3: its process died, exit code 7",
        4: "seed 4: no",
        5: "seed 5: its process died, exit code 1",
        8: "seed 8: no",
    }


def test_more_processes_than_seeds_do_no_harm() -> None:
    assert list(many.results_of([7], run, processes=3)) == [(7, "")]


@pytest.mark.parametrize("arguments", [[], ["x"], ["1", "--processes", "x"], ["1", "--processes"]])
def test_wrong_call_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert many.main(arguments) == 2
    assert capsys.readouterr().err == many.USAGE
