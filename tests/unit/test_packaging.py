"""What an installed Mars has beside its modules."""

from __future__ import annotations

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
