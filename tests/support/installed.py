"""An environment with the built wheel, and nothing beside it but what an extra asks for.

What it asks for is taken from the environment of the tests, file by file: no registry is needed.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def build_wheel(folder: Path) -> Path:
    """The wheel, as `make wheel` builds it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path, *extras: str) -> Path:
    """An environment of its own with the wheel and what it requires; its folder of programs."""
    venv.create(folder, symlinks=True, with_pip=False)
    programs = folder / "bin"
    subprocess.run(
        [
            *[sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"],
            *["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", str(wheel)],
        ],
        check=True,
        capture_output=True,
    )
    (site,) = folder.glob("lib/python*/site-packages")
    (ours,) = site.glob("mars_statistics-*.dist-info")
    for name in _closure(_required(PathDistribution(ours).requires, extras)):
        _link(name, site)
    return programs


def _required(requires: Iterable[str] | None, extras: Iterable[str]) -> list[Requirement]:
    wanted = [Requirement(text) for text in requires or ()]
    environments = [{"extra": extra} for extra in ("", *extras)]
    return [
        each
        for each in wanted
        if each.marker is None or any(map(each.marker.evaluate, environments))
    ]


def _closure(wanted: list[Requirement]) -> set[str]:
    names: set[str] = set()
    done: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        each = wanted.pop()
        key = (each.name, frozenset(each.extras))
        if key not in done:
            done.add(key)
            names.add(each.name)
            wanted += _required(distribution(each.name).requires, each.extras)
    return names


def _link(name: str, site: Path) -> None:
    """Every file of a package at its place, as a link; programs of its own are left out."""
    installed = distribution(name)
    for file in installed.files or ():
        target = site / file
        if ".." not in file.parts and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(Path(str(installed.locate_file(file))))
