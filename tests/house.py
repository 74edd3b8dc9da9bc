"""The house in figures: folders, files, functions, classes, and who is named like somebody else.

    python -m tests.house

Counted over the packages of the product by their syntax trees. A body is the lines of a function
without its signature, its docstring and blank lines. `tests/unit/test_house.py` keeps what has been
reached.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("mars", "mapper", "reducer", "api")
METHODS_MAX = 25
"""Of a class; a reader holds no more of them in mind."""

FILES_MAX = 15
"""Of a folder, without `__init__.py` and `__main__.py`."""

LINES_MAX = 500

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the product."""

    path: Path
    text: tuple[str, ...]
    tree: ast.Module

    @property
    def lines(self) -> int:
        """How many there are."""
        return len(self.text)

    @property
    def name(self) -> str:
        """Its path below the root."""
        return str(self.path.relative_to(ROOT))


def sources(packages: Sequence[str] = PRODUCT) -> list[Source]:
    """All Python files of these packages."""
    found = []
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text("utf-8")
            found.append(Source(path, tuple(text.splitlines()), ast.parse(text)))
    return found


def files_by_folder(files: Sequence[Source]) -> Counter[str]:
    """How many files each folder has."""
    own = (one for one in files if not one.path.name.startswith("__"))
    return Counter(str(one.path.parent.relative_to(ROOT)) for one in own)


def classes(files: Sequence[Source]) -> Iterator[tuple[str, ast.ClassDef]]:
    """Each class at the top of a file, with that file's path."""
    for one in files:
        for node in one.tree.body:
            if isinstance(node, ast.ClassDef):
                yield one.name, node


def methods_by_class(files: Sequence[Source]) -> Counter[str]:
    """How many methods each class has, properties among them; by its path and name."""
    return Counter(
        {
            f"{path}:{node.name}": sum(isinstance(part, Function) for part in node.body)
            for path, node in classes(files)
        }
    )


def names_used_again(files: Sequence[Source]) -> dict[str, list[str]]:
    """Public classes of one name, with the files that have one."""
    places: dict[str, list[str]] = {}
    for path, node in classes(files):
        if not node.name.startswith("_"):
            places.setdefault(node.name, []).append(path)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def bodies(files: Sequence[Source]) -> list[int]:
    """Lines of the body of each function, in order of size."""
    return sorted(
        _body(node, one.text)
        for one in files
        for node in ast.walk(one.tree)
        if isinstance(node, Function)
    )


def _body(node: Function, lines: Sequence[str]) -> int:
    first = node.body[0]
    told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    start = (first.end_lineno or 0) if told else first.lineno - 1
    return sum(bool(line.strip()) for line in lines[start : node.end_lineno])


def figures() -> list[tuple[str, str]]:
    """What is counted, and how much of it there is."""
    files = sources()
    folders, methods, sizes = files_by_folder(files), methods_by_class(files), bodies(files)
    parts = [sizes[int(len(sizes) * share)] for share in (0.5, 0.9, 0.99)]
    large = [name for name, number in methods.items() if number > METHODS_MAX]
    return [
        ("folders with code", str(len(folders))),
        ("files", str(len(files))),
        ("lines", f"{sum(one.lines for one in files):,}"),
        (f"folders with more than {FILES_MAX} files", _told(folders, FILES_MAX)),
        (f"files of more than {LINES_MAX} lines", _told(_lines(files), LINES_MAX)),
        ("lines of a body, median, 90 %, 99 %, most", " ".join(map(str, [*parts, sizes[-1]]))),
        (f"classes with more than {METHODS_MAX} methods", str(len(large))),
        ("of them", ", ".join(f"{name.rpartition(':')[2]} {methods[name]}" for name in large)),
        ("names that several classes have", str(len(names_used_again(files)))),
    ]


def _lines(files: Sequence[Source]) -> Counter[str]:
    return Counter({one.name: one.lines for one in files})


def _told(counted: Counter[str], most: int) -> str:
    over = [f"{name} {number}" for name, number in counted.most_common() if number > most]
    return f"{len(over)}: {', '.join(over)}" if over else "0"


def main() -> None:
    """Print the table."""
    for what, number in figures():
        sys.stdout.write(f"| {what} | {number} |\n")


if __name__ == "__main__":
    main()
