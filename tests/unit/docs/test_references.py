"""The references of SQL, REST and Python are what the code says; what the code has, they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api import reference as rest
from mars.client import Client, answers
from mars.client import reference as python
from mars.core.errors import Rejected
from mars.sql import reference as sql
from mars.sql.examples import AGGREGATES, OPERATORS, SCALARS
from mars.sql.options import parse_options

DOCS = Path(__file__).parents[3] / "docs" / "reference"


def test_sql_reference_is_what_the_code_says() -> None:
    written = (DOCS / "sql.md").read_text("utf-8")
    assert written == sql.document(), "run: python -m mars.sql.reference > docs/reference/sql.md"


def test_rest_reference_is_what_the_code_says() -> None:
    written = (DOCS / "rest.md").read_text("utf-8")
    assert written == rest.document(), "run: python -m api.reference > docs/reference/rest.md"


def test_python_reference_is_what_the_code_says() -> None:
    written = (DOCS / "python.md").read_text("utf-8")
    command = "python -m mars.client.reference > docs/reference/python.md"
    assert written == python.document(), f"run: {command}"


def test_python_reference_has_every_call_and_every_answer() -> None:
    page = python.document()
    for name, each in vars(Client).items():
        if name[0] != "_" and callable(each):
            assert page.count(f"\n{name}(") == 1
    for name in set(answers.__all__) - {"Answer", "Row"}:
        assert page.count(f"### {name}\n") == 1


def test_python_reference_has_signatures_types_and_meanings() -> None:
    page = python.document()
    assert "def" not in re.findall(r"^(\w+)", page, re.MULTILINE)
    assert "\nstream(name: str) -> Stream\n" in page
    assert "start: str | int = 'latest'" in page
    assert "| `rows` | `int` | source rows that were counted |" in page
    assert "| `NotFound` | no such stream or task |" in page


def test_sql_reference_has_words_for_every_example_and_no_others() -> None:
    assert set(sql.OPERATOR_WORDS) == set(OPERATORS.values())
    assert set(sql.SCALAR_WORDS) == set(SCALARS)
    assert set(sql.AGGREGATE_WORDS) == {each for forms in AGGREGATES.values() for each in forms}


def test_sql_reference_has_every_option_that_may_be_set() -> None:
    with pytest.raises(Rejected) as refused:
        parse_options({"?": 1}, sql.TASK, sql.STREAM)
    taken = set(re.findall(r"[a-z_]+", str(refused.value).partition("There are ")[2]))
    options = sql.document().partition("## Options of a task")[2]
    assert set(re.findall(r"^\| `([a-z_]+)` \|", options, re.MULTILINE)) == taken


def test_rest_reference_has_every_path_once() -> None:
    page = rest.document()
    for path, operations in rest.describe()["paths"].items():
        for method in operations:
            assert page.count(f"`{method.upper()} {path}`") == 1
