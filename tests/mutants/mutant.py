"""Mutants of the protocol's files: small changes that some test must notice.

Each list in `lists/` is of one file: its mutants, and the `tests` that look at it at all, which are
run where those that a mutant names notice nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]

LISTS = Path(__file__).parent / "lists"


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of a file: `old`, which occurs there once, becomes `new`.

    `change` says in words what the file does then, `breaks` which rule or invariant of those that
    the code cites that is against, or what it costs. Either tests kill it (`killed_by`), or
    `survives` says why none can: nobody can see the change, or another guard stands behind it.
    Where it is `endless`, the tests run until their time is over.
    """

    id: str
    change: str
    breaks: str
    old: str
    new: str
    killed_by: tuple[str, ...] = ()
    survives: str = ""
    endless: bool = False

    @property
    def is_quick(self) -> bool:
        """True if unit tests kill it, which takes seconds and needs no server."""
        units = [name.startswith("tests/unit/") for name in self.killed_by]
        return not self.endless and bool(units) and all(units)


class MutantList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All mutants of one file."""

    file: str
    tests: tuple[str, ...]
    mutants: tuple[Mutant, ...]


class StaleMutant(Exception):
    """The file is no longer what the mutant was written for."""


def read_lists() -> list[MutantList]:
    """All lists, in the order of their names."""
    return [
        msgspec.toml.decode(path.read_bytes(), type=MutantList)
        for path in sorted(LISTS.glob("*.toml"))
    ]


def mutated(text: str, mutant: Mutant) -> str:
    """The text of a file with the change. Raises StaleMutant if it does not apply."""
    found = text.count(mutant.old)
    if found != 1:
        raise StaleMutant(f"its old text occurs {found} times, not once")
    return text.replace(mutant.old, mutant.new)


def check(mutant: Mutant, path: Path) -> None:
    """Raises StaleMutant if the mutant does not apply to the file, or makes no Python of it."""
    text = mutated(path.read_text("utf-8"), mutant)
    if path.suffix != ".py":
        return
    try:
        ast.parse(text)
    except SyntaxError as problem:
        raise StaleMutant(f"its new text is no Python: {problem}") from problem


@contextmanager
def applied(mutant: Mutant, path: Path) -> Iterator[None]:
    """The file is changed meanwhile; nothing may read it when it changes, there or back."""
    text = path.read_text("utf-8")
    _write(path, mutated(text, mutant))
    try:
        yield
    finally:
        _write(path, text)


def _write(path: Path, text: str) -> None:
    """Python tells a compiled file's age by seconds and size: it might take the other one's."""
    path.write_text(text, "utf-8")
    if path.suffix == ".py":
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
