"""The results on a task's page: of which groups, of which version, and whether these are all."""

from __future__ import annotations

import pytest

from mars.core.windows import moment
from tests.browser.scenes import (
    TASK_PAGE,
    WINDOW_MS,
    emit,
    emit_row,
    hurry_to,
    last_window,
    options_of,
    run_task,
)
from tests.support.browser import Browser
from tests.unit.api.twins import World

pytestmark = pytest.mark.browser

LEGEND = """
return [...document.querySelectorAll('.legend li')].map((one) => one.innerText.trim()).join("|")
  === arguments[0]
"""
# What is written into charts from now on.
WRITTEN = """
window.drawn = [];
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  drawn.push(text);
  fillText.call(this, text, ...rest);
};
location.hash = arguments[0];
"""
RESULT_ROWS = """
return [...document.querySelectorAll('[aria-label="Result rows"] tbody tr')]
  .map((row) => [...row.cells].map((cell) => cell.innerText))
"""


def until_legend(page: Browser, *labels: str) -> None:
    page.until(LEGEND, "|".join(labels))


# --------------------------------------------------------------------------------- the chart


def test_a_chart_has_a_line_for_each_number_that_the_query_groups_by(
    page: Browser, site: str, world: World
) -> None:
    sql = "SELECT bytes, count(*), min(sip) FROM flows GROUP BY bytes WINDOWING 60 s"
    run_task(world, sql=sql)
    for place in range(2):
        start_ms = last_window(world) - place * WINDOW_MS
        for size, count in ((80, 5), (443, 9), (None, 1)):
            values = {"bytes": size, "count": count, "min_sip": f"a-{place}"}
            emit_row(world, start_ms, [size], values)
    page.go(f"{site}/{TASK_PAGE}")
    until_legend(page, "443", "80", "NULL")
    assert options_of(page, "#column") == ["count"]


def test_a_chart_without_keys_shows_the_figure_itself(
    page: Browser, site: str, world: World
) -> None:
    run_task(world, sql="SELECT count(*), min(sip) FROM flows WINDOWING 60 s")
    for place, count in ((1, 30), (0, 40)):
        values = {"count": count, "min_sip": f"a-{place}"}
        emit_row(world, last_window(world) - place * WINDOW_MS, [], values)
    page.go(f"{site}/{TASK_PAGE}")
    until_legend(page, "count")


def test_groups_that_a_chart_cannot_tell_apart_are_not_charted(
    page: Browser, site: str, world: World
) -> None:
    run_task(world, sql="SELECT sip, count(*) FROM flows GROUP BY sip, bytes WINDOWING 60 s")
    for size in (80, 443):
        emit_row(world, last_window(world), ["a", size], {"sip": "a", "count": size})
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("The query groups by bytes without selecting it")
    assert page.run("return document.querySelectorAll('.legend li').length") == 0
    assert page.run(RESULT_ROWS) == [["a", "443"], ["a", "80"]]


def test_a_query_without_numbers_has_rows_and_no_chart(
    page: Browser, site: str, world: World
) -> None:
    run_task(world, sql="SELECT type, min(sip) FROM flows GROUP BY type WINDOWING 60 s")
    emit_row(world, last_window(world), ["dns"], {"type": "dns", "min_sip": "a"})
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("The query selects no number, so nothing is charted.")
    assert page.run("return document.querySelector('#column').checkVisibility()") is False
    assert page.run(RESULT_ROWS) == [["dns", "a"]]


def test_a_chart_of_one_window_names_its_time(page: Browser, site: str, world: World) -> None:
    run_task(world)
    emit(world, "a", last_window(world))
    page.go(f"{site}/#/streams")
    page.until("return document.querySelector('main h1')")
    page.run(WRITTEN, TASK_PAGE)
    page.until("return drawn.includes(arguments[0])", f"{moment(last_window(world))[11:19]}")


# ------------------------------------------------------------------------------ many rows


def test_a_window_of_more_rows_than_are_read_says_so(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    for number in range(1_200):
        emit(world, f"{number:04}", last_window(world))
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text(
        "more than 1,000 rows; below are the largest 20 of 1,000 that were read, others may be"
    )
    page.until_text("charted by the 1,000 that were read: larger groups may be missing")


def test_a_window_that_is_read_whole_has_its_largest_rows_below(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    for number in range(30):
        values = {"sip": f"{number:04}", "count": number}
        emit_row(world, last_window(world), [values["sip"]], values)
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("30 rows, the largest 20 of them below.")
    assert page.run(RESULT_ROWS)[0] == ["0029", "29"]
    assert "charted" not in page.text()


# ------------------------------------------------------------------- versions, parts of windows


def test_windows_of_two_versions_stand_beside_each_other(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    start_ms = last_window(world)
    emit_row(world, start_ms, ["a"], {"sip": "a", "count": 3}, complete=False)
    hurry_to(page, site, TASK_PAGE)
    page.until_text("1 row; none is complete")

    sql = "SELECT type, sip, count(*) FROM flows GROUP BY type, sip WINDOWING 60 s"
    assert world.http.put("/v1/tasks/by_sip", json={"sql": sql}).status_code == 200
    page.until_text("No window of version 2 has closed yet")
    values = {"type": "dns", "sip": "b", "count": 4}
    emit_row(world, start_ms, ["dns", "b"], values, version=2)
    until_legend(page, "dns, b")
    assert page.run(RESULT_ROWS) == [["dns", "b", "4"]]
    newest, second, first = options_of(page, "#window")
    assert (newest, first) == ("the newest", f"{second}, version 1")
    page.choose("#window", first)
    assert page.run(RESULT_ROWS) == [["a", "3"]]


def test_a_window_in_a_complete_and_an_incomplete_part_is_one(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    for sip, count, complete in (("a", 3, True), ("b", 2, False), ("c", 1, True)):
        row = {"sip": sip, "count": count}
        emit_row(world, last_window(world), [sip], row, complete=complete)
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("3 rows; 1 of them is not complete")
    assert page.run(RESULT_ROWS) == [["a", "3"], ["b", "2"], ["c", "1"]]
    until_legend(page, "a", "b", "c")
    assert len(options_of(page, "#window")) == 2
