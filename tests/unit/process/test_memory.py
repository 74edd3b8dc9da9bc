"""Each process tells its allocators to stay small before anything large is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mars.process.memory import JEMALLOC, POLARS_OWN

SETTING = "_RJEM_MALLOC_CONF"
OURS = {SETTING, "POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS"}


def say(code: str, **environment: str) -> str:
    """What a new interpreter prints; nothing may be complained of."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **{name: value for name, value in os.environ.items() if name not in OURS},
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("role", ["mapper", "reducer", "api"])
def test_a_role_says_it_before_polars_is_there(role: str) -> None:
    code = f"import os, sys, {role}; print('polars' in sys.modules, os.environ['{SETTING}'])"
    assert say(code) == f"False {JEMALLOC}"


@pytest.mark.parametrize("role", ["mapper", "reducer", "api"])
def test_a_role_has_one_thread_for_each_library_that_would_have_many(role: str) -> None:
    names = "['POLARS_MAX_THREADS'], os.environ['OPENBLAS_NUM_THREADS']"
    assert say(f"import os, {role}; print(os.environ{names})") == "1 1"


@pytest.mark.parametrize("role", ["mapper", "reducer", "api"])
def test_a_role_looks_for_no_garbage_while_it_imports(role: str) -> None:
    assert say(f"import gc, {role}; print(gc.get_threshold()[0])") == "200000"


def test_what_the_environment_says_stays() -> None:
    code = f"import os, mapper; print(os.environ['{SETTING}'])"
    assert say(code, **{SETTING: "narenas:4"}) == "narenas:4"


def test_what_polars_says_to_the_children_of_its_process_is_not_what_somebody_asks_for() -> None:
    code = f"import os, {{}}; print(os.environ['{SETTING}'])"
    own = say(code.format("polars"))
    assert own == POLARS_OWN
    assert say(code.format("mapper"), **{SETTING: own}) == JEMALLOC
    assert say(code.format("mapper"), **{SETTING: f"{own},narenas:4"}) == "narenas:4"


def test_the_allocator_understands_it() -> None:
    # jemalloc complains on standard error, when it starts, of each word it does not know.
    assert say("import mapper, polars; print(polars.Series([1]).sum())") == "1"
    nonsense = subprocess.run(
        [sys.executable, "-c", "import polars"],
        env={**os.environ, SETTING: "no_such_word:1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no_such_word" in nonsense.stderr


@pytest.mark.parametrize("role", ["mapper", "reducer", "api"])
def test_what_only_some_tasks_need_is_imported_when_they_come(role: str) -> None:
    assert say(f"import sys, {role}.__main__; print('pyarrow' in sys.modules)") == "False"
