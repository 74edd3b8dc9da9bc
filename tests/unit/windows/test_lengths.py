"""Nothing outside `mars.core.windows` reckons with the lengths of which a shape is made.

A shape that comes later has others: who adds a size to a start has a window that is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

LENGTHS = frozenset({"size_ms", "slide_ms", "step_ms", "pane_ms"})

FOLDERS = ("mars", "mapper", "reducer", "api", "bench")

MAY_RECKON = {
    "mars/core/windows/shapes.py": "it is what knows them",
    "mars/core/windows/cumulating.py": "it is what knows them",
    "mars/core/windows/landmark.py": "it is what knows them",
    "mars/core/windows/zoned.py": "it is what knows them",
    "mars/core/windows/counting.py": "it is what knows them, in rows",
    "mars/core/windows/sessions.py": "it is what knows them",
    "mars/sql/windowing.py": "it makes a shape of what a person has written, and checks that",
    "mars/sql/task.py": "it holds options against the lengths that a person has written",
}

MAY_READ = {
    "mars/core/windows/telling.py": "it tells people of slices that are too many",
}


def files() -> list[str]:
    """Those of the product."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


def lengths_in(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Wherever a length is asked of something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in LENGTHS:
            yield node


def operands_in(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The lengths that are reckoned with, or compared."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.Compare | ast.UnaryOp | ast.AugAssign):
            for child in ast.iter_child_nodes(node):
                yield from lengths_in(child)


def parsed(file: str) -> ast.AST:
    return ast.parse((ROOT / file).read_text("utf-8"))


def test_only_shapes_reckon_with_lengths() -> None:
    found = [
        f"{file}:{node.lineno} {node.attr}"
        for file in files()
        if file not in MAY_RECKON
        for node in (operands_in if file in MAY_READ else lengths_in)(parsed(file))
    ]
    assert found == [], f"ask the shape (mars/core/windows/shapes.py) instead: {found}"


@pytest.mark.parametrize("file", [*MAY_RECKON, *MAY_READ])
def test_those_that_may_do(file: str) -> None:
    assert list(lengths_in(parsed(file))), f"{file} is no exception any more: take it out"


def test_what_is_reckoned_with_is_found() -> None:
    tree = ast.parse("end = start + plan.window.size_ms\nshown = shape.slide_ms")
    assert [node.attr for node in operands_in(tree)] == ["size_ms"]
    assert {node.attr for node in lengths_in(tree)} == {"size_ms", "slide_ms"}
