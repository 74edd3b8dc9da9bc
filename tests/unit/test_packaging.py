"""What an installed Mars has beside its modules, and what images are built of."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


def packaged() -> set[str]:
    return {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}


def test_wheel_says_that_its_types_are_to_be_used() -> None:
    assert "mars/py.typed" in packaged()


def test_wheel_holds_the_product_alone() -> None:
    folders = {path.partition("/")[0] for path in packaged()}
    assert folders == {"mars", "mapper", "reducer", "api"}


def test_modules_that_images_and_compose_name_are_there() -> None:
    """Images are built seldom: a module that has moved would be missed on the day of a release."""
    texts = [(ROOT / name).read_text("utf-8") for name in ("Dockerfile", "docker-compose.yml")]
    named = {name for text in texts for name in MODULE.findall(text)}
    assert len(named) > 5
    assert [name for name in sorted(named) if not is_there(name)] == []


MODULE = re.compile(r"(?<![\w./-])(?:mars|mapper|reducer|api)(?:\.[a-z_]+)+(?![\w.])")


def is_there(name: str) -> bool:
    """Whether it is a module or a folder of modules."""
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()
