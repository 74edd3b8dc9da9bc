"""docs/start/client.ipynb, cell by cell, on a running Mars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import missing_java, need
from tests.support.cluster import MarsCluster

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

NOTEBOOK = Path(__file__).parents[2] / "docs" / "start" / "client.ipynb"


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert all(not cell.get("outputs") for cell in cells)
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_notebook_runs_from_its_first_cell_to_its_last(
    shared_mars: MarsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(missing_java())
    monkeypatch.setenv("MARS_API", shared_mars.api)
    monkeypatch.setenv("MARS_KAFKA_BOOTSTRAP", str(shared_mars.file["kafka"]))
    scope: dict[str, Any] = {}
    for number, cell in enumerate(code_cells(), start=1):
        exec(compile(cell, f"cell {number}", "exec"), scope)
    # 180 seconds of 5 clicks, in three minutes and on three pages
    rows = scope["handled"]
    assert len({(row["window_start"], row["page"]) for row in rows}) == 9
    assert sum(row["count"] for row in rows) == 900
    asked: pl.DataFrame = scope["answer"].df()
    assert asked["clicks"].sum() == 900
    assert set(asked["user"].to_list()) == set(range(5))
