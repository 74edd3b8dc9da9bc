"""The dashboard's assets: all are served and packaged, and none asks for anything elsewhere."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from api.routes.dashboard import HEADERS, MEDIA_TYPES, STATIC, assets
from tests.unit.api.twins import World, problem

ROOT = Path(__file__).parents[3]
UPLOT = STATIC / "vendor" / "uplot"
OWN = sorted(path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts)


def test_the_page_is_served_with_a_strict_policy(world: World) -> None:
    answer = world.http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_every_asset_is_served_with_its_type(world: World) -> None:
    assert len(assets()) > 10
    for name, path in assets().items():
        answer = world.http.get(f"/static/{name}")
        assert answer.content == path.read_bytes()
        assert answer.headers["content-type"] == MEDIA_TYPES[path.suffix]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_asset_that_has_not_changed_is_not_sent_again(world: World) -> None:
    tag = world.http.get("/static/main.js").headers["etag"]
    again = world.http.get("/static/main.js", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["absent.js", "../app.py", "%2e%2e/app.py", "/etc/passwd", ""])
def test_nothing_else_is_served(world: World, path: str) -> None:
    problem(world.http.get(f"/static/{path}"), 404)


def test_every_file_of_the_folder_is_an_asset() -> None:
    files = {path for path in STATIC.rglob("*") if path.is_file()}
    assert files - set(assets().values()) == {UPLOT / "LICENSE"}


def test_every_asset_is_in_the_wheel() -> None:
    packaged = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"api/static/{name}" for name in assets()} <= packaged
    assert "api/static/vendor/uplot/LICENSE" in packaged


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_part_names_another_place_or_makes_markup_of_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert re.findall(r"(?:https?:)?//[\w.-]+\.\w+/", text) == []
    assert (
        re.findall(r"\.(?:innerHTML|outerHTML|insertAdjacentHTML)|document\.write|eval\(", text)
        == []
    )


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_every_part_that_is_imported_or_linked_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"[\"'(]/static/([^\"')]+)[\"')]", text):
        assert name in assets(), f"{path.name} asks for {name}"


def test_the_page_has_no_inline_script_or_style() -> None:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text) == []


def test_the_chart_library_is_what_its_note_says() -> None:
    note = (UPLOT / "VERSION.txt").read_text(encoding="utf-8")
    for name in ("LICENSE", "uPlot.esm.js", "uPlot.min.css"):
        digest = hashlib.sha256((UPLOT / name).read_bytes()).hexdigest()
        assert f"{digest}  {name}" in note
    assert "The MIT License" in (UPLOT / "LICENSE").read_text(encoding="utf-8")
